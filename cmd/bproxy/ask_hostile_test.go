//go:build linux

package main_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/proc"
	"btools/lib/virtual/chrometest"
)

// An agent that wants to deceive a person by its words: the page's own address is above them, larger, and they are no
// more than text, of which there is not too much.
func TestAskPhishes(t *testing.T) {
	t.Parallel()
	site := cmdtest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<!doctype html><title>bank.example</title><h1>Log in</h1>`)
	})
	_, port, _ := strings.Cut(strings.TrimPrefix(site, "http://"), ":")
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	viewer, _ := chrometest.StartShellOnPort(t)
	p := w.Proxy("share", "--browser", "chrome-headless-shell")
	agent := openSession(t, p, "shop", "http://bank.example@аpple.localhost:"+port) // with a Cyrillic letter
	agent.until("the page is there", `document.querySelector("h1")`)
	const real = "http://xn--pple-43d.localhost:"
	w.Run("bproxy", "ask", "shop", strings.Repeat("x", 100_000), "--no-open").Exits(t, 64, "up to 2048 bytes")
	grid := openTab(t, viewer, strings.TrimSpace(w.Run("bproxy", "view", "--no-open").Out), 360)
	grid.until("the session is there", `document.querySelector(".tile canvas")?.width > 16`)
	grid.eval(`Object.defineProperty(document, "hidden", {value: true});
		window.Notification = class { constructor(title, {body}) { window.noted = title + ". " + body } };
		Notification.permission = "granted"`)
	a := ask(w, "shop", "See <a href='https://bank.example'>https://bank.example</a> \u202egpj\u2066\u200b"+
		strings.Repeat("\n", 1500)+"bank.example")
	grid.until("it is notified", `window.noted === "shop needs you. A person is asked for in this session."`)
	grid.until("the grid has the address above the words", `(() => {
		const [origin, words] = ["origin", "words"].map((c) => document.querySelector(".tile ." + c));
		return origin?.textContent.startsWith("`+real+port+`") &&
			words?.textContent.startsWith("bproxy ask says: See <a") &&
			origin.getBoundingClientRect().bottom <= words.getBoundingClientRect().top })()`)
	x := openPerson(t, w, viewer, "shop", agent)
	x.until("what is asked is shown", `document.querySelector(".ask .words")`)
	if got := x.eval(`(() => {
		const [origin, words] = [".origin", ".words"].map((c) => document.querySelector(".ask " + c));
		const [o, w] = [origin, words].map((e) => e.getBoundingClientRect());
		const size = (e) => parseFloat(getComputedStyle(e).fontSize);
		const button = document.querySelector(".buttons button").getBoundingClientRect();
		return [origin.textContent === "` + real + port + `", o.height > 0 && o.bottom <= w.top,
			size(origin) > 1.2 * size(words), button.bottom < innerHeight].join() })()`); got !=
		"true,true,true,true" {
		t.Errorf("the address, its place, its size, the buttons: %v", got)
	}
	for _, page := range []*tab{x.tab, grid} {
		if got := page.eval(`document.querySelectorAll(".ask a, .tile a, .tile script").length + " " +
			/[\u200b-\u200f\u202a-\u202e\u2066-\u2069]/.test(document.body.innerHTML + document.title)`); got !=
			"0 false" {
			t.Errorf("links, and characters that nobody sees: %v", got)
		}
	}
	checkAccessible(t, x.tab)
	checkAccessible(t, grid)
	agent.call("Page.navigate", map[string]any{"url": "data:text/html,bank.example"}, nil)
	x.until("the address is that of another page", `document.querySelector(".ask .origin").textContent === "data:…"`)
	x.press("Decline")
	a.exits(1, "the person declined")
}

// In all ways in which the address of an ask goes out it opens nothing by itself, and an agent's own session is
// refused.
func TestAskAddress(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	p := w.Proxy("share", "--browser", "chrome-headless-shell", "--log-level", "debug")
	agent := openSession(t, p, "shop", "about:blank")
	events, opened := w.Events("bproxy"), w.Dir+"/opened"
	cmdtest.WriteFile(t, w.Dir+"/fake/xdg-open", "#!/bin/sh\necho opens \"$@\" >"+opened+"\n")
	os.Chmod(w.Dir+"/fake/xdg-open", 0o755)
	shown := regexp.MustCompile(`http://127\.0\.0\.1:\d+/[^\s;]*`)
	var address string
	for how, env := range map[string][]string{"a terminal": nil, "ssh": {"SSH_CONNECTION=192.0.2.1 5 192.0.2.2 22"},
		"a desktop": {"DISPLAY=:0", "PATH=" + w.Dir + "/fake:" + w.Path()}} {
		out := &cmdtest.SyncBuffer{}
		c := w.With(env...).Cmd("bproxy", "ask", "shop", "Log in", "--notify", `echo "notifies $BTOOLS_ASK_URL" >&2`)
		c.Stderr = out
		cmdtest.Start(t, c)
		var told []string
		cmdtest.Until(t, how+": the address is told twice", func() bool {
			b, _ := os.ReadFile(opened)
			told = shown.FindAllString(out.String()+string(b), -1)
			return len(told) == 2
		})
		os.Remove(opened)
		for _, at := range told {
			if address = at; !strings.HasSuffix(at, "/#/shop") || strings.Count(at, "/") != 4 {
				t.Errorf("%s: the address is %s", how, at)
			}
		}
		for _, line := range w.Processes() {
			if strings.Contains(line, "#t=") {
				t.Errorf("%s: a process has %s", how, line)
			}
		}
		c.Process.Signal(syscall.SIGTERM)
		c.Wait()
	}
	state, _ := os.ReadFile(w.Dir + "/state/state.json")
	list := w.Run("bproxy", "session", "list").Out
	if all := p.Errs.String() + events.String() + string(state) + list; strings.Contains(all, "#t=") {
		t.Errorf("there is a token in %s", all)
	}
	agent.call("Page.navigate", map[string]any{"url": address}, nil)
	agent.until("the agent does not get the page",
		`document.body.innerText.includes("a browser of blaunch are refused")`)
}

// Asks in many sessions at once are answered, each to who has asked, and of two in one session one is refused.
func TestAskAtOnce(t *testing.T) {
	t.Parallel()
	n := 6
	if cmdtest.IsLong {
		n = 50
	}
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	p := w.Proxy("share", "--browser", "chrome-headless-shell", "--max-sessions", "60")
	asks := make([]*asking, n)
	for i := range asks {
		openSession(t, p, fmt.Sprint("s", i), "about:blank")
	}
	began := time.Now()
	for i := range asks {
		asks[i] = ask(w, fmt.Sprint("s", i), fmt.Sprint("do ", i))
	}
	second := ask(w, "s0", "do 0")
	cmdtest.Until(t, "all are asked", func() bool {
		return strings.Count(w.Run("bproxy", "session", "list").Out, `"ask":{"instructions":"do `) == n
	})
	address := strings.TrimSpace(w.Run("bproxy", "view", "--no-open").Out)
	var persons sync.WaitGroup
	for i := range asks {
		persons.Go(func() {
			x, _ := openView(w, address, fmt.Sprint("/session/s", i), "")
			x.ask("Btools.take", map[string]any{"holder": strings.Repeat("x", 16)})
			x.ask("Btools.give", map[string]any{"note": fmt.Sprint("did ", i)})
		})
	}
	persons.Wait()
	for i, a := range asks[1:] {
		a.exits(0, fmt.Sprintf(`"note":"did %d"`, i+1))
	}
	var exits []int
	for _, a := range []*asking{asks[0], second} { // either has been first
		code := <-a.ended
		exits = append(exits, code)
		if want := map[int]string{0: `"note":"did 0"`, 1: "one ask at a time"}[code]; want == "" ||
			!strings.Contains(a.out.String()+a.errs.String(), want) {
			t.Errorf("one of two exits with %d and says %s%s", code, a.out.String(), a.errs.String())
		}
	}
	if exits[0]+exits[1] != 1 {
		t.Errorf("two in one session exit with %v", exits)
	}
	t.Logf("%d asks answered within %v", n, time.Since(began))
}

// A condition that is true before the person comes offers to give back, one that is true for a moment does not give
// back.
func TestAskCondition(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	viewer, _ := chrometest.StartShellOnPort(t)
	p := w.Proxy("share", "--browser", "chrome-headless-shell")
	agent := openSession(t, p, "shop", "data:text/html,<title>Shop</title><p id=p>Welcome")
	a := ask(w, "shop", "Log in", "--until", "text=Welcome")
	x := openPerson(t, w, viewer, "shop", agent)
	const offers = `document.querySelector(".ask")?.textContent.includes("It looks done")`
	x.until("it is asked", `document.querySelector(".ask")`)
	if x.eval(offers) == true {
		t.Error("nobody has control, and it is offered to give back")
	}
	x.take()
	x.until("it is offered", offers)
	agent.eval(`p.hidden = true`)
	x.until("it is not offered any more", "!("+offers+")")
	agent.eval(`(async () => { for (let i = 0; i < 9; i++) { // as long as it would take to give back
		p.hidden = false;
		await new Promise((done) => setTimeout(done, 100));
		p.hidden = true;
		await new Promise((done) => setTimeout(done, 700));
	} })()`)
	if x.eval(hasControl) != true || x.eval(`!!document.querySelector(".ask")`) != true {
		t.Error("it is given back for a condition that is true for moments")
	}
	x.press("Done, give back")
	a.exits(0, `"outcome":"done"`)
}

// The browser is killed while a person is asked: the ask fails, and the next one finds a new browser.
func TestAskInABrowserThatCrashes(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	viewer, _ := chrometest.StartShellOnPort(t)
	p := w.Proxy("share", "--browser", "chrome-headless-shell")
	for range 2 {
		agent := openSession(t, p, "shop", "data:text/html,<title>Shop</title>")
		a := ask(w, "shop", "Log in")
		x := openPerson(t, w, viewer, "shop", agent)
		x.until("it is asked", `document.querySelector(".ask")`)
		x.press("Take over in private")
		x.until("the person is private", hasControl)
		syscall.Kill(w.State().Instances[0].Browser.PID, syscall.SIGKILL)
		a.exits(1, "has ended")
		x.until("nothing is asked", `!document.querySelector(".ask")`)
		x.call("Page.close", nil, nil)
		cmdtest.Until(t, "the browser is forgotten", func() bool { return len(w.State().Instances) == 0 })
	}
}

// A computer that sleeps while a person has control: who is asked can still answer, and what the agent has sent before
// is not done late.
func TestAskSleeps(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	p := w.Proxy("share", "--browser", "chrome-headless-shell")
	agent := openSession(t, p, "shop", "data:text/html,<title>Shop</title>")
	a := ask(w, "shop", "Log in")
	address := strings.TrimSpace(w.Run("bproxy", "view", "--no-open").Out)
	x, _ := openView(w, address, "/session/shop", "")
	x.ask("Btools.take", map[string]any{"holder": strings.Repeat("x", 16), "private": true})
	refused := make(chan error, 1)
	go func() {
		refused <- agent.try("Runtime.evaluate", map[string]any{"expression": "document.title = 'late'"}, nil)
	}()
	time.Sleep(100 * time.Millisecond) // until it waits
	all := proc.Tree(p.Cmd.Process.Pid)
	for _, line := range w.Processes() {
		var pid int
		if fmt.Sscan(line, &pid); strings.Contains(line, "bproxy") {
			all = append(all, pid)
		}
	}
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		for _, pid := range all {
			syscall.Kill(pid, s)
		}
		if s == syscall.SIGSTOP {
			time.Sleep(5 * time.Second) // longer than a command waits
		}
	}
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "nothing was done") {
		t.Errorf("the agent's command: %v", err)
	}
	if got := x.ask("Btools.give", map[string]any{"note": "awake"}); got != "{}" {
		t.Errorf("the person gives back: %s", got)
	}
	a.exits(0, `"note":"awake"`)
	if got := agent.eval("document.title"); got != "Shop" {
		t.Errorf("the page is %v", got)
	}
}

// A person is asked in a lease, which is not hibernated before they answer, and fails with a restart of its browser.
func TestAskInALease(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	pool := w.Shared("_A_INSTANCES=1", "_A_HIBERNATE=1s")
	lease := pool.Lease()
	cmdtest.AskOnce(t, lease.Instance.WSURL, "Target.getTargets", "{}")
	address := strings.TrimSpace(w.Run("bproxy", "view", "--no-open").Out)
	hibernated := func() bool { return strings.Contains(w.Run("bpool", "status").Out, `"hibernated":true`) }
	a := ask(w, "A-0", "Log in")
	isAsked := func() bool { return strings.Contains(w.Run("bpool", "status").Out, `"ask":{"instructions":"Log in"`) }
	cmdtest.Until(t, "it is asked", isAsked)
	for begun := time.Now(); time.Since(begun) < 2500*time.Millisecond; time.Sleep(200 * time.Millisecond) {
		if hibernated() {
			t.Fatal("it is hibernated while a person is asked")
		}
	}
	x, _ := openView(w, address, "/session/A-0", "")
	x.ask("Btools.give", map[string]any{"outcome": "declined"})
	a.exits(1, "declined")
	cmdtest.Until(t, "it is hibernated afterwards", hibernated)
	cmdtest.AskOnce(t, lease.Instance.WSURL, "Target.getTargets", "{}")
	a = ask(w, "A-0", "Log in")
	cmdtest.Until(t, "it is asked", isAsked)
	w.Run("bpool", "restart", "A").Exits(t, 0, "")
	a.exits(1, "has ended")
	pool.Stop()
}
