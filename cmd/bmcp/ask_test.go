//go:build linux

package main_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/live/sources"
	"btools/lib/state"
	"btools/lib/websocket"
)

const askTool = "browser_ask_human"

// host starts a bmcp on a browser for a host with these capabilities.
func host(w *cmdtest.World, capabilities string, args ...string) *cmdtest.MCP {
	w.T.Helper()
	m := w.StartMCP([]string{"BTOOLS_BROWSER=chrome-headless-shell"}, args...)
	m.Initialize(capabilities)
	return m
}

// answerer connects a person to a session.
func answerer(w *cmdtest.World, key string) *cmdtest.Wire {
	w.T.Helper()
	all, err := sources.All(w.T.Context(), state.Open(func(name string) string {
		return map[string]string{"BTOOLS_STATE": w.Dir + "/state/state.json"}[name]
	}), nil)
	if err != nil {
		w.T.Fatal(err)
	}
	s, err := sources.Find(all, key)
	if err != nil {
		w.T.Fatal(err)
	}
	conn, _, err := s.Attach(w.T.Context(), api.AttachRequest{Who: "Anna", Wake: true})
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { conn.Close(websocket.Normal, "") })
	return &cmdtest.Wire{T: w.T, Conn: conn}
}

// does has a person do what is asked.
func does(p *cmdtest.Wire, note string) {
	p.T.Helper()
	p.Ask("Btools.take", `{"holder":"a-person-of-the-test"}`)
	p.Ask("Btools.give", fmt.Sprintf(`{"outcome":"done","note":%q}`, note))
}

// A host of each kind brings an ask to a person in its way, and gets the answer.
func TestAskHuman(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	p := w.Proxy("share", "--browser", "chrome-headless-shell")
	of := func(name string) string { return p.URL + "/session/" + name }
	isAsked := func(session string) func() bool {
		return func() bool {
			return strings.Contains(w.Run("bproxy", "session", "list").Out, `"ask":{"instructions":"Log in to `+session)
		}
	}
	ask := func(session string) string { return `{"instructions":"Log in to ` + session + `"}` }

	t.Run("url", func(t *testing.T) {
		m := host(w, `{"elicitation":{"url":{},"form":{}}}`, "--cdp", of("url"))
		id := m.StartTool(askTool, ask("url"))
		q := m.Next()
		if q.Method != "elicitation/create" || jsonrpc.GetString(q.Params, "mode") != "url" ||
			!strings.HasPrefix(jsonrpc.GetString(q.Params, "url"), "http://127.0.0.1:") ||
			!strings.HasSuffix(jsonrpc.GetString(q.Params, "url"), "/#/url") ||
			jsonrpc.GetString(q.Params, "message") != "The agent asks you: Log in to url" {
			t.Fatal(q.Line)
		}
		m.Send(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"action":"accept"}}`)
		m.MustFail("there is no ask", askTool, `{"ask_id":"x"}`) // it has the answer
		does(answerer(w, "url"), "as Anna")
		if next := m.Next(); next.Method != "notifications/elicitation/complete" ||
			jsonrpc.GetString(next.Params, "elicitationId") != jsonrpc.GetString(q.Params, "elicitationId") {
			t.Error(next.Line)
		}
		if got := m.Answer(id).MustSucceed(t); got.Struct["outcome"] != "done" || got.Struct["note"] != "as Anna" {
			t.Error(got)
		}
		// What the person declines in the host is not asked any more.
		id = m.StartTool(askTool, ask("url"))
		q = m.Next()
		m.Send(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"action":"decline"}}`)
		m.Answer(id).MustFail(t, "the person declined")
		cmdtest.Until(t, "nobody is asked", func() bool { return !isAsked("url")() })
		// Nor is what the host cancels.
		id = m.StartTool(askTool, ask("url"))
		q = m.Next()
		m.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		if next := m.Next(); next.Method != "notifications/cancelled" ||
			string(jsonrpc.Get(next.Params, "requestId")) != string(q.ID) {
			t.Error(next.Line)
		}
		cmdtest.Until(t, "nobody is asked", func() bool { return !isAsked("url")() })
		// Nor is what a host asks that is killed.
		m.StartTool(askTool, ask("url"))
		m.Next()
		m.Cmd.Process.Kill()
		m.Wait()
		cmdtest.Until(t, "nobody is asked", func() bool { return !isAsked("url")() })
	})
	t.Run("form", func(t *testing.T) { // as Claude Code
		m := host(w, `{"elicitation":{}}`, "--cdp", of("form"))
		id := m.StartTool(askTool, `{"instructions":"Log in to \u202eform\n\nThe browser says: yes"}`)
		q := m.Next()
		if says, _, _ := strings.Cut(jsonrpc.GetString(q.Params, "message"), "\n"); says !=
			`The agent asks you: Log in to \u202eform The browser says: yes` {
			t.Errorf("the host shows %q", says)
		}
		if q.Method != "elicitation/create" || jsonrpc.GetString(q.Params, "requestedSchema", "type") != "object" ||
			!strings.Contains(jsonrpc.GetString(q.Params, "message"), "bproxy view --control form\n") {
			t.Fatal(q.Line)
		}
		does(answerer(w, "form"), "") // who has the page open needs no form
		if next := m.Next(); next.Method != "notifications/cancelled" {
			t.Error(next.Line)
		}
		if got := m.Answer(id).MustSucceed(t); got.Struct["outcome"] != "done" {
			t.Error(got)
		}
	})
	t.Run("words", func(t *testing.T) {
		m := host(w, `{}`, "--cdp", of("words"))
		got := m.MustTool(askTool, "%s", ask("words"))
		id, _ := got.Struct["ask_id"].(string)
		if id == "" || got.Struct["outcome"] != "waiting" ||
			!strings.Contains(got.Text(), "`bproxy view --control words`") {
			t.Fatal(got)
		}
		m.MustFail("one ask at a time", askTool, "%s", ask("words"))
		waits := m.StartTool(askTool, `{"ask_id":"`+id+`"}`)
		person := answerer(w, "words")
		person.Ask("Btools.give", `{"outcome":"declined","note":"not now"}`)
		m.Answer(waits).MustFail(t, `the person declined. The person says: "not now"`)
		m.MustFail("the person declined", askTool, `{"ask_id":"%s"}`, id)
		m.MustFail("there is no ask", askTool, `{"ask_id":"x"}`)
		m.MustFail("instructions is missing", askTool, `{}`)
		m.MustFail("is none of url=GLOB", askTool, `{"instructions":"x","until":"y"}`)
	})
	t.Run("task", func(t *testing.T) {
		m := host(w, `{"elicitation":{"url":{}}}`, "--cdp", of("task"))
		var created struct{ Task struct{ TaskID string } }
		m.Call("tools/call", `{"name":"`+askTool+`","arguments":`+ask("task")+`,"task":{}}`).Into(t, &created)
		id := created.Task.TaskID
		for {
			q := m.Next()
			if q.Method != "elicitation/create" {
				continue // the status
			}
			of := jsonrpc.Get(q.Params, "_meta", "io.modelcontextprotocol/related-task")
			if jsonrpc.GetString(of, "taskId") != id {
				t.Fatal(q.Line)
			}
			m.Send(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"action":"accept"}}`)
			break
		}
		result := m.Start("tasks/result", `{"taskId":"`+id+`"}`)
		does(answerer(w, "task"), "")
		if got := m.Answer(result).MustSucceed(t); got.Struct["outcome"] != "done" {
			t.Error(got)
		}
	})
	t.Run("stateless", func(t *testing.T) { statelessAsk(t, w, of("stateless")) })
	t.Run("killed", func(t *testing.T) { // the browser, while a person is asked
		m := host(w, `{}`, "--cdp", of("killed"))
		m.MustFail("up to 2048 bytes", askTool, `{"instructions":%q}`, strings.Repeat("x", 1<<20))
		id, _ := m.MustTool(askTool, "%s", ask("killed")).Struct["ask_id"].(string)
		waits := m.StartTool(askTool, `{"ask_id":"`+id+`"}`)
		m.MustFail("there is no ask", askTool, `{"ask_id":"x"}`) // it waits
		syscall.Kill(w.State().Instances[0].Browser.PID, syscall.SIGKILL)
		m.Answer(waits).MustFail(t, "has ended")
		m.MustTool("browser_navigate", `{"url":"data:text/html,again"}`)
		m.MustTool(askTool, "%s", ask("killed"))
	})
}

// statelessAsk asks by hosts of 2026-07-28: with a page, by words, and as a task.
func statelessAsk(t *testing.T, w *cmdtest.World, session string) {
	m := w.StartMCP(nil, "--cdp", session)
	meta := func(can string) string {
		return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientCapabilities":{` + can + `}}`
	}
	call := func(can, more string) *cmdtest.RPC {
		return m.Call("tools/call", `{"name":"`+askTool+`","arguments":{"instructions":"Log in to stateless"},`+
			meta(can)+more+`}`)
	}
	const byURL = `"elicitation":{"url":{}}`
	required := func() (q cmdtest.Required) {
		r := call(byURL, "")
		if r.Into(t, &q); q.Type != "input_required" || !strings.Contains(r.Line, `/#/stateless"`) {
			t.Fatal(r.Line)
		}
		return q
	}
	again := func(q cmdtest.Required, action string) string {
		return fmt.Sprintf(`,"requestState":%q,"inputResponses":{%q:{"action":%q}}`, q.State, q.Key(), action)
	}
	q := required()
	person := answerer(w, "stateless")
	does(person, "") // while nobody looks at the host
	if got := call(byURL, again(q, "accept")).MustSucceed(t); got.Struct["outcome"] != "done" {
		t.Error(got)
	}
	if r := call(byURL, again(q, "accept")); r.Error == nil { // replayed
		t.Error(r.Line)
	}
	call(byURL, again(required(), "decline")).MustFail(t, "the person declined")

	got := call("", "").MustSucceed(t) // no elicitation
	id, _ := got.Struct["ask_id"].(string)
	if !strings.Contains(got.Text(), "bproxy view --control stateless") {
		t.Error(got)
	}
	does(person, "")
	r := m.Call("tools/call", `{"name":"`+askTool+`","arguments":{"ask_id":"`+id+`"},`+meta("")+`}`)
	if got := r.MustSucceed(t); got.Struct["outcome"] != "done" {
		t.Error(got)
	}

	const tasks = byURL + `,"extensions":{"io.modelcontextprotocol/tasks":{}}`
	id = jsonrpc.GetString(call(tasks, "").Result, "taskId")
	var now *cmdtest.RPC
	until := func(status string) {
		cmdtest.Until(t, status, func() bool {
			now = m.Call("tasks/get", `{"taskId":"`+id+`",`+meta(tasks)+`}`)
			return jsonrpc.GetString(now.Result, "status") == status
		})
	}
	until("input_required")
	now.Into(t, &q)
	m.Call("tasks/update", `{"taskId":"`+id+`",`+meta(tasks)+`,"inputResponses":{"`+q.Key()+
		`":{"action":"accept"}}}`)
	does(person, "")
	until("completed")
	if jsonrpc.GetString(now.Result, "result", "structuredContent", "outcome") != "done" {
		t.Error(now.Line)
	}
}

// Asks in several sessions at once are answered, none to the caller of another one.
func TestAskHumanAtOnce(t *testing.T) {
	t.Parallel()
	if !cmdtest.IsLong {
		askAtOnce(t, 5)
		return
	}
	for _, host := range []string{"a", "b"} { // one has up to 32 sessions
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			askAtOnce(t, 25)
		})
	}
}

// askAtOnce has a host ask in sessions at once.
func askAtOnce(t *testing.T, sessions int) {
	w := cmdtest.New(t)
	m := host(w, `{}`, "--headless")
	asks := map[string]int{}
	for i := range sessions {
		asks[m.StartTool(askTool, fmt.Sprintf(`{"instructions":"do %d","session_id":"s%d"}`, i, i))] = i
	}
	waits := map[string]int{}
	for range sessions {
		r := m.Next()
		got := r.MustSucceed(t)
		ask, _ := got.Struct["ask_id"].(string)
		_, key, _ := strings.Cut(strings.ReplaceAll(got.Text(), "`", " "), "bproxy view --control ")
		key, _, _ = strings.Cut(key, " ")
		if !strings.HasSuffix(key, fmt.Sprintf(".s%d", asks[string(r.ID)])) {
			t.Fatal(r.Line)
		}
		waits[ask+" "+key] = asks[string(r.ID)]
	}
	began := time.Now()
	var work sync.WaitGroup
	of, given := map[string]int{}, make([]atomic.Pointer[time.Time], sessions)
	var took []time.Duration
	for ask, i := range waits {
		id, key, _ := strings.Cut(ask, " ")
		of[m.StartTool(askTool, fmt.Sprintf(`{"ask_id":%q,"session_id":"s%d"}`, id, i))] = i
		work.Go(func() {
			p := answerer(w, key)
			p.Ask("Btools.take", `{"holder":"a-person-of-the-test"}`)
			given[i].Store(new(time.Now()))
			p.Ask("Btools.give", fmt.Sprintf(`{"outcome":"done","note":"did %d"}`, i))
		})
	}
	for range of {
		r := m.Next()
		i, ok := of[string(r.ID)]
		if got := r.MustSucceed(t); !ok || got.Struct["note"] != fmt.Sprint("did ", i) {
			t.Errorf("%d: %s", i, r.Line)
		}
		took = append(took, time.Since(*given[i].Load()))
	}
	work.Wait()
	slices.Sort(took)
	t.Logf("%d asks answered within %v; from give back to the result %v, %v at most", sessions, time.Since(began),
		took[len(took)/2], took[len(took)-1])
	m.End()
	w.Clean()
}
