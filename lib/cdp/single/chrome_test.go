package single

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/cdp"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/chrometest"
	"btools/lib/websocket"
)

// TestChrome is on one browser; no part leaves a context.
func TestChrome(t *testing.T) {
	t.Parallel()
	url, _ := chrometest.StartShell(t)
	for name, part := range map[string]func(*testing.T, string){
		"frees connections": freesConnections, "resumes targets": resumesTargets, "page": likeAPage,
		"session not found": noSuchSession, "large results": largeResults,
	} {
		t.Run(name, func(t *testing.T) { part(t, url) })
	}
}

// share returns what shares a Chrome, and a connection beside that sees what is left of
// it.
func share(t *testing.T, url string) (*Browser, *cdp.Conn) {
	t.Helper()
	b := New(func(ctx context.Context) (*websocket.Conn, error) { return websocket.Dial(ctx, url) })
	t.Cleanup(b.Close)
	beside, err := cdp.Dial(t.Context(), url, func(cdp.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(beside.Close)
	until(t, "no context is left of another test", func() bool { return len(contexts(t, beside)) == 0 })
	return b, beside
}

// call sends a command and returns the result; what comes before the answer goes
// to events.
func (p *peer) call(session, method, params string) json.RawMessage {
	p.t.Helper()
	p.last++
	at := ""
	if session != "" {
		at = fmt.Sprintf(`,"sessionId":%q`, session)
	}
	p.say(fmt.Sprintf(`{"id":%d,"method":%q,"params":%s%s}`, p.last, method, params, at))
	for {
		b := p.hear()
		if strings.HasPrefix(b, fmt.Sprintf(`{"id":%d,`, p.last)) {
			if e := jsonrpc.Get([]byte(b), "error"); e != nil {
				p.t.Fatalf("%s: %s", method, e)
			}
			return jsonrpc.Get([]byte(b), "result")
		}
		p.events = append(p.events, b)
	}
}

// event waits for an event and returns its params.
func (p *peer) event(method string) json.RawMessage {
	p.t.Helper()
	head := fmt.Sprintf(`{"method":%q`, method)
	for i := 0; ; i++ {
		if i == len(p.events) {
			p.events = append(p.events, p.hear())
		}
		if b := p.events[i]; strings.HasPrefix(b, head) {
			p.events = p.events[i+1:]
			return jsonrpc.Get([]byte(b), "params")
		}
	}
}

// newTab opens a page in a context of the client, and attaches to it.
func (p *peer) newTab(context string) (target, session string) {
	p.t.Helper()
	target = jsonrpc.GetString(p.call("", "Target.createTarget",
		fmt.Sprintf(`{"url":"about:blank","browserContextId":%q}`, context)), "targetId")
	return target, jsonrpc.GetString(p.call("", "Target.attachToTarget",
		fmt.Sprintf(`{"targetId":%q,"flatten":true}`, target)), "sessionId")
}

func (p *peer) newContext() string {
	p.t.Helper()
	return jsonrpc.GetString(p.call("", "Target.createBrowserContext", `{"disposeOnDetach":true}`), "browserContextId")
}

// contexts returns the browser contexts that there are.
func contexts(t *testing.T, c *cdp.Conn) (all []string) {
	t.Helper()
	var got struct{ BrowserContextIDs []string }
	if err := c.Call(t.Context(), "", "Target.getBrowserContexts", nil, &got); err != nil {
		t.Fatal(err)
	}
	return got.BrowserContextIDs
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// Chrome frees what it keeps for a connection when that ends, and nothing of
// another one.
func freesConnections(t *testing.T, url string) {
	b, beside := share(t, url)
	one, two := dial(t, b, ""), dial(t, b, "")
	mine, others := one.newContext(), two.newContext()
	target, _ := one.newTab(mine)
	_, session := two.newTab(others)
	if all := contexts(t, beside); len(all) != 2 {
		t.Errorf("the contexts are %v", all)
	}
	one.conn.Close(websocket.Normal, "")
	until(t, "the context of the client that has left is gone", func() bool {
		all := contexts(t, beside)
		return len(all) == 1 && all[0] == others
	})
	if _, err := b.Dial(t.Context(), target); err == nil {
		t.Error("its page is still there")
	}
	if got := two.call(session, "Runtime.evaluate", `{"expression":"6*7"}`); jsonrpc.GetString(got, "result",
		"description") != "42" {
		t.Errorf("the other client: %s", got)
	}
}

// A target that waits for a client resumes when that is gone, and new ones wait
// no more.
func resumesTargets(t *testing.T, url string) {
	b, beside := share(t, url)
	p := dial(t, b, "")
	p.call("", "Target.setAutoAttach", `{"autoAttach":true,"waitForDebuggerOnStart":true,"flatten":true}`)
	var made struct{ TargetID string }
	const page = "data:text/html,<title>ran</title>"
	err := beside.Call(t.Context(), "", "Target.createTarget", map[string]any{"url": page, "newWindow": true}, &made)
	if err != nil {
		t.Fatal(err)
	}
	title := func(target string) string {
		var got struct {
			TargetInfos []struct{ TargetID, Title string }
		}
		if err := beside.Call(t.Context(), "", "Target.getTargets", nil, &got); err != nil {
			t.Fatal(err)
		}
		for _, i := range got.TargetInfos {
			if i.TargetID == target {
				return i.Title
			}
		}
		return ""
	}
	for {
		params := p.event("Target.attachedToTarget")
		if jsonrpc.GetString(params, "targetInfo", "targetId") == made.TargetID {
			if string(jsonrpc.Get(params, "waitingForDebugger")) != "true" {
				t.Errorf("the page does not wait: %s", params)
			}
			break
		}
	}
	if got := title(made.TargetID); got == "ran" {
		t.Error("the page runs before its client says so")
	}
	p.conn.Close(websocket.Normal, "")
	until(t, "the page runs", func() bool { return title(made.TargetID) == "ran" })
	err = beside.Call(t.Context(), "", "Target.createTarget", map[string]any{"url": page}, &made)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the next page runs", func() bool { return title(made.TargetID) == "ran" })
}

// A connection to a page works as one of Chrome's, up to the end of the page.
func likeAPage(t *testing.T, url string) {
	b, _ := share(t, url)
	p := dial(t, b, "")
	target, _ := p.newTab(p.newContext())
	at, _, _ := strings.Cut(url, "browser/")
	conn, err := websocket.Dial(t.Context(), at+"page/"+target)
	if err != nil {
		t.Fatal(err)
	}
	direct, page := &peer{t: t, conn: conn}, dial(t, b, target)
	for _, p := range []*peer{direct, page} {
		p.call("", "Page.enable", "{}")
	}
	page.call("", "Page.navigate", `{"url":"data:text/html,<title>page</title>"}`)
	for _, p := range []*peer{direct, page} {
		p.event("Page.loadEventFired")
		if got := p.call("", "Runtime.evaluate", `{"expression":"document.title"}`); jsonrpc.GetString(got, "result",
			"value") != "page" {
			t.Errorf("the title: %s", got)
		}
	}
	p.call("", "Target.closeTarget", fmt.Sprintf(`{"targetId":%q}`, target))
	if a, b := direct.rest(), page.rest(); a != b {
		t.Errorf("at its end\nby Chrome: %s\nshared:    %s", a, b)
	}
}

// rest returns what comes until the end of the connection, other than about
// frames.
func (p *peer) rest() (all string) {
	late := time.AfterFunc(patience, func() { p.conn.Close(websocket.Normal, "") })
	for {
		m, err := p.conn.Next()
		if err != nil {
			if !late.Stop() {
				p.t.Fatal("the connection does not end")
			}
			return all
		}
		b, _ := m.Bytes()
		if !strings.HasPrefix(string(b), `{"method":"Page.`) {
			all += string(b) + "\n"
		}
	}
}

// Chrome itself answers as the connection does for a session of another one, so
// that nobody sees the difference; and a command that meets the end of its
// session is answered or the end is told.
func noSuchSession(t *testing.T, url string) {
	conn, err := websocket.Dial(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(websocket.Normal, "")
	direct := &peer{t: t, conn: conn}
	b := New(func(ctx context.Context) (*websocket.Conn, error) { return websocket.Dial(ctx, url) })
	defer b.Close()
	shared := dial(t, b, "")
	for _, message := range []string{
		`{"id":1,"method":"Runtime.evaluate","sessionId":"0123456789ABCDEF0123456789ABCDEF"}`,
		`{"id":2,"method":"No.such"}`, `{"method":"Browser.getVersion"}`, `{"id":3}`, `[]`,
		`{"id":4,"method":"Target.detachFromTarget","params":{"sessionId":"0123456789ABCDEF0123456789ABCDEF"}}`,
		`{"id":5,"method":"Browser.getVersion","more":1}`,
	} {
		if a, b := direct.ask(message), shared.ask(message); a != b {
			t.Errorf("%s\nby Chrome: %s\nshared:    %s", message, a, b)
		}
	}
}

// Results of 3 MB of several pages at once arrive whole and in order, and short
// ones of another page are not held up for long.
func largeResults(t *testing.T, url string) {
	b, _ := share(t, url)
	var work sync.WaitGroup
	for range 3 {
		p := dial(t, b, "")
		_, session := p.newTab(p.newContext())
		work.Go(func() {
			for i := range 4 {
				p.say(fmt.Sprintf(`{"id":%d,"method":"Runtime.evaluate","params":{"expression":"'x'.repeat(%d)"},`+
					`"sessionId":%q}`, 1000+i, 3_000_000*(i%2)+1, session))
			}
			for i := range 4 {
				got := p.hear()
				want := fmt.Sprintf(`{"id":%d,`, 1000+i)
				if size := 3_000_000*(i%2) + 1; !strings.HasPrefix(got, want) || strings.Count(got, "x") < size {
					t.Errorf("answer %d is %.40s, of %d bytes", i, got, len(got))
				}
			}
		})
	}
	p := dial(t, b, "")
	_, session := p.newTab(p.newContext())
	var longest time.Duration
	for range 100 {
		began := time.Now()
		p.call(session, "Runtime.evaluate", `{"expression":"1"}`)
		longest = max(longest, time.Since(began))
	}
	work.Wait()
	t.Logf("the longest that a short command took: %v", longest)
}
