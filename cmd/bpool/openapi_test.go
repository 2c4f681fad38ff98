//go:build linux

package main_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"btools/lib/cmdtest"
	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// object is one of JSON.
type object = map[string]any

// at returns the value at the end of names below an object; nil: there is none.
func at(v any, names ...string) any {
	for _, name := range names {
		o, _ := v.(object)
		v = o[name]
	}
	return v
}

// expand replaces references in a value by parts of a document, and makes members that a schema does not name invalid,
// unless it says that there may be some.
func expand(doc, v any) any {
	switch v := v.(type) {
	case []any:
		all := []any{}
		for _, x := range v {
			all = append(all, expand(doc, x))
		}
		return all
	case object:
		o := object{}
		if ref, ok := v["$ref"].(string); ok {
			o = expand(doc, at(doc, strings.Split(ref, "/")[1:]...)).(object)
		}
		for name, x := range v {
			if name != "$ref" {
				o[name] = expand(doc, x)
			}
		}
		if o["type"] == "object" && o["properties"] != nil && o["additionalProperties"] == nil {
			o["additionalProperties"] = false
		}
		return o
	}
	return v
}

// described is a service whose answers are compared with its OpenAPI document.
type described struct {
	t      *testing.T
	base   string
	paths  object
	codes  map[string][]string // statuses by code
	served map[string]bool     // the operations that have succeeded, as "get /status"
}

// describe reads the document of a service.
func describe(t *testing.T, base string) *described {
	t.Helper()
	_, text := cmdtest.Get(t, "GET", base+"/openapi.json")
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	doc = expand(doc, doc)
	d := &described{t: t, base: base, paths: at(doc, "paths").(object), codes: map[string][]string{},
		served: map[string]bool{}}
	for _, c := range at(doc, "components", "schemas", "Code", "oneOf").([]any) {
		code := at(c, "const").(string)
		for _, status := range at(c, "x-status").([]any) {
			d.codes[code] = append(d.codes[code], fmt.Sprint(status))
		}
	}
	return d
}

// check returns how a value does not fit a schema.
func (d *described) check(schema, value any) error {
	d.t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema", schema); err != nil {
		d.t.Fatal(err)
	}
	s, err := c.Compile("schema")
	if err != nil {
		d.t.Fatalf("%v: %v", schema, err)
	}
	return s.Validate(value)
}

// request is a request to a documented path.
type request struct {
	method    string // as in the document: in small letters
	path      string
	lease, id string // parameters of the path
	query     string
	body      string
	token     string
	bytes     string // a range
	status    int    // that is wanted; 0: any
}

// do makes a request, compares it and its answer with the document, and returns the body.
func (d *described) do(r request) string {
	d.t.Helper()
	name := r.method + " " + r.path
	op := at(d.paths, r.path, r.method)
	if op == nil {
		d.t.Errorf("%s is not documented", name)
	}
	if err := d.checkRequest(r); (err != nil) != (r.status == http.StatusBadRequest) {
		d.t.Errorf("%+v should be answered with status %d: the document says %v", r, r.status, err)
	}
	address := d.base + strings.NewReplacer("{lease}", r.lease, "{id}", r.id).Replace(r.path) + "?" + r.query
	if r.status == http.StatusSwitchingProtocols {
		if at(op, "responses", "101") == nil {
			d.t.Errorf("%s is a WebSocket, and the document does not say so", name)
		}
		conn := cmdtest.Dial(d.t, strings.Replace(address, "http", "ws", 1)+"&token="+r.token).Conn
		conn.Close(websocket.Normal, "")
		d.served[name] = true
		return ""
	}
	q, err := http.NewRequestWithContext(d.t.Context(), strings.ToUpper(r.method), address, strings.NewReader(r.body))
	if err != nil {
		d.t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+r.token)
	if r.bytes != "" {
		q.Header.Set("Range", "bytes="+r.bytes)
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.checkAnswer(op, resp, body); err != nil {
		d.t.Errorf("%s is answered with %d %.300s: %v", name, resp.StatusCode, body, err)
	}
	if r.status != 0 && resp.StatusCode != r.status {
		d.t.Errorf("%+v is answered with %d %.300s", r, resp.StatusCode, body)
	}
	if resp.StatusCode < 300 {
		d.served[name] = true
	}
	return string(body)
}

// checkRequest returns how the body or the query of a request does not fit the document.
func (d *described) checkRequest(r request) error {
	d.t.Helper()
	op := at(d.paths, r.path, r.method)
	if r.body != "" {
		body, err := jsonschema.UnmarshalJSON(strings.NewReader(r.body))
		if err != nil {
			return err
		}
		return d.check(at(op, "requestBody", "content", "application/json", "schema"), body)
	}
	if r.path == "/lease/{lease}/json/new" {
		return nil // its query is an address
	}
	parameters, _ := at(op, "parameters").([]any)
	query, err := url.ParseQuery(r.query)
	if err != nil {
		return err
	}
	for _, p := range parameters {
		name := at(p, "name").(string)
		if v := query.Get(name); v != "" {
			if err := d.check(at(p, "schema"), v); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		delete(query, name)
	}
	if len(query) > 0 {
		return fmt.Errorf("there are no parameters %v", query)
	}
	return nil
}

// checkAnswer returns how an answer does not fit what the document says of an operation.
func (d *described) checkAnswer(op any, resp *http.Response, body []byte) error {
	d.t.Helper()
	answers := at(op, "responses", fmt.Sprint(resp.StatusCode), "content")
	isError := answers == nil
	if isError {
		answers = at(op, "responses", "default", "content")
	}
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	content, ok := at(answers, mediaType).(object)
	if !ok {
		content, ok = at(answers, "*/*").(object)
	}
	if !ok {
		return fmt.Errorf("the document does not have the type %s", mediaType)
	}
	schema := content["schema"]
	if schema == nil {
		return nil
	}
	var value any = string(body)
	if mediaType == "application/json" {
		var err error
		if value, err = jsonschema.UnmarshalJSON(strings.NewReader(string(body))); err != nil {
			return err
		}
	}
	if err := d.check(schema, value); err != nil {
		return err
	}
	if code := jsonrpc.GetString(body, "error", "code"); isError &&
		!slices.Contains(d.codes[code], fmt.Sprint(resp.StatusCode)) {
		return fmt.Errorf("the document has %s with the statuses %v", code, d.codes[code])
	}
	return nil
}

// What the document says of a path is what a service does there, in each kind of browser: a shared one, a whole one,
// and a Firefox.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	site := cmdtest.DownloadSite(t)
	w := cmdtest.New(t)
	tokens := w.Dir + "/tokens"
	cmdtest.WriteFile(t, tokens, "ci "+ciToken+" trust\nother "+otherToken+" pools=A max=1\n")
	p := w.WebPool([]string{"--token-file", tokens}, "BROWSER=chrome-headless-shell", "_A_IS_DEFAULT=1",
		"_A_ISOLATION=context", "_A_INSTANCES=3", "_A__0_ALIAS=first", "_B_INSTANCES=1",
		"_F_INSTANCES=1", "_F_BROWSER=firefox", "_F_TIMEOUT=60000", "_N_INSTANCES=1", "_N_LAUNCH=false")
	d := describe(t, p.HTTP)
	const get, post, put = "get", "post", "put"
	const one = "/lease/{lease}" // the path of a lease
	lease := func(body string) (l cmdtest.Leased, name string) {
		t.Helper()
		text := d.do(request{method: post, path: "/lease", body: body, token: ciToken, status: 200})
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		return l, l.Instance.HTTPURL[strings.LastIndex(l.Instance.HTTPURL, "/")+1:]
	}
	a, shared := lease(`{"instance":"first","timeout":"1m","ttl":"1h30m","holder":"a","state":{"cookies":` +
		`[{"name":"n","value":"v","domain":"localhost","path":"/"}],"origins":[]}}`)
	b, whole := lease(`{"pool":"B"}`)
	f, firefox := lease(`{"pool":"F"}`)
	none, _ := lease(`{"pool":"N"}`)
	for path, methods := range d.paths {
		for _, method := range []string{get, post, put} {
			op := at(methods, method)
			if op == nil {
				continue
			}
			r := request{method: method, path: path, lease: shared, id: "x"}
			if at(op, "security") == nil {
				r.status = 401
			} else if !strings.HasPrefix(path, one) {
				r.status = 200
			}
			d.do(r)
		}
	}

	// Leases.
	for _, r := range []request{
		{body: "{", status: 400}, {body: "[]", status: 400}, {body: `{"timeout":"-1s"}`, status: 400},
		{body: `{"timeout":30}`, status: 400}, {body: `{"ttl":"1d"}`, status: 400}, {body: `{"pol":"A"}`, status: 400},
		{body: `{"state":{"cookies":{}}}`, status: 400}, {body: `{"state":{"origins":[{}]}}`, status: 400},
		{body: `{"state":"none"}`, status: 404}, {body: `{"pool":"C"}`, status: 404},
		{body: `{"instance":"9"}`, status: 404}, {body: `{"instance":"first","timeout":"0s"}`, status: 504},
		{body: `{"holder":"` + strings.Repeat("x", 2<<20) + `"}`, status: 413},
		{body: `{"pool":"B"}`, token: otherToken, status: 403}, {body: `{}`, token: otherToken, status: 200},
		{body: `{"timeout":"0s"}`, token: otherToken, status: 504},
	} {
		r.method, r.path, r.token = post, "/lease", cmp.Or(r.token, ciToken)
		d.do(r)
	}
	of := func(l cmdtest.Leased, more string) string { return fmt.Sprintf(`{"lease":%q%s}`, l.Lease.ID, more) }
	for _, r := range []request{
		{method: post, path: "/renew", body: of(a, ""), status: 200},
		{method: post, path: "/renew", body: of(none, `,"ttl":"2h"`), status: 200},
		{method: post, path: "/renew", body: of(a, `,"ttl":"-2h"`), status: 400},
		{method: post, path: "/renew", body: of(a, ""), token: otherToken, status: 404},
		{method: post, path: "/hold", body: fmt.Sprintf(`{"leases":[%q],"wait":"1ms"}`, a.Lease.ID), status: 200},
		{method: post, path: "/hold", body: fmt.Sprintf(`{"leases":[%q]}`, none.Lease.ID), token: otherToken,
			status: 200},
		{method: post, path: "/hold", body: `{"wait":"1ms","pool":"A"}`, status: 400},
		{method: post, path: "/rest", body: of(a, ""), status: 200},
		{method: post, path: "/rest", body: of(a, ""), token: otherToken, status: 404},
		{method: post, path: "/state", body: of(a, ""), status: 200},
		{method: post, path: "/state", body: of(a, ""), token: otherToken, status: 404},
		{method: post, path: "/lease", body: `{"offer":"none"}`, status: 410},
		{method: post, path: "/freeze", body: of(a, ""), status: 503},
		{method: post, path: "/freeze", body: of(a, `,"off":true,"why":"no room"`), status: 200},
		{method: post, path: "/freeze", body: of(a, ""), token: otherToken, status: 404},
		{method: post, path: "/release", body: of(a, ""), token: otherToken, status: 404},
		{method: post, path: "/release", body: of(a, `,"pool":"A"`), status: 400},
		{method: get, path: "/leases", status: 200},
		{method: get, path: "/status", status: 200},
		{method: get, path: "/status", query: "pool=A", token: otherToken, status: 200},
		{method: get, path: "/status", query: "pool=C", status: 404},
		{method: get, path: "/metrics", status: 200},
		{method: get, path: "/connect", status: 426},
		{method: get, path: "/connect", query: "pool=A&timeout=30s&ttl=1h&holder=h", status: 101},
	} {
		r.token = cmp.Or(r.token, ciToken)
		d.do(r)
	}

	// The browsers.
	for _, name := range []string{shared, whole} {
		do := func(method, path, id string, status int) string {
			t.Helper()
			return d.do(request{method: method, path: one + path, lease: name, id: id, status: status})
		}
		do(get, "/json/version", "", 200)
		do(get, "/json/protocol", "", 200)
		for _, path := range []string{"/json", "/json/list"} {
			do(get, path, "", 200)
		}
		target := jsonrpc.GetString([]byte(do(put, "/json/new", "", 200)), "id")
		d.do(request{method: put, path: one + "/json/new", lease: name, query: site, status: 200})
		do(get, "/json/activate/{id}", target, 200)
		do(get, "/devtools/page/{id}", target, 101)
		do(get, "/json/close/{id}", target, 200)
		cmdtest.Until(t, "the page is closed", func() bool {
			return !strings.Contains(do(get, "/json", "", 200), target)
		})
		do(get, "/json/close/{id}", target, 404)
		for _, path := range []string{"", "/devtools/browser"} {
			do(get, path, "", 101)
		}
		do(get, "/devtools/browser/{id}", "any", 101)
		do(get, "/downloads", "", 200)
		do(get, "/downloads/{id}", "x", 404)
		d.do(request{method: get, path: one + "/json/version", lease: name + "x", status: 404})
	}
	d.do(request{method: get, path: one + "/devtools/{id}", lease: shared, id: "inspector.html", status: 404})
	d.do(request{method: get, path: one + "/devtools/{id}", lease: whole, id: "inspector.html", status: 200})
	cmdtest.Click(t, a.Instance.WSURL, site, "file")
	var guid string
	cmdtest.Until(t, "the download is complete", func() bool {
		list := d.do(request{method: get, path: one + "/downloads", lease: shared, status: 200})
		_, rest, _ := strings.Cut(list, `"guid": "`)
		guid, _, _ = strings.Cut(rest, `"`)
		return strings.Contains(list, `"complete"`)
	})
	file := request{method: get, path: one + "/downloads/{id}", lease: shared, id: guid, status: 200}
	d.do(file)
	file.bytes, file.status = "4-", 206
	d.do(file)
	d.do(request{method: get, path: one + "/session", lease: firefox, status: 101})
	var no *websocket.RefusedError
	_, err := websocket.Dial(t.Context(), f.Instance.WSURL+"/x")
	if !errors.As(err, &no) || !strings.HasPrefix(no.Status, "404") || strings.HasPrefix(no.Text, "{") {
		t.Errorf("%s/x is not answered by Firefox: %v", f.Instance.WSURL, err)
	}
	d.served["get "+one+"/session/{id}"] = true // only sessions of WebDriver have one

	d.do(request{method: post, path: "/release", body: of(b, ""), token: ciToken, status: 200})
	d.do(request{method: get, path: one + "/json/version", lease: whole, status: 410})
	d.do(request{method: post, path: "/release", body: `{"all":true}`, token: ciToken, status: 200})
	for path, methods := range d.paths {
		for method := range methods.(object) {
			if name := method + " " + path; method != "parameters" && !d.served[name] {
				t.Errorf("%s is in the document, and nothing has succeeded there", name)
			}
		}
	}
	p.Stop()
	w.Clean()
}
