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
	p := person(t, s, "anna")
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
	agent.must("", "Browser.getVersion", nil)
}

// person attaches to a session as somebody who looks at it.
func person(t *testing.T, s *Session, who string) *peer {
	t.Helper()
	server, client := websocket.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Attach(t.Context(), server, Person{Who: who})
	}()
	t.Cleanup(func() {
		client.Close(websocket.Normal, "")
		<-done
	})
	return &peer{t: t, conn: client}
}

// take has a person take control, by a name of 16 characters.
func (p *peer) take(holder string) {
	p.must("", "Btools.take", map[string]any{"holder": holder})
}

// logsInput fills the page with a button, and notes what becomes of it.
const logsInput = `window.log = []; document.body.innerHTML = "<button style='position: fixed; inset: 0'>buy</button>";
	for (const type of ["mousedown", "mouseup", "keydown", "keyup"])
		addEventListener(type, (event) => log.push(type + (event.key || "")), true);
	document.querySelector("button").onclick = () => log.push("bought")`

// Neither a client nor a person leaves a button or a key held when control changes, and nothing is clicked by that.
func TestTakeOverReleases(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	agent := connect(t, s, "")
	page := agent.pages()[0]
	at := agent.attach(page)
	agent.must(at, "Runtime.evaluate", map[string]any{"expression": logsInput})
	down := func(p *peer, at string) {
		p.must(at, "Input.dispatchMouseEvent", map[string]any{"type": "mousePressed", "x": 20, "y": 20,
			"button": "left", "buttons": 1, "clickCount": 1})
		p.must(at, "Input.dispatchKeyEvent", map[string]any{"type": "rawKeyDown", "key": "Shift", "code": "ShiftLeft",
			"windowsVirtualKeyCode": 16})
	}
	log := func() string {
		got := agent.must(at, "Runtime.evaluate", map[string]any{"expression": "log.splice(0).join()"})
		return jsonrpc.GetString(got, "result", "value")
	}
	const want = "mousedown,keydownShift,keyupShift,mouseup"
	down(agent, at)
	anna := person(t, s, "anna")
	anna.take("anna-anna-anna-anna")
	s.Give("anna-anna-anna-anna")
	if got := log(); got != want {
		t.Errorf("of the client the page has %s", got)
	}
	anna.take("anna-anna-anna-anna")
	down(anna, anna.attach(page))
	anna.must("", "Btools.give", nil)
	if got := log(); got != want {
		t.Errorf("of the person the page has %s", got)
	}
	anna.take("anna-anna-anna-anna")
	down(anna, anna.attach(page))
	anna.conn.Close(websocket.Normal, "")
	for end := time.Now().Add(patience); s.seen.Load() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the person's connection goes on")
		}
	}
	if !s.Give("anna-anna-anna-anna") {
		t.Error("a lost connection ends control at once")
	}
	if got := log(); got != want {
		t.Errorf("of the person that is gone the page has %s", got)
	}
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

// Of more commands than may wait the last is refused at once, and a client that leaves takes its own with it.
func TestTakeOverManyWait(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	agent, other := connect(t, s, ""), connect(t, s, "")
	at, atOther := agent.attach(agent.pages()[0]), other.attach(agent.pages()[0])
	agent.must(at, "Runtime.evaluate", map[string]any{"expression": "window.all = 0"})
	anna := person(t, s, "anna")
	anna.take("anna-anna-anna-anna")
	for range takeover.MaxWaiting {
		other.begin(atOther, "Runtime.evaluate", map[string]any{"expression": "all++"})
	}
	if got := other.call(atOther, "Runtime.evaluate", map[string]any{"expression": "all++"}); !strings.Contains(
		string(got), takeover.ErrTooMany.Error()) {
		t.Errorf("one too many: %s", got)
	}
	other.conn.Close(websocket.Normal, "")
	for end := time.Now().Add(patience); s.Stats().Clients > 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the client's connection goes on")
		}
	}
	agent.begin("", "Btools.waitUntilFree", nil)
	anna.must("", "Btools.give", nil)
	if got := agent.must(at, "Runtime.evaluate", map[string]any{"expression": "all"}); string(jsonrpc.Get(got, "result",
		"value")) != "0" {
		t.Errorf("after its client had left: %s", got)
	}
}
