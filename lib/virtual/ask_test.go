package virtual

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/virtual/takeover"
)

// asks has a client ask a person by a connection of its own, and returns what gets the answer.
func asks(t *testing.T, s *Session, params map[string]any) (answer chan string) {
	t.Helper()
	p, answer := connect(t, s, ""), make(chan string, 1)
	go func() { answer <- string(p.call("", "Btools.requestHuman", params)) }()
	return answer
}

// A person is told what a client asks, at once or when it comes, and the client gets what becomes of it. There is one
// ask at a time, and six an hour.
func TestAsk(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	page := connect(t, s, "").pages()[0]
	early := person(t, s, "ben")
	early.event("Btools.asked", `"private":false`)
	answer := asks(t, s, map[string]any{"instructions": "Log in to shop", "until": "text=Welcome"})
	early.event("Btools.asked", `"private":true`)
	anna := person(t, s, "anna")
	told := anna.event("Btools.asked", "Log in to shop")
	if got := jsonrpc.GetString(told, "params", "until"); got != "text=Welcome" || s.Stats().Ask == nil {
		t.Errorf("she is told %s", told)
	}
	other := connect(t, s, "")
	got := string(other.call("", "Btools.requestHuman", map[string]any{"instructions": "And this"}))
	if !strings.Contains(got, "one ask at a time") {
		t.Errorf("a second ask: %s", got)
	}
	watcher := personAs(t, s, Person{Who: "watcher", View: true})
	for _, p := range []*peer{other, watcher} { // neither the agent itself, nor who may look only
		for method, params := range map[string]any{"Btools.give": map[string]any{"outcome": "declined"},
			"Btools.take": map[string]any{"holder": "anna-anna-anna-anna"}} {
			if got := string(p.call("", method, params)); !strings.Contains(got, `"error"`) {
				t.Errorf("%s is answered with %s", method, got)
			}
		}
	}
	anna.take("anna-anna-anna-anna")
	anna.must("", "Btools.give", map[string]any{"note": "as Anna", "targetId": page})
	if got := <-answer; !strings.Contains(got, `"result":{"outcome":"done","note":"as Anna","url":"about:blank"}`) {
		t.Errorf("the client gets %s", got)
	}
	early.event("Btools.asked", `{"private":false}`)
	for n := range 4 {
		answer := asks(t, s, map[string]any{"instructions": fmt.Sprint("ask ", n)})
		anna.event("Btools.asked", fmt.Sprint("ask ", n))
		anna.must("", "Btools.give", map[string]any{"outcome": "declined"})
		if got := <-answer; !strings.Contains(got, `"outcome":"declined"`) {
			t.Errorf("the client gets %s", got)
		}
	}
	answer = asks(t, s, map[string]any{"instructions": "quick", "timeoutMs": 1})
	if got := <-answer; !strings.Contains(got, `"outcome":"timeout"`) {
		t.Errorf("out of time: %s", got)
	}
	if got := string(other.call("", "Btools.requestHuman", map[string]any{"instructions": "?"})); !strings.Contains(got,
		"6 times") {
		t.Errorf("the seventh: %s", got)
	}
}

// An ask ends with the connection of its client, and with the session.
func TestAskEnds(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	anna := person(t, s, "anna")
	anna.event("Btools.asked", `{"private":false}`)
	gone := connect(t, s, "")
	gone.begin("", "Btools.requestHuman", map[string]any{"instructions": "never mind"})
	anna.event("Btools.asked", "never mind")
	gone.conn.Close(1000, "")
	anna.event("Btools.asked", `{"private":false}`)
	answered := make(chan answer, 1)
	go func() {
		await, err := s.lock.ask(takeover.Ask{Instructions: "log in"})
		if err != nil {
			t.Error(err)
			return
		}
		answered <- await(t.Context())
	}()
	anna.event("Btools.asked", "log in")
	for _, bad := range []map[string]any{{}, {"instructions": strings.Repeat("x", 1<<20)},
		{"instructions": "x", "until": "login"}, {"instructions": "x", "timeoutMs": -1}} {
		if got := string(anna.call("", "Btools.requestHuman", bad)); !strings.Contains(got, "-32602") {
			t.Errorf("%v: %s", bad, got)
		}
	}
	if got := string(anna.call("", "Btools.give", map[string]any{"outcome": "done"})); !strings.Contains(got,
		"do not have control") {
		t.Errorf("done without control: %s", got)
	}
	s.stop(ErrEnded)
	if got := <-answered; got.Outcome != failed || got.Note == "" {
		t.Errorf("the session has ended: %+v", got)
	}
}

// An ask is told before its answer, however soon that comes: else persons would see what is not asked any more.
func TestAskIsToldFirst(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	var told []string
	s.TellControl(func(event, _ string) { told = append(told, event) })
	anna := person(t, s, "anna")
	anna.event("Btools.asked", `{"private":false}`)
	await, err := s.lock.ask(takeover.Ask{Instructions: "log in"})
	if err != nil {
		t.Fatal(err)
	}
	s.lock.answer(s.lock.askOpen(), answer{Outcome: done})
	if got := await(t.Context()); got.Outcome != done || fmt.Sprint(told) != "[asked answered]" {
		t.Errorf("%+v after it is told %s", got, told)
	}
	anna.event("Btools.asked", "log in")
	anna.event("Btools.asked", `{"private":false}`)
}

// A person whose computer sleeps for an hour has lost control, not the ask: clients go on, and the person takes control
// again and answers.
func TestAskOutlivesControl(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	agent := connect(t, s, "")
	anna := person(t, s, "anna")
	answer := asks(t, s, map[string]any{"instructions": "log in", "timeoutMs": 7_200_000})
	anna.event("Btools.asked", "log in")
	anna.take("anna-anna-anna-anna")
	s.lock.mu.Lock()
	s.lock.hold.Use(time.Now().Add(-time.Hour)) // it was awake
	s.lock.mu.Unlock()
	s.lock.end()
	agent.must("", "Target.getTargets", nil)
	if got := string(anna.call("", "Btools.give", nil)); !strings.Contains(got, "do not have control") {
		t.Errorf("she gives back: %s", got)
	}
	anna.take("anna-anna-anna-anna")
	anna.must("", "Btools.give", map[string]any{"note": "awake"})
	if got := <-answer; !strings.Contains(got, `"note":"awake"`) {
		t.Errorf("the client gets %s", got)
	}
}
