package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"btools/lib/cdp"
	"btools/lib/virtual/chrometest"
)

// A page of another site in the person's own browser reads nothing of ours, opens no WebSocket and frames nothing; its
// link leads here.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	_, base := newFront(t, newStore(t))
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="%s/">link</a>`, base)
	}))
	defer site.Close()
	ws, _ := chrometest.StartShell(t)
	c, err := cdp.Dial(t.Context(), ws, func(cdp.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var target struct{ TargetID string }
	var session struct{ SessionID string }
	call := func(session, method string, params map[string]any, result any) {
		t.Helper()
		if err := c.Call(t.Context(), session, method, params, result); err != nil {
			t.Fatal(method, err)
		}
	}
	call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	evaluate := func(script string) string {
		t.Helper()
		var r struct {
			Result           struct{ Value json.RawMessage }
			ExceptionDetails json.RawMessage
		}
		call(session.SessionID, "Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true,
			"returnByValue": true}, &r)
		return string(r.Result.Value) + string(r.ExceptionDetails)
	}
	// load waits for the page at an address, which has a new document.
	load := func(open string) {
		t.Helper()
		evaluate("window.old = true")
		evaluate(open)
		for evaluate("!window.old && document.readyState == 'complete'") != "true" {
		}
	}
	call(session.SessionID, "Page.navigate", map[string]any{"url": site.URL}, nil)
	for evaluate("document.querySelector('a') != null") != "true" {
	}
	got := evaluate(`(async () => {
		const base = "` + base + `", tried = {};
		const by = (tag, at) => new Promise((done) => {
			const e = document.createElement(tag);
			e.onload = () => done("loaded");
			e.onerror = () => done("failed");
			e.src = base + at;
			document.body.append(e);
		});
		tried.fetch = await fetch(base + "/").then(() => "read", () => "failed");
		tried.post = await fetch(base + "/list", {method: "POST", body: "x"}).then(() => "read", () => "failed");
		tried.script = await by("script", "/app.js");
		tried.image = await by("img", "/");
		tried.socket = await new Promise((done) => {
			const s = new WebSocket(base.replace("http", "ws") + "/list");
			s.onopen = () => done("open");
			s.onerror = () => done("failed");
		});
		await by("iframe", "/");
		try { tried.frame = frames[0].document ? "read" : "none"; } catch { tried.frame = "failed"; }
		return Object.entries(tried).map((e) => e.join(" ")).join(", ");
	})()`)
	want := "fetch failed, post failed, script failed, image failed, socket failed, frame failed"
	if got != `"`+want+`"` {
		t.Errorf("another site tries %s", got)
	}
	load("document.querySelector('a').click()")
	if got := evaluate("location.href"); got != `"`+base+`/"` {
		t.Errorf("its link leads to %s", got)
	}
	got = evaluate(`new Promise((done) => {
		const s = new WebSocket(location.origin.replace("http", "ws") + "/list");
		s.onopen = () => s.send('{"token":""}');
		s.onmessage = (e) => done(e.data);
		s.onclose = () => done("closed");
	})`)
	if !strings.Contains(got, `\"control\":true`) {
		t.Errorf("our own page gets %s", got)
	}
}
