//go:build linux

package cmd_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// login is a blaunch with the window in which a person logs in.
type login struct {
	t    *testing.T
	cmd  *exec.Cmd
	errs syncBuffer
	at   string // the endpoint
	page string // the target of the page
	wire *wire  // to the page
}

// login opens a URL in the window of a blaunch. Without an X server the window is
// one that nobody sees.
func (w *world) login(url string, args ...string) *login {
	w.t.Helper()
	l := &login{t: w.t}
	l.cmd = w.cmd("blaunch", append([]string{"--no-headless", "--browser=chromium", "--url", url}, args...)...)
	l.cmd.Stderr = &l.errs
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if l.cmd.ProcessState == nil {
			l.cmd.Process.Signal(syscall.SIGTERM)
			l.cmd.Wait()
		}
		if w.t.Failed() {
			w.t.Logf("blaunch says:\n%s", l.errs.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		l.cmd.Wait()
		w.t.Fatalf("no browser: %v\n%s", err, l.errs.String())
	}
	if l.at = strings.TrimSpace(line); strings.HasPrefix(line, "{") {
		var x rec
		json.Unmarshal([]byte(line), &x)
		l.at = x.Instance.HTTPURL
	}
	go io.Copy(io.Discard, out)
	until(w.t, "the page is open", func() bool {
		_, list := get(w.t, "GET", l.at+"/json/list")
		var all []struct {
			ID, URL string
			WS      string `json:"webSocketDebuggerUrl"`
		}
		json.Unmarshal([]byte(list), &all)
		for _, p := range all {
			if p.URL == url {
				l.page, l.wire = p.ID, dial(w.t, p.WS)
				return true
			}
		}
		return false
	})
	return l
}

// close closes the page, as a person does, and waits for the end of blaunch.
func (l *login) close() result {
	l.t.Helper()
	get(l.t, "GET", l.at+"/json/close/"+l.page)
	return l.ends()
}

func (l *login) ends() result {
	l.cmd.Wait()
	return result{code: l.cmd.ProcessState.ExitCode(), err: l.errs.String()}
}

// unseen makes the window of a blaunch one that needs no display.
const unseen = "--arg=--headless=new"

// display starts an X server and returns its name; the test is skipped where
// there is none.
func display(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("Xvfb")
	if err != nil {
		t.Skip("Xvfb is not installed")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	x := exec.Command(path, "-displayfd", "3", "-screen", "0", "1280x1024x24", "-nolisten", "tcp")
	x.ExtraFiles = []*os.File{w}
	err = x.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		x.Process.Kill()
		x.Wait()
	})
	number, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal("Xvfb has no display")
	}
	return ":" + strings.TrimSpace(number)
}

// A person logs in and closes the window, and sessions start with that.
func TestLogin(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"window", "unseen"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			site := members(t)
			w.env = append(w.env, "XDG_STATE_HOME="+w.dir+"/xdg")
			args := []string{"--state-save", "ann"}
			if kind == "window" {
				w.env = append(w.env, "DISPLAY="+display(t))
			} else {
				args = append(args, unseen)
			}
			l := w.login(site+"/login", args...)
			l.wire.shows("logged in")
			// The last thing that the page does is saved, too.
			l.wire.ask("Runtime.evaluate", `{"expression":"localStorage.setItem('token', 'last')"}`)
			l.close().wants(t, 0, `saved the state "ann" (cookies: 1, origins with storage: 1)`)
			if strings.Contains(l.errs.String(), "s3cret") {
				t.Errorf("a value of the state is shown:\n%s", l.errs.String())
			}
			w.clean()
			p := w.proxy("--isolate")
			w.run("bproxy", "session", "new", "x", "--state", "ann").wants(t, 0, "")
			c := firstPage(t, p.url+"/session/x")
			c.open(site)
			c.shows("shows ann, last, s3cret-key")
			p.stop()
			w.clean()
		})
	}
}

// Whatever ends blaunch, a state is saved as a whole or is as it was.
func TestLoginEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := members(t)
	w.env = append(w.env, "XDG_STATE_HOME="+w.dir+"/xdg")
	saved := func() string { return w.run("bproxy", "state", "export", "ann").out }
	t.Run("TERM", func(t *testing.T) {
		l := w.login(site+"/login", "--state-save", "ann", unseen)
		l.wire.shows("logged in")
		l.cmd.Process.Signal(syscall.SIGTERM)
		l.ends().wants(t, 0, "saved the state")
		if got := saved(); !strings.Contains(got, "s3cret-cookie") || !strings.Contains(got, "s3cret-token") {
			t.Errorf("the state is %s", got)
		}
		w.clean()
	})
	before := saved()
	t.Run("KILL", func(t *testing.T) {
		l := w.login(site+"/login", "--state-save", "ann", unseen)
		l.wire.shows("logged in")
		l.cmd.Process.Kill()
		l.ends()
		until(t, "the browser has ended", func() bool { return len(w.ours()) == 0 })
		w.run("blaunch", "gc").wants(t, 0, "")
		if got := saved(); got != before {
			t.Errorf("the state is %s, want it as it was", got)
		}
		w.clean()
	})
	t.Run("nothing to save", func(t *testing.T) {
		l := w.login(site+"/", "--state-save", "ann", unseen, "--no-default-args")
		l.close().wants(t, 1, `cannot save the state "ann": no page has set a cookie or stored anything`)
		if got := saved(); got != before {
			t.Errorf("the state is %s, want it as it was", got)
		}
		w.clean()
	})
	t.Run("with a command", func(t *testing.T) {
		l := w.login(site+"/login", "--state-save", "bob", unseen, "--", "sh", "-c",
			fmt.Sprintf(`echo {cdp_endpoint}; while ! test -e %s/go; do sleep 0.1; done; exit 3`, w.dir))
		l.wire.shows("logged in")
		write(t, w.dir+"/go", "")
		l.ends().wants(t, 3, `saved the state "bob"`)
		w.clean()
	})
	t.Run("a full disk", func(t *testing.T) {
		full, fill := w.smallDisk()
		w.env = append(w.env, "XDG_STATE_HOME="+full)
		defer func() { w.env = w.env[:len(w.env)-1] }()
		l := w.login(site+"/login", "--state-save", "ann", unseen)
		l.wire.shows("logged in")
		fill(0)
		l.cmd.Process.Signal(syscall.SIGTERM)
		l.ends().wants(t, 1, "no space left on device")
		w.clean()
	})
}

func TestLoginRefuses(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "XDG_STATE_HOME="+w.dir+"/xdg")
	w.run("blaunch", "--state-save", "ann").wants(t, 64, "--state-save needs --no-headless")
	w.run("blaunch", "--headless", "--state-save", "ann").wants(t, 64, "--state-save needs --no-headless")
	w.run("blaunch", "--no-headless", "--state-save", "../ann").wants(t, 64, "not the name of a state")
	for _, b := range []string{"firefox", "chrome-headless-shell"} {
		w.run("blaunch", "--no-headless", "--state-save", "ann", "--browser", b).wants(t, 64, "not "+b)
	}
	w.run("blaunch", "--no-headless", "--state-save", "ann", "--browser", "chromium").wants(t, 69, "no display")
	write(t, w.dir+"/file", "")
	w.env = append(w.env, "XDG_STATE_HOME="+w.dir+"/file")
	w.run("blaunch", "--no-headless", "--state-save", "ann").wants(t, 1, "cannot save a state")
	w.clean()
}
