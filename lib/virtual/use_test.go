package virtual

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
)

// A session is in use while a client waits for an answer or a download runs;
// what a page does by itself is no use.
func TestUse(t *testing.T) {
	t.Parallel()
	b := openShell(t)
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/file" {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<a id=a href=/file download>file</a>`)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		fmt.Fprint(w, strings.Repeat("x", 4<<10))
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
		fmt.Fprint(w, "x")
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	s := newSession(t, b, Options{})
	isIdle := func() bool {
		u := s.Used()
		time.Sleep(time.Millisecond)
		return s.Used().Equal(u)
	}
	p, page := attached(t, s)
	p.must(page, "Page.enable", nil)
	p.must(page, "Page.navigate", map[string]any{"url": server.URL})
	p.event("Page.loadEventFired", "")
	until(t, "all is answered", isIdle)

	// The page's own events.
	p.must(page, "Runtime.enable", nil)
	p.must(page, "Runtime.evaluate", map[string]any{"expression": `setInterval(() => console.log("tick"), 5)`})
	until(t, "all is answered", isIdle)
	used := s.Used()
	for range 5 {
		p.event("Runtime.consoleAPICalled", "tick")
		p.events = nil
	}
	if !s.Used().Equal(used) {
		t.Error("events of a page are use")
	}

	// A command without an answer.
	p.last++
	waiting := p.last
	p.conn.Write(wire.Command(string(jsonID(waiting)), page, "Runtime.evaluate",
		map[string]any{"expression": "new Promise(done => finish = done)", "awaitPromise": true}))
	until(t, "the session is busy", func() bool { return s.isBusy() })
	if _, err := s.Snapshot(t.Context(), false); err != ErrBusy {
		t.Errorf("a session in use is saved for hibernation: %v", err)
	}
	if saved, err := s.Snapshot(t.Context(), true); err != nil || len(saved.Tabs) == 0 {
		t.Errorf("a session in use is not saved for the last time: %+v, %v", saved, err)
	}
	p.must(page, "Runtime.evaluate", map[string]any{"expression": "0"}) // which is sent after it
	if isIdle() {
		t.Error("a session is idle while a client waits for an answer")
	}
	p.must(page, "Runtime.evaluate", map[string]any{"expression": "setTimeout(finish, 50)"})
	until(t, "it is answered", isIdle)

	// The same, and its CDP session ends.
	p.last++
	p.conn.Write(wire.Command(string(jsonID(p.last)), page, "Runtime.evaluate",
		map[string]any{"expression": "new Promise(() => {})", "awaitPromise": true}))
	until(t, "the session is busy", func() bool { return s.isBusy() })
	p.must("", "Target.detachFromTarget", map[string]any{"sessionId": page})
	until(t, "nothing is waited for any more", isIdle)

	// A download.
	target := p.pages()[0]
	page = jsonrpc.GetString(p.must("", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}),
		"sessionId")
	p.must("", "Browser.setDownloadBehavior",
		map[string]any{"behavior": "allowAndName", "downloadPath": t.TempDir(), "eventsEnabled": true})
	p.must(page, "Runtime.evaluate", map[string]any{"expression": "document.getElementById('a').click()"})
	p.event("Browser.downloadWillBegin", "")
	if isIdle() || !b.Used().After(used) {
		t.Error("a session is idle while it downloads a file")
	}
	close(release)
	until(t, "the file is there", isIdle)
	used = s.Used()
	s.stop(ErrEnded)
	<-s.life.finished
	if !b.Used().Equal(used) {
		t.Errorf("the last use was at %v, and after the end of the session it is %v", used, b.Used())
	}
}

func TestUnanswered(t *testing.T) {
	t.Parallel()
	var u unanswered
	for id, session := range map[string]string{"1": "", "2": "a", "3": "a"} {
		u.add(policy.Command{ID: []byte(id), Session: session}, true)
	}
	if u.drop(7) || !u.drop(1) || u.drop(1) || !u.any() {
		t.Error("an answer belongs to another command")
	}
	u.dropSession("a")
	if u.any() {
		t.Error("the commands of a CDP session that has ended are waited for")
	}
}
