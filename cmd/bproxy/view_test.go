//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/websocket"
)

// viewPage is a WebSocket of the page of bproxy view.
type viewPage struct {
	t    *testing.T
	conn *websocket.Conn
}

// openView opens a WebSocket as the page at an address does, and returns the answer to its first message.
func openView(w *cmdtest.World, address, path, token string) (p viewPage, answer map[string]any) {
	w.T.Helper()
	u, err := url.Parse(address)
	if err != nil {
		w.T.Fatal(err)
	}
	c, resp := (&cmdtest.Proxy{T: w.T, W: w, Addr: u.Host}).Socket(path, "Origin: http://"+u.Host)
	if resp.StatusCode != 101 {
		w.T.Fatalf("%s is answered with %s", path, resp.Status)
	}
	p = viewPage{w.T, websocket.New(c, true, nil)}
	p.send(map[string]any{"token": token, "who": "anna"})
	p.next(&answer)
	return p, answer
}

func (p viewPage) send(message any) {
	p.t.Helper()
	b, err := json.Marshal(message)
	if err == nil {
		err = p.conn.Write(b)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// next reads a message.
func (p viewPage) next(into any) {
	p.t.Helper()
	m, err := p.conn.Next()
	var b []byte
	if err == nil {
		b, err = m.Bytes()
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// ask sends a command and returns its answer.
func (p viewPage) ask(method string, params any) string {
	p.t.Helper()
	return p.askOn("", method, params)
}

// askOn sends a command to a CDP session and returns its answer.
func (p viewPage) askOn(session, method string, params any) string {
	p.t.Helper()
	p.send(map[string]any{"id": 1, "method": method, "params": params, "sessionId": session})
	for {
		var m struct {
			ID            int
			Result, Error json.RawMessage
		}
		if p.next(&m); m.ID == 1 {
			return string(m.Result) + string(m.Error)
		}
	}
}

// names reads a list of sessions.
func (p viewPage) names() string {
	var l struct {
		Sessions []struct {
			Key, Program string
			Control      struct{ By string }
		}
	}
	p.next(&l)
	var all []string
	for _, s := range l.Sessions {
		is := s.Key + " of " + s.Program
		if s.Control.By != "" {
			is += " under " + s.Control.By
		}
		all = append(all, is)
	}
	return strings.Join(all, ", ")
}

// A person sees the sessions on a page, and takes one over; no agent's browser and no list of processes gives it away.
func TestView(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy("share")
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	w.Run("bproxy", "session", "new", "agent-7").Exits(t, 0, "")
	addresses := make([]string, 4)
	var all sync.WaitGroup
	for i := range addresses {
		all.Go(func() { addresses[i] = strings.TrimSpace(w.Run("bproxy", "view", "--no-open", "agent-7").Out) })
	}
	all.Wait()
	tokens := map[string]bool{}
	for _, a := range addresses {
		base, token, _ := strings.Cut(a, "/#t=")
		token, key, _ := strings.Cut(token, "/")
		first, _, _ := strings.Cut(addresses[0], "/#")
		if base != first || len(token) != 43 || key != "agent-7" || tokens[token] {
			t.Fatalf("addresses that were asked for at once are %q", addresses)
		}
		tokens[token] = true
	}
	for token := range tokens {
		session, answer := openView(w, addresses[0], "/session/agent-7", token)
		if answer["control"] != false || answer["lock"] != true || answer["token"] == "" {
			t.Errorf("the session is answered with %v", answer)
		}
		if got := session.ask("Target.getTargets", nil); !strings.Contains(got, "about:blank") {
			t.Errorf("its targets are %s", got)
		}
		holder := map[string]any{"holder": strings.Repeat("x", 16)}
		if got := session.ask("Btools.take", holder); !strings.Contains(got, "view --control") {
			t.Errorf("a page that may look only takes control: %s", got)
		}
		break
	}
	t.Run("the user's own page may take control", func(t *testing.T) {
		session, answer := openView(w, addresses[0], "/session/agent-7", "")
		if got := session.ask("Btools.take", map[string]any{"holder": strings.Repeat("y", 16)}); got != "{}" {
			t.Errorf("%v takes control: %s", answer, got)
		}
		session.ask("Btools.give", nil)
	})
	t.Run("an agent does not open it", func(t *testing.T) {
		at := "ws" + strings.TrimPrefix(p.URL, "http") + "/session/agent-7/devtools/"
		var target struct {
			Result struct{ TargetID string }
		}
		got := cmdtest.AskOnce(t, at+"browser", "Target.createTarget", `{"url":"`+addresses[1]+`"}`)
		json.Unmarshal([]byte(got), &target)
		cmdtest.Until(t, "the page is refused", func() bool {
			return strings.Contains(cmdtest.AskOnce(t, at+"page/"+target.Result.TargetID, "Runtime.evaluate",
				`{"expression":"document.body.innerText"}`), "a browser of blaunch are refused")
		})
	})
	t.Run("new sessions come, those of a killed program go", func(t *testing.T) {
		list, answer := openView(w, addresses[0], "/list", "")
		if answer["error"] != nil {
			t.Fatal(answer)
		}
		if got := list.names(); got != "agent-7 of bproxy" {
			t.Errorf("the list is %s", got)
		}
		other := w.Proxy("share")
		_, port, _ := strings.Cut(other.Addr, ":")
		w.Run("bproxy", "session", "new", "--port", port, "agent-8").Exits(t, 0, "")
		begun := time.Now()
		for got := ""; got != "agent-7 of bproxy, agent-8 of bproxy"; got = list.names() {
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("a new session is told after %v", took)
		}
		other.Cmd.Process.Signal(syscall.SIGKILL)
		other.Cmd.Wait()
		for got := ""; got != "agent-7 of bproxy"; got = list.names() {
		}
	})
	t.Run("errors name what there is", func(t *testing.T) {
		w.CheckOffers(map[string][]string{"bproxy view a": {"agent-7"}, "bproxy view --s": {"--stop"}}, "bash")
		w.Run("bproxy", "view", "--no-open", "agent-9").Exits(t, 69, `no program has a session "agent-9"`)
		w.Run("bproxy", "view", "--stop", "agent-7").Exits(t, 64, "--stop")
		ssh := w.With("SSH_CONNECTION=192.0.2.1 50000 192.0.2.2 2222", "USER=anna")
		r := ssh.Run("bproxy", "view")
		u, _ := url.Parse(strings.TrimSpace(r.Out))
		r.Exits(t, 0, fmt.Sprintf("ssh -L %s:127.0.0.1:%[1]s -p 2222 anna@192.0.2.2", u.Port()))
	})
	t.Run("a browser is opened without a token", func(t *testing.T) {
		got := w.Dir + "/opened"
		cmdtest.WriteFile(t, w.Dir+"/fake/xdg-open", "#!/bin/sh\necho \"$@\" >"+got+"\n")
		os.Chmod(w.Dir+"/fake/xdg-open", 0o755)
		r := w.With("DISPLAY=:0", "PATH="+w.Dir+"/fake:"+w.Path()).Run("bproxy", "view", "agent-7")
		r.Exits(t, 0, "your browser opens the page")
		base, _, _ := strings.Cut(addresses[0], "/#")
		if b, _ := os.ReadFile(got); string(b) != base+"/#/agent-7\n" || r.Out != "" {
			t.Errorf("it opens %s, and prints %s", b, r.Out)
		}
	})
	state, err := os.ReadFile(w.Dir + "/state/state.json")
	if err != nil {
		t.Fatal(err)
	}
	for token := range tokens {
		if strings.Contains(strings.Join(w.Processes(), "\n"), token) || strings.Contains(string(state), token) {
			t.Errorf("a token is in %s or %s", state, w.Processes())
		}
	}
	open, _ := openView(w, addresses[0], "/session/agent-7", "")
	begun := time.Now()
	w.Run("bproxy", "view", "--stop").Exits(t, 0, "")
	if took := time.Since(begun); took > time.Second {
		t.Errorf("it stops after %v", took)
	}
	for _, err := open.conn.Next(); err == nil; _, err = open.conn.Next() {
	}
	w.Run("bproxy", "view", "--no-open").Exits(t, 0, "")
	for _, line := range w.Processes() {
		if strings.Contains(line, "view-service") {
			var pid int
			fmt.Sscan(line, &pid)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	again := strings.TrimSpace(w.Run("bproxy", "view", "--no-open").Out)
	if first, _, _ := strings.Cut(addresses[0], "/#"); !strings.HasPrefix(again, first+"/#t=") {
		t.Errorf("the next address is %s after %s", again, first)
	}
	for token := range tokens {
		if _, answer := openView(w, again, "/list", token); answer["error"] == nil {
			t.Errorf("a token is good after the end: %v", answer)
		}
	}
}

// The page has the sessions of pools and whole browsers, too, and says why nobody takes those over. Who has control
// is in the list and among the events, and what is taken over is not hibernated.
func TestViewOfAll(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	pool := w.Shared("_A_INSTANCES=1", "_A_HIBERNATE=2s", "_B_INSTANCES=1")
	events := w.Events("bpool")
	shared := pool.Lease()
	cmdtest.Until(t, "events are told", func() bool {
		w.Run("bpool", "drain", "B").Exits(t, 0, "")
		w.Run("bpool", "drain", "--off", "B").Exits(t, 0, "")
		return events.String() != ""
	})
	whole := pool.Lease("B")
	address := strings.TrimSpace(w.Run("bproxy", "view", "--no-open", "--control").Out)
	if _, is := openView(w, address, "/session/A-0", ""); !strings.Contains(fmt.Sprint(is["error"]), "first use") {
		t.Errorf("a lease that nothing has used is answered with %v", is)
	}
	targets := cmdtest.AskOnce(t, shared.Instance.WSURL, "Target.getTargets", "{}")
	_, page, _ := strings.Cut(targets, `"targetId":"`)
	page, _, _ = strings.Cut(page, `"`)
	at, _, _ := strings.Cut(shared.Instance.WSURL, "/devtools/")
	busy := cmdtest.Dial(t, at+"/devtools/page/"+page)
	const never = `{"id":1,"method":"Runtime.evaluate","params":{"awaitPromise":true,` +
		`"expression":"new Promise(() => {})"}}`
	if err := busy.Conn.Write([]byte(never)); err != nil { // until a person has control it is not hibernated
		t.Fatal(err)
	}
	plain := w.Proxy()
	cmdtest.AskOnce(t, "ws://"+plain.Addr+"/", "Browser.getVersion", "{}")
	_, port, _ := strings.Cut(plain.Addr, ":")
	list, _ := openView(w, address, "/list", "")
	want := "A-0 of bpool, B-0 of bpool, bproxy-" + port + " of bproxy"
	for got := ""; got != want; got = list.names() {
	}
	for key, why := range map[string]string{"B-0": "isolation", "bproxy-" + port: "bproxy share"} {
		p, answer := openView(w, address, "/session/"+key, "")
		if answer["lock"] != false || !strings.Contains(fmt.Sprint(answer["why"]), why) {
			t.Errorf("%s is answered with %v", key, answer)
		}
		if got := p.ask("Target.getTargets", nil); !strings.Contains(got, `"type":"page"`) {
			t.Errorf("the targets of %s are %s", key, got)
		}
		for _, method := range []string{"Browser.close", "Target.createTarget", "Btools.take"} {
			if got := p.ask(method, map[string]any{"url": "about:blank"}); !strings.Contains(got,
				"can only be looked at") {
				t.Errorf("%s of %s: %s", method, key, got)
			}
		}
	}
	p, _ := openView(w, address, "/session/B-0", "")
	w.Run("bpool", "release", whole.Lease.ID).Exits(t, 0, "")
	for err := error(nil); err == nil; _, err = p.conn.Next() { // before the browser is another lease's
	}
	p, answer := openView(w, address, "/session/A-0", "")
	if got := p.ask("Btools.take", map[string]any{"holder": strings.Repeat("z", 16)}); got != "{}" {
		t.Fatalf("%v takes control: %s", answer, got)
	}
	busy.Conn.Close(websocket.Normal, "")
	for got := ""; !strings.HasPrefix(got, "A-0 of bpool under anna, "); got = list.names() {
	}
	type row struct {
		Hibernated bool
		Control    struct{ By string }
	}
	status := func() row {
		var s struct{ Pools []struct{ Instances []row } }
		if err := json.Unmarshal([]byte(w.Run("bpool", "status").Out), &s); err != nil {
			t.Fatal(err)
		}
		return s.Pools[0].Instances[0]
	}
	begun := time.Now()
	for time.Since(begun) < 4*time.Second { // twice the time after which it would be hibernated
		if now := status(); now.Hibernated || now.Control.By != "anna" {
			t.Fatalf("under a person the lease is %+v", now)
		}
		time.Sleep(200 * time.Millisecond)
	}
	p.ask("Btools.give", nil)
	cmdtest.Until(t, "it is told who took and gave", func() bool {
		got := events.String()
		return strings.Contains(got, "taken\tanna\n") && strings.Contains(got, "given_back\tanna\n")
	})
	if _, is := openView(w, address, "/session/A-0",
		""); is["error"] != nil { // it is no use: the lease still falls asleep
		t.Errorf("its page: %v", is)
	}
	cmdtest.Until(t, "the lease is hibernated while somebody looks", func() bool { return status().Hibernated })
	if _, is := openView(w, address, "/session/A-0", ""); !strings.Contains(fmt.Sprint(is["error"]), "hibernated") {
		t.Errorf("a hibernated lease is answered with %v", is)
	}
	plain.Stop()
	pool.Stop()
}
