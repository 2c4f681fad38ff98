//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	. "btools/lib/cmdtest"
	"btools/lib/terminal/ptytest"
)

// callSite is a page with a title for each path, a button that counts, and a slow answer.
func callSite(t *testing.T) string {
	return Serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			<-r.Context().Done()
			return
		case "/long":
			fmt.Fprint(w, "<title>Long</title>", strings.Repeat("<p>日本語 line</p>", 3000))
			return
		case "/data":
			w.Header().Set("Content-Type", "application/gzip")
			w.Write(callData)
			return
		case "/latin":
			w.Header().Set("Content-Type", "text/plain; charset=iso-8859-1")
			w.Write([]byte("caf\xe9\n"))
			return
		case "/empty":
			return
		}
		fmt.Fprintf(w, "<title>Page %s</title><h1>Hello</h1>"+
			"<button onclick=\"this.textContent='Clicked'\">Press</button><input aria-label='Name'>", r.URL.Path)
	})
}

// callData is a file that is no text.
var callData = []byte("\x1f\x8b\x08\x00 archive \xff")

// called runs bmcp call, which must not fail.
func called(w *World, args ...string) string {
	w.T.Helper()
	r := w.Run("bmcp", append([]string{"call"}, args...)...)
	if r.Code != 0 {
		w.T.Fatalf("call %v: exit %d\n%s%s", args, r.Code, r.Out, r.Err)
	}
	return r.Out
}

// agent is a program of its own that runs a shell script, which owns the sessions of its calls.
func agent(w *World, script string) func() Result {
	w.T.Helper()
	path := w.Dir + "/agent"
	if b, err := os.ReadFile("/bin/sh"); err != nil {
		w.T.Fatal(err)
	} else if _, err := os.Stat(path); err != nil {
		if err := os.WriteFile(path, b, 0o700); err != nil {
			w.T.Fatal(err)
		}
	}
	return func() Result { return w.Run(path, "-c", script) }
}

type callSession struct {
	Session struct {
		Name  string
		Owner *struct {
			PID  int
			Name string
		}
		URL, Title string
		Tabs       int `json:"tab_count"`
	}
}

// callSessions are the sessions of bmcp call.
func callSessions(w *World) (all []callSession) {
	w.T.Helper()
	for line := range strings.Lines(w.Run("bmcp", "sessions").Out) {
		var s callSession
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			w.T.Fatalf("%q: %v", line, err)
		}
		all = append(all, s)
	}
	return all
}

func TestCall(t *testing.T) {
	t.Parallel()
	w := New(t)
	site := callSite(t)
	went, shown := called(w, "navigate", site+"/a?x=1"), called(w, "browser_snapshot")
	if !strings.Contains(went+shown, "Page /a") { // one that does not answer soon tells its title later
		t.Errorf("navigate says %q, and the snapshot %q", went, shown)
	}
	ref := regexp.MustCompile(`button "Press" \[ref=(\w+)\]`).FindStringSubmatch(shown)
	if ref == nil {
		t.Fatal("the snapshot has no button")
	}
	called(w, "click", ref[1])
	out := called(w, "evaluate", "() => document.querySelector('button').textContent")
	if !strings.Contains(out, "Clicked") {
		t.Errorf("evaluate says %q", out)
	}
	out = w.Pipe(`{"function":"() => 6 * 7"}`, "bmcp", "call", "evaluate", "-").Out
	if !strings.HasPrefix(out, "42\n") {
		t.Errorf("with arguments from standard input it says %q", out)
	}
	if s := callSessions(w); len(s) != 1 || s[0].Session.Owner == nil || s[0].Session.Owner.PID != os.Getpid() ||
		s[0].Session.Title != "Page /a" || s[0].Session.Tabs != 1 {
		t.Errorf("the sessions are %+v", s)
	}

	sameSession(w, "Page /a")

	called(w, "type", "input", "--", "text=a b") // after -- nothing is a name
	if out := called(w, "--raw", "evaluate", "document.querySelector('input').value"); out != "text=a b" {
		t.Errorf("after -- a text comes as %q", out)
	}
	w.Run("bmcp", "call").Exits(t, 64, "name a tool")
	w.Run("bmcp", "call", "navigat", site).Exits(t, 64, "did you mean navigate?")
	w.Run("bmcp", "call", "navigate", site, "urll=x").Exits(t, 64, "bmcp call navigate URL")
	w.Run("bmcp", "call", "click", "e999999").Exits(t, 1, "e999999")
	w.Run("bmcp", "call", "--state", "none", "snapshot").Exits(t, 64, "bmcp end")
	w.Pipe("[1]", "bmcp", "call", "evaluate", "-").Exits(t, 65, "not a JSON object")
	if out := w.Run("bmcp", "call", "click", "--help").Out; !strings.Contains(out, "bmcp call click TARGET") {
		t.Errorf("the help of a tool is %q", out)
	}
	out = w.Run("bmcp", "call", "--help").Out
	for _, tool := range []string{"take_screenshot", "result", "get_blob", "cookie_list", "route", "mouse_wheel"} {
		if !strings.Contains(out, "  "+tool+" ") {
			t.Errorf("--help does not list %s:\n%s", tool, out)
		}
	}

	called(w, "cookie_list") // every session has all tools

	var result struct{ Content []struct{ Type, Text string } }
	if err := json.Unmarshal([]byte(called(w, "--output", "json", "snapshot")), &result); err != nil ||
		len(result.Content) == 0 {
		t.Errorf("the whole result has %d parts: %v", len(result.Content), err)
	}
	dir := t.TempDir()
	for n, want := range []string{"take_screenshot.png", "take_screenshot-2.png"} {
		c := w.Cmd("bmcp", "call", "take_screenshot")
		c.Dir = dir
		out, err := c.Output()
		if b, _ := os.ReadFile(filepath.Join(dir, want)); err != nil || !strings.Contains(string(out), want) ||
			!strings.HasPrefix(string(b), "\x89PNG") {
			t.Errorf("screenshot %d: %v, it says %q, and the file has %d bytes", n, err, out, len(b))
		}
	}
	w.CheckOffers(map[string][]string{
		"bmcp call take_scr":        {"take_screenshot"},
		"bmcp call click " + ref[1]: {ref[1]},
	}, "bash")
	checkTold(t, w, site)
	checkJSON(t, w, site)
	checkAlone(t, w, site, dir)
	checkCut(t, w, site)

	w.Run("bmcp", "end").Exits(t, 0, "")
	if s := callSessions(w); len(s) != 0 {
		t.Errorf("after the end the sessions are %+v", s)
	}
	w.Run("bmcp", "end", "other").Exits(t, 69, "no session named other")
}

// sameSession has agents' ways to run a command name the page of the session: with and without a pipe, each in a
// terminal of its own, below shells, in a sandbox.
func sameSession(w *World, title string) {
	call := Bin + "/bmcp call evaluate '() => document.title'" // a login shell has a PATH of its own
	piped := "cd / && " + call + " | cat"
	WriteFile(w.T, w.Dir+"/Makefile", "all:\n\t@"+piped+"\n")
	for _, c := range []struct {
		terminal bool
		argv     []string
	}{
		{false, []string{"bash", "-c", piped}},
		{false, []string{"bash", "-lc", piped}},
		{false, []string{"bash", "-c", "eval \"" + call + " < /dev/null\" && pwd -P > /dev/null"}},
		{false, []string{"setsid", "-w", "bash", "-c", piped}},
		{false, []string{"script", "-qec", piped, "/dev/null"}},
		{false, []string{"make", "-s", "-f", w.Dir + "/Makefile"}},
		{false, []string{"unshare", "--mount", "--pid", "--fork", "bash", "-c", piped}},
		{true, []string{"bash", "-c", call}},
		{true, []string{"bash", "-lc", piped}},
		{true, []string{"bash", "-ic", piped}},
		{true, []string{"timeout", "60", "sh", "-c", piped}},
	} {
		cmd := w.Cmd(c.argv[0], c.argv[1:]...)
		var out []byte
		if c.terminal {
			master, tty := ptytest.Open(w.T)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			Start(w.T, cmd)
			tty.Close()
			out, _ = io.ReadAll(master)
			cmd.Wait()
		} else {
			out, _ = cmd.Output()
		}
		if !strings.Contains(string(out), title) {
			w.T.Errorf("%q, terminal: %t, says %s", c.argv, c.terminal, out)
		}
	}
}

// A terminal that shows pictures gets a screenshot; another one gets the path of its file. The terminal is played.
func TestCallPictures(t *testing.T) {
	t.Parallel()
	w := New(t)
	called(w, "--session", "s", "navigate", callSite(t)+"/a")
	for name, test := range map[string]struct{ kitty, want string }{
		"kitty": {"1", "\x1b_Ga=T,f=100,"},
		"none":  {"", "take_screenshot.png"},
	} {
		t.Run(name, func(t *testing.T) {
			master, tty := ptytest.Open(t)
			c := w.Cmd("bmcp", "call", "--session", "s", "take_screenshot")
			c.Dir, c.Stdin, c.Stdout = t.TempDir(), tty, tty
			c.Env = append(slices.Clone(c.Env), "TERM=xterm", "TERM_PROGRAM=", "KITTY_WINDOW_ID="+test.kitty)
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			Start(t, c)
			tty.Close()
			shown, _ := io.ReadAll(master)
			if err := c.Wait(); err != nil || !strings.Contains(string(shown), test.want) {
				t.Errorf("%v, the terminal shows %.300q", err, shown)
			}
			_, err := os.Stat(filepath.Join(c.Dir, "take_screenshot.png"))
			if saved := err == nil; saved != (name == "none") {
				t.Errorf("there is a file: %v", saved)
			}
		})
	}
	// All that is long is shown there, a value has its line, and nothing of a page is a command.
	for words, want := range map[string]string{"evaluate '\"x\".repeat(20000)'": strings.Repeat("x", 20000),
		"--raw evaluate '\"x\"'": "x\r\n", "--output=json evaluate '\"\\u009b7m\"'": `\u009b7m`,
		"--raw evaluate '\"\\u009b7m\"'": `\x9b7m`} {
		if shown := onTerminal(w, "bmcp call --session s "+words); !strings.Contains(shown, want) ||
			strings.Contains(shown, "\u009b") {
			t.Errorf("%s: the terminal shows %.300q", words, shown)
		}
	}
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
}

// onTerminal returns what a command of the shell shows on a terminal.
func onTerminal(w *World, command string) string {
	master, tty := ptytest.Open(w.T)
	c := w.Cmd("sh", "-c", command)
	c.Stdin, c.Stdout, c.Stderr = tty, tty, tty
	Start(w.T, c)
	tty.Close()
	b, _ := io.ReadAll(master) // until nobody has the terminal
	c.Wait()
	return string(b)
}

// Each agent has a session of its own, which ends with it; one with a name lasts.
func TestCallOwners(t *testing.T) {
	t.Parallel()
	w := New(t)
	site := callSite(t)
	script := "bmcp call navigate " + site + "/%s && bmcp call evaluate '() => document.title'" +
		" && bmcp call --session both evaluate '() => location.href'; bmcp sessions"
	called(w, "--session", "both", "navigate", site+"/both")
	var all sync.WaitGroup
	for _, name := range []string{"one", "two", "three"} {
		run := agent(w, fmt.Sprintf(script, name))
		all.Go(func() {
			r := run()
			if !strings.Contains(r.Out, `"Page /`+name+`"`) || !strings.Contains(r.Out, "/both") || r.Code != 0 ||
				!strings.Contains(r.Out, `"name":"agent"`) {
				t.Errorf("agent %s: exit %d\n%s%s", name, r.Code, r.Out, r.Err)
			}
		})
	}
	all.Wait()
	Until(t, "the sessions of the agents end", func() bool {
		s := callSessions(w)
		return len(s) == 1 && s[0].Session.Name == "both"
	})
	// To whom each command is another program, the session of the next one is new.
	if r := agent(w, "bmcp call evaluate 1")(); !strings.Contains(r.Err, "a new session begins") ||
		!strings.Contains(r.Err, "it belonged to agent") {
		t.Errorf("the next agent is told %s", r.Err)
	}
	w.Run("bmcp", "end", "both").Exits(t, 0, "")
}

// Of calls that race one starts the service; one whose call is cancelled disturbs no other; and a service that is
// killed is told by the next call.
func TestCallFaults(t *testing.T) {
	t.Parallel()
	w := New(t)
	site := callSite(t)
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			name := fmt.Sprint("s", n%4)
			if out := called(w, "--session", name, "navigate", site+"/"+name); !strings.Contains(out, site+"/"+name) {
				t.Errorf("call %d says %q", n, out)
			}
		})
	}
	all.Wait()
	if s := callSessions(w); len(s) != 4 {
		t.Errorf("the sessions are %+v", s)
	}
	if b := w.Browsers(); len(b) != 1 {
		t.Errorf("%d browsers run", len(b))
	}

	slow := w.Cmd("bmcp", "call", "--session", "s0", "evaluate", "() => new Promise(() => {})")
	Start(t, slow)
	Until(t, "the call runs", func() bool {
		return strings.Contains(w.Run("bmcp", "sessions").Out, `"calls":1`)
	})
	slow.Process.Signal(syscall.SIGINT)
	slow.Wait()
	if status := slow.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGINT &&
		status.ExitStatus() != 130 {
		t.Errorf("a call that was interrupted ends with %v", slow.ProcessState)
	}
	if out := called(w, "--session", "s0", "evaluate", "() => document.title"); !strings.Contains(out, "Page /s0") {
		t.Errorf("after it a call says %q", out)
	}

	services := w.State().Calls
	if len(services) != 1 {
		t.Fatalf("the state file lists %+v", services)
	}
	pid := services[0].Process.PID
	syscall.Kill(pid, syscall.SIGSTOP)
	for _, args := range [][]string{{"call", "--session", "s1", "snapshot"}, {"sessions"}, {"end", "--all"}} {
		all.Go(func() { w.Run("bmcp", args...).Exits(t, 75, fmt.Sprintf("pid %d is suspended", pid)) })
	}
	all.Wait()
	syscall.Kill(pid, syscall.SIGKILL)
	r := w.Run("bmcp", "call", "--session", "s1", "evaluate", "() => location.href")
	if r.Code == 75 { // the socket was still open
		r = w.Run("bmcp", "call", "--session", "s1", "evaluate", "() => location.href")
	}
	if r.Code != 0 || !strings.Contains(r.Out, site+"/s1") || !strings.Contains(r.Err, "this session comes back") {
		t.Errorf("after the service was killed: exit %d\n%s%s", r.Code, r.Out, r.Err)
	}
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
}

// A full disk keeps a call from what it has to write, which it says, and from nothing else.
func TestCallFullDisk(t *testing.T) {
	t.Parallel()
	w := New(t)
	site := callSite(t)
	state, files := w.Dir+"/state", w.Dir+"/files"
	for _, dir := range []string{state, files} {
		os.Mkdir(dir, 0o700)
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=700"); err != nil {
			t.Skipf("cannot mount a file system: %v", err)
		}
		t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	}
	fill := func(dir string) {
		if err := os.WriteFile(dir+"/fill", make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%s is not full: %v", dir, err)
		}
	}
	fill(state)
	w.Run("bmcp", "call", "--session", "s", "navigate", site+"/a").Exits(t, 1, "no space left on device")
	os.Remove(state + "/fill")
	called(w, "--session", "s", "navigate", site+"/a")
	fill(state)
	said := ""
	Until(t, "a result says that nothing is kept", func() bool {
		said = called(w, "--session", "s", "evaluate", "() => { localStorage.n = Date.now() }")
		return strings.Contains(said, "does not come back")
	})
	if !strings.Contains(said, "no space left on device") {
		t.Errorf("a session that is not kept says %s", said)
	}
	fill(files)
	if out := called(w, "--session", "s", "evaluate", "() => document.title"); !strings.Contains(out, "Page /a") {
		t.Errorf("on a full disk a call says %q", out)
	}
	c := w.Cmd("bmcp", "call", "--session", "s", "take_screenshot")
	var errs strings.Builder
	c.Dir, c.Stderr = files, &errs
	if c.Run(); c.ProcessState.ExitCode() != 1 || !strings.Contains(errs.String(), "no space left on device") {
		t.Errorf("a screenshot on a full disk: exit %d\n%s", c.ProcessState.ExitCode(), errs.String())
	}
	if left, _ := filepath.Glob(files + "/take*"); left != nil {
		t.Errorf("it leaves %q", left)
	}
	os.Remove(state + "/fill")
	killService(w) // what was kept before the disk was full is there, at least; its title comes with its document
	if out := called(w, "--session", "s", "evaluate", "() => location.href"); !strings.Contains(out, site+"/a") {
		t.Errorf("after a kill on a full disk a call says %q", out)
	}
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
}

func TestCallBatch(t *testing.T) {
	t.Parallel()
	w := New(t)
	site := callSite(t)
	r := w.Pipe("navigate "+site+"/b\n# a remark\n\nevaluate '() => 1 + 1'\nnothing\n"+
		`{"name":"browser_evaluate","arguments":{"function":"() => 3 + 4"}}`+"\n", "bmcp", "call", "--batch")
	lines := strings.Split(strings.TrimSpace(r.Out), "\n")
	if len(lines) != 4 || !strings.Contains(lines[1], `"text":"2"`) || !strings.Contains(lines[3], `"text":"7"`) ||
		r.Code != 64 ||
		!strings.Contains(lines[2], `"error":{"code":"bad_request"`) {
		t.Errorf("exit %d\n%s%s", r.Code, r.Out, r.Err)
	}
	r = w.Pipe("nothing\nevaluate '() => 1 + 1'\n", "bmcp", "call", "--batch", "--bail")
	if n := strings.Count(r.Out, "\n"); n != 1 || r.Code != 64 {
		t.Errorf("with --bail: exit %d\n%s%s", r.Code, r.Out, r.Err)
	}
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
}
