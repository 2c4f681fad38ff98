package virtual

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/virtual/takeover"
	"btools/lib/websocket"
)

// A person sees the pages of a session, does nothing in them, and nobody notices.
func TestPersonSees(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	agent := connect(t, s, "")
	agent.must("", "Target.setDiscoverTargets", map[string]any{"discover": true})
	page := agent.pages()[0]
	used := s.Used()
	server, client := websocket.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.Attach(t.Context(), server, Person{Who: "anna"}) }()
	p := &peer{t: t, conn: client}
	at := p.attach(page)
	p.must(at, "Page.startScreencast", map[string]any{"format": "jpeg", "quality": 60, "sendLastFrame": true})
	frame := p.event("Page.screencastFrame", "")
	if data := jsonrpc.GetString(frame, "params", "data"); len(data) < 100 {
		t.Errorf("the frame has %d bytes", len(data))
	}
	for _, method := range []string{"Input.dispatchMouseEvent", "Runtime.evaluate", "Page.navigate", "Target.closeTarget",
		"Target.createTarget", "Page.bringToFront", "Network.enable", "Fetch.enable"} {
		got := p.call(at, method, map[string]any{"targetId": page})
		if !strings.Contains(string(got), `"error"`) {
			t.Errorf("%s: %s", method, got)
		}
	}
	if st := s.Stats(); st.Clients != 1 || s.Used() != used {
		t.Errorf("%d clients, used %v later", st.Clients, s.Used().Sub(used))
	}
	client.Close(websocket.Normal, "")
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the view goes on")
	}
	agent.must("", "Browser.getVersion", nil)
}

// While a person has control no command of a client acts; afterwards those that wait do, in their order.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	agent := connect(t, s, "")
	at := agent.attach(agent.pages()[0])
	agent.must(at, "Runtime.evaluate", map[string]any{"expression": "window.all = []"})
	if err := s.Take("anna", "Anna", false); err != nil {
		t.Fatal(err)
	}
	if err := s.Take("ben", "Ben", false); err == nil {
		t.Error("two have control")
	}
	agent.must(at, "Page.getLayoutMetrics", nil) // reads
	began := time.Now()
	got := agent.call(at, "Runtime.evaluate", map[string]any{"expression": "all.push(0)"})
	if took := time.Since(began); took < takeover.Patience || !strings.Contains(string(got),
		"a person has control of this session since ") {
		t.Errorf("after %v: %s", took, got)
	}
	for n := 1; n < 10; n++ {
		agent.begin(at, "Runtime.evaluate", map[string]any{"expression": fmt.Sprintf("all.push(%d)", n)})
	}
	agent.begin(at, "Page.getLayoutMetrics", nil) // comes behind them
	s.Give("anna")
	got = agent.must(at, "Runtime.evaluate", map[string]any{"expression": "all.join()"})
	if all := jsonrpc.GetString(got, "result", "value"); all != "1,2,3,4,5,6,7,8,9" {
		t.Errorf("done is %s", all)
	}
}
