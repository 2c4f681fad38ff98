package virtual

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/takeover"
)

// takePrivate has a person take control in private.
func (p *peer) takePrivate(holder string) {
	p.must("", "Btools.take", map[string]any{"holder": holder, "private": true})
}

// While a person is private all commands of clients wait, answers under way are withheld, and others see nothing.
func TestPrivateWithholds(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	agent, other := connect(t, s, ""), person(t, s, "ben")
	page := agent.pages()[0]
	at := agent.attach(page)
	agent.must(at, "Runtime.enable", nil)
	agent.begin(at, "Runtime.evaluate", map[string]any{"expression": "new Promise((done) => { window.finish = done })",
		"awaitPromise": true})
	anna := person(t, s, "anna")
	mine, seen := anna.attach(page), other.attach(page)
	anna.takePrivate("anna-anna-anna-anna")
	anna.event("Btools.control", `"you":true,"private":true`)
	if got := string(agent.next()); !strings.Contains(got, "in private; the answer is withheld") {
		t.Errorf("the script under way: %s", got)
	}
	agent.event("Btools.private", `"since"`)
	anna.must(mine, "Runtime.evaluate", map[string]any{"expression": "finish('secret'); console.log('secret')"})
	agent.must("", "Browser.getVersion", nil)
	for method, at := range map[string]string{"Target.getTargets": "", "Accessibility.getFullAXTree": seen} {
		if got := string(other.call(at, method, nil)); !strings.Contains(got, "in private; nothing was done") {
			t.Errorf("another person gets by %s %s", method, got)
		}
	}
	began := time.Now()
	agent.begin(at, "Page.getLayoutMetrics", nil)
	if got := string(agent.next()); time.Since(began) < takeover.Patience || !strings.Contains(got,
		"in private; nothing was done") {
		t.Errorf("a command that reads: %s", got)
	}
	agent.begin(at, "Runtime.evaluate", map[string]any{"expression": "1 + 1"})
	anna.must("", "Btools.give", nil)
	if got := string(agent.next()); !strings.Contains(got, `"value":2`) || strings.Contains(got, "secret") {
		t.Errorf("the first message afterwards: %s", got)
	}
	agent.must(at, "Runtime.disable", nil)
	agent.must(at, "Runtime.enable", nil) // which tells what the console has kept
	agent.begin(at, "Runtime.evaluate", map[string]any{"expression": "'last'"})
	for got := ""; !strings.Contains(got, "last"); {
		if got = string(agent.next()); strings.Contains(got, "secret") {
			t.Errorf("the client gets %s", got)
		}
	}
}

// What pages are there is told afterwards, in order, with origins alone.
func TestPrivateStructure(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	agent := connect(t, s, "")
	agent.must("", "Target.setDiscoverTargets", map[string]any{"discover": true})
	agent.must("", "Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true,
		"flatten": true})
	anna := person(t, s, "anna")
	anna.must("", "Target.setDiscoverTargets", map[string]any{"discover": true})
	anna.takePrivate("anna-anna-anna-anna")
	opened := jsonrpc.GetString(anna.must("", "Target.createTarget", map[string]any{"url": "about:blank#secret"}),
		"targetId")
	tab := anna.attach(opened)
	anna.must(tab, "Runtime.evaluate", map[string]any{"expression": `document.title = "secret"`}) // it is not paused
	anna.must("", "Target.closeTarget", map[string]any{"targetId": opened})
	anna.event("Target.targetDestroyed", opened)
	stays := jsonrpc.GetString(anna.must("", "Target.createTarget", map[string]any{"url": "about:blank"}), "targetId")
	anna.must("", "Btools.give", nil)
	var got []string
	var at string
	agent.begin("", "Target.getTargetInfo", map[string]any{"targetId": stays})
	for done := false; !done; {
		m := agent.next()
		method, info := jsonrpc.GetString(m, "method"), jsonrpc.Get(m, "params", "targetInfo")
		id := jsonrpc.GetString(info, "targetId") + jsonrpc.GetString(m, "params", "targetId")
		done = method == ""
		if strings.Contains(string(m), "secret") {
			t.Errorf("%s", m)
		}
		for name, target := range map[string]string{"opened": opened, "stays": stays} {
			if id == target && method != "Target.targetInfoChanged" {
				got = append(got, fmt.Sprint(strings.TrimPrefix(method, "Target."), " ", name))
				if name == "stays" && method == "Target.attachedToTarget" {
					at = jsonrpc.GetString(m, "params", "sessionId")
				}
			}
		}
	}
	want := "targetCreated opened,attachedToTarget opened,targetDestroyed opened,targetCreated stays," +
		"attachedToTarget stays"
	if all := strings.ReplaceAll(strings.Join(got, ","), "detachedFromTarget opened,", ""); all != want {
		t.Errorf("the client is told %s", strings.Join(got, ","))
	}
	agent.must(at, "Runtime.evaluate", map[string]any{"expression": "1"})
}

// A page that does not answer when the session is given back holds nobody up, and what it says of the time before comes
// never; a person may take control in private again, and give up that alone.
func TestPrivateOfBusyPage(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	agent := connect(t, s, "")
	page := agent.pages()[0]
	at := agent.attach(page)
	agent.must(at, "Runtime.enable", nil)
	anna := person(t, s, "anna")
	mine := anna.attach(page)
	anna.takePrivate("anna-anna-anna-anna")
	anna.must(mine, "Runtime.evaluate", map[string]any{"expression": `setTimeout(() => {
		for (const end = Date.now() + 1000; Date.now() < end;); console.log("secret") }, 0); setTimeout(() => {}, 0)`})
	began := time.Now()
	anna.must("", "Btools.give", nil)
	if took := time.Since(began); took > 700*time.Millisecond {
		t.Errorf("to give back took %v", took)
	}
	agent.must("", "Target.getTargets", nil)
	agent.must(at, "Runtime.evaluate", map[string]any{"expression": "1"})
	anna.takePrivate("anna-anna-anna-anna")
	anna.must("", "Btools.take", map[string]any{"holder": "anna-anna-anna-anna", "private": false})
	agent.must(at, "Page.getLayoutMetrics", nil)
	anna.must("", "Btools.give", nil)
	agent.begin(at, "Runtime.evaluate", map[string]any{"expression": "console.log('last')"})
	for got := ""; !strings.Contains(got, "last"); {
		if got = string(agent.next()); strings.Contains(got, "secret") {
			t.Errorf("the client gets %s", got)
		}
	}
}

// Up to 4 MiB of events come in order; the client for which they are more is disconnected.
func TestPrivateKeeps(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	agent := connect(t, s, "")
	agent.must("", "Browser.getVersion", nil)
	anna := person(t, s, "anna")
	anna.takePrivate("anna-anna-anna-anna")
	happens := func(n int) {
		for _, k := range s.clients.every(false) {
			k.toClient.Put(wire.Event("", "Page.frameAttached", map[string]any{"frameId": fmt.Sprint(n,
				strings.Repeat("x", 1<<20-200))}))
		}
	}
	for n := range 4 {
		happens(n)
	}
	agent.event("Btools.private", "")
	anna.must("", "Btools.give", nil)
	for n := range 4 {
		if got := jsonrpc.GetString(agent.next(), "params", "frameId"); !strings.HasPrefix(got, fmt.Sprint(n, "x")) {
			t.Errorf("the %dth event is %.20s", n, got)
		}
	}
	anna.takePrivate("anna-anna-anna-anna")
	for n := range 5 {
		happens(n)
	}
	until(t, "the client is disconnected", func() bool { return s.Stats().Clients == 0 })
	anna.must("", "Btools.give", nil)
}
