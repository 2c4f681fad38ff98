package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"btools/lib/jsonrpc"
)

var us = json.RawMessage(`{"name":"bmcp","title":"Browsers","version":"1"}`)

func parsed(t *testing.T, text string) *jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// meta are the _meta of the stateless protocol, with the host's capabilities.
func meta(can string) string {
	return `"_meta":{"` + MetaVersion + `":"` + Stateless + `","` + MetaCapabilities + `":` + can + `}`
}

// What a request says of itself is read once, whichever protocol it is of.
func TestEnvelope(t *testing.T) {
	logs := strings.Replace(meta(`{}`), `"_meta":{`, `"_meta":{"`+metaLogLevel+`":"warning",`, 1)
	extension := `{"extensions":{"io.modelcontextprotocol/tasks":{}},"roots":{"listChanged":true}}`
	for _, c := range []struct{ method, params, want string }{
		{"tools/call", `{"name":"a"}`, "handshake audience= tasks=1 level=-1 refused=<nil>"},
		{"tools/call", `{"name":"a",` + meta(`{"roots":{},"x":{}}`) + `}`,
			`stateless audience={"roots":{}} tasks=3 level=8 subject=a asks refused=<nil>`},
		{"resources/read", `{"uri":"u","name":"a",` + meta(extension) + `}`,
			`stateless audience={"roots":{}} tasks=2 level=8 subject=u asks refused=<nil>`},
		{"tools/list", `{` + logs + `}`,
			`stateless audience={} tasks=3 level=3 refused=<nil>`},
		{"server/discover", `{}`, `stateless audience={} tasks=3 level=8 ` +
			`refused=the member "io.modelcontextprotocol/protocolVersion" of _meta is missing`},
		{"tools/list", `{` + strings.ReplaceAll(meta(`{}`), Stateless, "2099-01-01") + `}`,
			`stateless audience={} tasks=3 level=8 refused=the protocol version "2099-01-01" is not spoken here`},
		{"tools/list", `{` + meta(`[]`) + `}`, `stateless audience={} tasks=3 level=8 ` +
			`refused=the member "io.modelcontextprotocol/clientCapabilities" of _meta is missing, or no object`},
		{"ping", `{` + meta(`{}`) + `}`,
			`stateless audience={} tasks=3 level=8 refused=2026-07-28 has no method "ping"`},
	} {
		e := Read(parsed(t, `{"jsonrpc":"2.0","id":1,"method":"`+c.method+`","params":`+c.params+`}`), AskedTasks, us)
		got := "stateless"
		if e.Era.HasHandshake() {
			got = "handshake"
		}
		got += fmt.Sprintf(" audience=%s tasks=%d level=%d", e.Audience, e.Tasks, e.Level)
		if e.Subject != "" {
			got += " subject=" + e.Subject
		}
		if e.MayAsk {
			got += " asks"
		}
		if got += fmt.Sprintf(" refused=%v", e.Refused); got != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s", c.method, c.params, got, c.want)
		}
	}
}

// The host of the handshake gets every byte as it came; a child of an older protocol
// sees nothing of the newest one, and its answer gets what that needs.
func TestEras(t *testing.T) {
	old := parsed(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","task":{}}}`)
	era := Read(old, NoTasks, us).Era
	if got := era.ToChild(old); got != old {
		t.Errorf("a child gets %s", got.Raw)
	}
	if got := era.Result("tools/list", json.RawMessage(`{}`)); string(got) != `{}` {
		t.Errorf("a host gets %s", got)
	}
	m := parsed(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"requestState":"k","name":"a",`+
		strings.Replace(meta(`{}`), `"_meta":{`, `"_meta":{"progressToken":7,`, 1)+`,"inputResponses":{}}}`)
	era = Read(m, NoTasks, us).Era
	want := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":7}}}`
	if got := era.ToChild(m); string(got.Raw) != want {
		t.Errorf("a child gets %s, not %s", got.Raw, want)
	}
	for _, c := range []struct{ method, result, want string }{
		{"tools/call", `{"content":[]}`, `{"resultType":"complete","_meta":{"` + metaServer + `":` + string(us) +
			`},"content":[]}`},
		{"tools/list", `{"ttlMs":5,"resultType":"x"}`, `{"_meta":{"` + metaServer + `":` + string(us) +
			`},"cacheScope":"private","ttlMs":5,"resultType":"x"}`},
	} {
		if got := era.Result(c.method, json.RawMessage(c.result)); string(got) != c.want {
			t.Errorf("%s: a host gets %s, not %s", c.method, got, c.want)
		}
	}
	failed := parsed(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no"}}`)
	if got := era.Failure("resources/read", failed); jsonrpc.GetString(got.Error, "message") != "no" ||
		string(jsonrpc.Get(got.Error, "code")) != "-32602" {
		t.Errorf("a host gets %s", got.Raw)
	}
	read := parsed(t, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a:b",`+meta(`{}`)+`}}`)
	got := Read(read, NoTasks, us).Era.Failure("resources/read", failed)
	if s := string(jsonrpc.Get(got.Error, "data")); s != `{"uri":"a:b"}` {
		t.Errorf("the error of a resource has the data %s", s)
	}
	if got := era.Failure("tools/call", failed); got != failed {
		t.Errorf("a host gets %s", got.Raw)
	}
}

// A child is offered what its host can do, in a protocol that it may know.
func TestChildParams(t *testing.T) {
	for _, c := range []struct {
		to         Audience
		host, want string
	}{
		{OfHandshake, `{"protocolVersion":"2024-11-05","capabilities":{"roots":{}},"clientInfo":{"name":"h"}}`,
			`{"protocolVersion":"2024-11-05","capabilities":{"roots":{}},"clientInfo":{"name":"h"}}`},
		{OfHandshake, `{"protocolVersion":"` + Stateless + `","clientInfo":{"name":"h"}}`,
			`{"capabilities":{},"protocolVersion":"` + Legacy + `","clientInfo":{"name":"h"}}`},
		{`{"sampling":{}}`, ``, `{"clientInfo":{"name":"bmcp","version":"1"},"protocolVersion":"` + Legacy +
			`","capabilities":{"sampling":{}}}`},
	} {
		if got := c.to.ChildParams(json.RawMessage(c.host), us); string(got) != c.want {
			t.Errorf("%q: %s, not %s", c.to, got, c.want)
		}
	}
}

// Hosts that children can be asked the same of, and show the same, share them.
func TestAudienceOf(t *testing.T) {
	const apps = `"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}`
	for can, want := range map[string]Audience{
		`{"roots":{"listChanged":true},"tasks":{}}`:        `{"roots":{}}`,
		`{"elicitation":{"url":{"x":1}},"sampling":"yes"}`: `{"elicitation":{"url":{}}}`,
		`{` + apps + `}`: `{` + apps + `}`,
		`{` + strings.Replace(apps, `["text`, `["image/png","text`, 1) + `}`: `{` + apps + `}`,
		`{` + strings.Replace(apps, "mcp-app", "x", 1) + `}`:                 AskNothing,
		`{"extensions":{"io.modelcontextprotocol/ui":{}}}`:                   AskNothing,
	} {
		got := AudienceOf(json.RawMessage(can))
		if got != want || HasApps(json.RawMessage(got)) != strings.Contains(string(want), "ui") {
			t.Errorf("%s: %s, not %s", can, got, want)
		}
	}
}

func TestTaskForms(t *testing.T) {
	for _, c := range []struct {
		form TaskForm
		task string
		want string
	}{
		{AskedTasks, `{"ttl":1500}`, "1.5s <nil>"},
		{AskedTasks, `{"ttl":1e12}`, "1h0m0s <nil>"},
		{AskedTasks, `{"ttl":null}`, "1h0m0s <nil>"},
		{AskedTasks, `{"ttl":-1}`, `0s the ttl of a task is a number of milliseconds, not "-1"`},
		{GrantedTasks, `{"ttl":5}`, "1h0m0s <nil>"},
	} {
		ttl, err := c.form.TTL(json.RawMessage(c.task), time.Hour)
		if got := fmt.Sprint(ttl, " ", err); got != c.want {
			t.Errorf("%d %s: %s, not %s", c.form, c.task, got, c.want)
		}
	}
	view := TaskView{ID: "t", TTL: time.Second, Poll: time.Millisecond, Status: "working",
		Created: time.Unix(0, 0), Updated: time.Unix(1, 0)}
	for form, want := range map[TaskForm]string{
		AskedTasks: `{"task":{"taskId":"t","status":"working","createdAt":"1970-01-01T00:00:00.000Z",` +
			`"lastUpdatedAt":"1970-01-01T00:00:01.000Z","ttl":1000,"pollInterval":1}}`,
		GrantedTasks: `{"resultType":"task","taskId":"t","status":"working","createdAt":"1970-01-01T00:00:00.000Z",` +
			`"lastUpdatedAt":"1970-01-01T00:00:01.000Z","ttlMs":1000,"pollIntervalMs":1}`,
	} {
		if got := string(form.Created(view)); got != want {
			t.Errorf("%d: %s, not %s", form, got, want)
		}
	}
}
