package virtual

import (
	"encoding/base64"
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
	until(t, "all is answered", func() bool { return !s.isBusy() })
	used := s.Used()
	p := person(t, s, "anna")
	at := p.attach(page)
	p.must(at, "Page.startScreencast", map[string]any{"format": "jpeg", "quality": 60, "sendLastFrame": true})
	frame := p.event("Page.screencastFrame", "")
	if data := jsonrpc.GetString(frame, "params", "data"); len(data) < 100 {
		t.Errorf("the frame has %d bytes", len(data))
	}
	if tree := p.must(at, "Accessibility.getFullAXTree", nil); !strings.Contains(string(tree), "RootWebArea") {
		t.Errorf("the outline is %s", tree)
	}
	for _, method := range []string{"Input.dispatchMouseEvent", "Runtime.evaluate", "Page.navigate",
		"Target.closeTarget", "DOM.focus", "DOM.describeNode", "DOM.scrollIntoViewIfNeeded", "Accessibility.enable",
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

// A person who comes when a dialog is open is told of it, and answers it.
func TestPersonAnswers(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	agent := connect(t, s, "")
	page := agent.pages()[0]
	at := agent.attach(page)
	agent.must(at, "Page.enable", nil)
	agent.must(at, "Runtime.evaluate", map[string]any{
		"expression": `setTimeout(() => { window.answer = prompt("name?", "nobody") }, 0)`})
	agent.event("Page.javascriptDialogOpening", "name?")
	anna := person(t, s, "anna")
	seen := anna.attach(page)
	anna.conn.Write(fmt.Appendf(nil, `{"id":90001,"method":"Page.enable","sessionId":%q}`, seen))
	if opened := anna.event("Page.javascriptDialogOpening", "name?"); jsonrpc.GetString(opened, "sessionId") != seen {
		t.Errorf("the person is told %s", opened)
	}
	anna.take("anna-anna-anna-anna")
	anna.must(seen, "Page.handleJavaScriptDialog", map[string]any{"accept": true, "promptText": "Anna"})
	anna.event("Page.javascriptDialogClosed", "")
	anna.must("", "Btools.give", nil)
	if got := string(agent.must(at, "Runtime.evaluate", map[string]any{"expression": "answer"})); !strings.Contains(got,
		`"Anna"`) {
		t.Errorf("the page has %s", got)
	}
}

// until waits until something is so.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// person attaches to a session as somebody who looks at it.
func person(t *testing.T, s *Session, who string) *peer {
	t.Helper()
	return personAs(t, s, Person{Who: who})
}

// personAs has a person look at a session in a way.
func personAs(t *testing.T, s *Session, p Person) *peer {
	t.Helper()
	server, client := websocket.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.clients.attach(t.Context(), server, p)
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
	check := func(whose string) {
		const all = `log.length < 4 ? "" : log.splice(0).join()` // Chrome answers a script before an input
		for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			got := jsonrpc.GetString(agent.must(at, "Runtime.evaluate", map[string]any{"expression": all}), "result",
				"value")
			if got == "mousedown,keydownShift,keyupShift,mouseup" {
				return
			} else if got != "" || time.Now().After(end) {
				t.Errorf("of %s the page has %q", whose, got)
				return
			}
		}
	}
	down(agent, at)
	anna := person(t, s, "anna")
	anna.take("anna-anna-anna-anna")
	s.lock.give("anna-anna-anna-anna")
	check("the client")
	anna.take("anna-anna-anna-anna")
	down(anna, anna.attach(page))
	anna.must("", "Btools.give", nil)
	check("the person")
	anna.take("anna-anna-anna-anna")
	down(anna, anna.attach(page))
	anna.conn.Close(websocket.Normal, "")
	until(t, "the person's connection has ended", func() bool { return s.clients.seen.Load() == 0 })
	if !s.lock.give("anna-anna-anna-anna") {
		t.Error("a lost connection ends control at once")
	}
	check("the person that is gone")
}

// A person whose page is loaded again keeps control, also if the end of the old connection is noticed later.
func TestTakeOverAgain(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	old := person(t, s, "anna")
	old.take("anna-anna-anna-anna")
	anna := person(t, s, "anna")
	anna.take("anna-anna-anna-anna")
	old.conn.Close(websocket.Normal, "")
	until(t, "the old connection has ended", func() bool { return s.clients.seen.Load() == 1 })
	s.lock.mu.Lock()
	ends := s.lock.hold.Ends()
	s.lock.mu.Unlock()
	if left := time.Until(ends); left < takeover.Quiet-patience {
		t.Errorf("control ends in %v", left)
	}
	anna.must("", "Btools.give", nil)
}

// While a person has control no command of a client acts; afterwards those that wait do, in their order.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	agent := connect(t, s, "")
	page := agent.pages()[0]
	at := agent.attach(page)
	agent.must(at, "Runtime.evaluate", map[string]any{"expression": "window.all = []"})
	if err := s.lock.takeOver("anna", "Anna", false, false); err != nil {
		t.Fatal(err)
	}
	if err := s.lock.takeOver("ben", "Ben", false, false); err == nil {
		t.Error("two have control")
	}
	agent.must(at, "Page.getLayoutMetrics", nil) // reads
	other := connect(t, s, "")
	atOther := other.attach(page)
	began := time.Now()
	for session, methods := range map[string][]string{
		"": {"Browser.close", "Target.disposeBrowserContext", "Target.closeTarget", "Target.createTarget"},
		atOther: {"Page.close", "Page.navigate", "Storage.clearCookies", "Input.insertText",
			"Page.handleJavaScriptDialog"},
	} {
		for _, method := range methods {
			other.begin(session, method, map[string]any{"targetId": page, "url": "about:blank", "text": "x",
				"accept":           true,
				"browserContextId": s.base})
		}
	}
	got := agent.call(at, "Runtime.evaluate", map[string]any{"expression": "all.push(0)"})
	if took := time.Since(began); took < takeover.Patience || !strings.Contains(string(got),
		"a person has control of this session since ") {
		t.Errorf("after %v: %s", took, got)
	}
	for range 9 {
		if got := other.next(); !strings.Contains(string(got), "; nothing was done") {
			t.Errorf("%s", got)
		}
	}
	for n := 1; n < 10; n++ {
		agent.begin(at, "Runtime.evaluate", map[string]any{"expression": fmt.Sprintf("all.push(%d)", n)})
	}
	agent.begin(at, "Page.getLayoutMetrics", nil) // comes behind them
	s.lock.give("anna")
	got = agent.must(at, "Runtime.evaluate", map[string]any{"expression": "all.join()"})
	if all := jsonrpc.GetString(got, "result", "value"); all != "1,2,3,4,5,6,7,8,9" {
		t.Errorf("done is %s", all)
	}
	if err := s.lock.takeOver("ben", "Ben", false, false); err != nil {
		t.Fatal(err)
	}
	s.used.Store(0)
	if s.lock.give("ben"); time.Since(s.Used()) > time.Minute {
		t.Error("that a person had control was no use of the session")
	}
}

// A command is done once or refused, never both, however near the end of its patience control is given back.
func TestTakeOverInTheLastMoment(t *testing.T) {
	t.Parallel()
	b := sharedBrowser(t)
	agents := map[*peer]string{} // and their CDP sessions
	for _, early := range []time.Duration{50, 5, 1, 0, -1, -5} {
		s := newSession(t, b, Options{})
		agent := connect(t, s, "")
		at := agent.attach(agent.pages()[0])
		agent.must(at, "Runtime.evaluate", map[string]any{"expression": "window.done = 0"})
		if err := s.lock.takeOver("anna", "Anna", false, false); err != nil {
			t.Fatal(err)
		}
		agent.begin(at, "Runtime.evaluate", map[string]any{"expression": "++done"})
		time.AfterFunc(takeover.Patience-early*time.Millisecond, func() { s.lock.give("anna") })
		agents[agent] = at
	}
	for agent, at := range agents {
		answer := string(agent.next())
		got := agent.must(at, "Runtime.evaluate", map[string]any{"expression": "done"})
		done := string(jsonrpc.Get(got, "result", "value"))
		refused := strings.Contains(answer, "; nothing was done")
		if refused != (done == "0") || !refused && done != "1" {
			t.Errorf("done %s times, and the answer is %s", done, answer)
		}
	}
}

// A script that does not end lets a person take control at once, and goes on.
func TestTakeOverDuringScripts(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	agent := connect(t, s, "")
	page := agent.pages()[0]
	at := agent.attach(page)
	agent.begin(at, "Runtime.evaluate", map[string]any{"expression": "new Promise((done) => { window.finish = done })",
		"awaitPromise": true})
	anna := person(t, s, "anna")
	began := time.Now()
	anna.take("anna-anna-anna-anna")
	if took := time.Since(began); took > takeWait/2 {
		t.Errorf("control was taken after %v", took)
	}
	mine := anna.attach(page)
	anna.must(mine, "Runtime.evaluate", map[string]any{"expression": "finish('by anna')"})
	if got := agent.next(); !strings.Contains(string(got), "by anna") {
		t.Errorf("the script ends with %s", got)
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
	until(t, "the client's connection has ended", func() bool { return s.Stats().Clients == 1 })
	agent.begin("", "Btools.waitUntilFree", nil)
	anna.must("", "Btools.give", nil)
	if got := agent.must(at, "Runtime.evaluate", map[string]any{"expression": "all"}); string(jsonrpc.Get(got, "result",
		"value")) != "0" {
		t.Errorf("after its client had left: %s", got)
	}
}

// What pages of the person wait for is done also behind commands that wait: a client continues the requests that it
// intercepts, and the tabs that it sets up.
func TestTakeOverServes(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	agent := connect(t, s, "")
	page := agent.pages()[0]
	at := agent.attach(page)
	agent.must("", "Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true,
		"flatten": true})
	agent.must(at, "Fetch.enable", nil)
	anna := person(t, s, "anna")
	anna.take("anna-anna-anna-anna")
	agent.begin(at, "Runtime.evaluate", map[string]any{"expression": "1"})
	agent.begin("", "Target.createTarget", map[string]any{"url": "about:blank"})

	mine := anna.attach(page)
	anna.begin(mine, "Page.navigate", map[string]any{"url": "http://127.0.0.1:9/"})
	paused := agent.event("Fetch.requestPaused", at)
	agent.must(at, "Fetch.fulfillRequest", map[string]any{"requestId": jsonrpc.GetString(paused, "params", "requestId"),
		"responseCode": 200, "body": base64.StdEncoding.EncodeToString([]byte("<title>mine</title>"))})
	anna.awaitTrue(mine, `document.title === "mine"`)

	anna.begin("", "Target.createTarget", map[string]any{"url": "about:blank"})
	opened := agent.event("Target.attachedToTarget", "")
	for jsonrpc.GetString(opened, "params", "targetInfo", "type") != "page" {
		opened = agent.event("Target.attachedToTarget", "")
	}
	agent.must(jsonrpc.GetString(opened, "params", "sessionId"), "Runtime.runIfWaitingForDebugger", nil)
	tab := anna.attach(jsonrpc.GetString(opened, "params", "targetInfo", "targetId"))
	anna.must(tab, "Runtime.evaluate", map[string]any{"expression": "1"}) // it would wait for a paused one
	anna.must("", "Btools.give", nil)
}
