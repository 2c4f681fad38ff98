//go:build linux

package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// login is a blaunch with the window in which a person logs in.
type login struct {
	t    *testing.T
	cmd  *exec.Cmd
	errs cmdtest.SyncBuffer
	at   string        // the endpoint
	page string        // the target of the page
	wire *cmdtest.Wire // to the page
}

// login opens a URL in the window of a blaunch. Without an X server the window is
// one that nobody sees.
func startLogin(w *cmdtest.World, url string, args ...string) *login {
	w.T.Helper()
	l := &login{t: w.T}
	l.cmd = w.Cmd("blaunch", append([]string{"--no-headless", "--browser=chromium", "--url", url}, args...)...)
	l.cmd.Stderr = &l.errs
	out := cmdtest.StartRead(w.T, l.cmd)
	cmdtest.StopAtEnd(w.T, l.cmd, &l.errs, func() { cmdtest.Terminate(l.cmd) })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		l.cmd.Wait()
		w.T.Fatalf("no browser: %v\n%s", err, l.errs.String())
	}
	if l.at = strings.TrimSpace(line); strings.HasPrefix(line, "{") {
		var x cmdtest.Record
		json.Unmarshal([]byte(line), &x)
		l.at = x.Instance.HTTPURL
	}
	go io.Copy(io.Discard, out)
	cmdtest.Until(w.T, "the page is open", func() bool {
		_, list := cmdtest.Get(w.T, "GET", l.at+"/json/list")
		var all []struct {
			ID, URL string
			WS      string `json:"webSocketDebuggerUrl"`
		}
		json.Unmarshal([]byte(list), &all)
		for _, p := range all {
			if p.URL == url {
				l.page, l.wire = p.ID, cmdtest.Dial(w.T, p.WS)
				return true
			}
		}
		return false
	})
	return l
}

// close closes the page, as a person does, and waits for the end of blaunch.
func (l *login) close() cmdtest.Result {
	l.t.Helper()
	cmdtest.Get(l.t, "GET", l.at+"/json/close/"+l.page)
	return l.ends()
}

func (l *login) ends() cmdtest.Result {
	l.cmd.Wait()
	return cmdtest.Result{Code: l.cmd.ProcessState.ExitCode(), Err: l.errs.String()}
}

// unseen makes the window of a blaunch one that needs no display.
const unseen = "--arg=--headless=new"

// A person logs in and closes the window, and sessions start with that.
func TestLogin(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"window", "unseen"} {
		t.Run(kind, func(t *testing.T) {
			w := cmdtest.New(t)
			site := cmdtest.LoginSite(t)
			w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
			args := []string{"--state-save", "ann"}
			if kind == "window" {
				w.Env = append(w.Env, "DISPLAY="+cmdtest.Display(t))
			} else {
				args = append(args, unseen)
			}
			l := startLogin(w, site+"/login", args...)
			l.wire.AwaitTitle("logged in")
			// The last thing that the page does is saved, too.
			l.wire.Ask("Runtime.evaluate", `{"expression":"localStorage.setItem('token', 'last')"}`)
			l.close().Exits(t, 0, `saved the state "ann" (cookies: 1, origins with storage: 1)`)
			if strings.Contains(l.errs.String(), "s3cret") {
				t.Errorf("a value of the state is shown:\n%s", l.errs.String())
			}
			w.Clean()
			p := w.Proxy("--isolate")
			w.Run("bproxy", "session", "new", "x", "--state", "ann").Exits(t, 0, "")
			c := cmdtest.FirstPage(t, p.URL+"/session/x")
			c.Open(site)
			c.AwaitTitle("shows ann, last, s3cret-key")
			p.Stop()
			w.Clean()
		})
	}
}

// Whatever ends blaunch, a state is saved as a whole or is as it was.
func TestLoginEnds(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site := cmdtest.LoginSite(t)
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
	saved := func() string { return w.Run("bproxy", "state", "export", "ann").Out }
	t.Run("TERM", func(t *testing.T) {
		l := startLogin(w, site+"/login", "--state-save", "ann", unseen)
		l.wire.AwaitTitle("logged in")
		l.cmd.Process.Signal(syscall.SIGTERM)
		l.ends().Exits(t, 0, "saved the state")
		if got := saved(); !strings.Contains(got, "s3cret-cookie") || !strings.Contains(got, "s3cret-token") {
			t.Errorf("the state is %s", got)
		}
		w.Clean()
	})
	before := saved()
	t.Run("KILL", func(t *testing.T) {
		l := startLogin(w, site+"/login", "--state-save", "ann", unseen)
		l.wire.AwaitTitle("logged in")
		l.cmd.Process.Kill()
		l.ends()
		cmdtest.Until(t, "the browser has ended", func() bool { return len(w.Processes()) == 0 })
		w.Run("blaunch", "gc").Exits(t, 0, "")
		if got := saved(); got != before {
			t.Errorf("the state is %s, want it as it was", got)
		}
		w.Clean()
	})
	t.Run("nothing to save", func(t *testing.T) {
		l := startLogin(w, site+"/", "--state-save", "ann", unseen, "--no-default-args")
		l.close().Exits(t, 1, `cannot save the state "ann": no page has set a cookie or stored anything`)
		if got := saved(); got != before {
			t.Errorf("the state is %s, want it as it was", got)
		}
		w.Clean()
	})
	t.Run("with a command", func(t *testing.T) {
		l := startLogin(w, site+"/login", "--state-save", "bob", unseen, "--", "sh", "-c",
			fmt.Sprintf(`echo {cdp_endpoint}; while ! test -e %s/go; do sleep 0.1; done; exit 3`, w.Dir))
		l.wire.AwaitTitle("logged in")
		cmdtest.WriteFile(t, w.Dir+"/go", "")
		l.ends().Exits(t, 3, `saved the state "bob"`)
		w.Clean()
	})
	t.Run("a full disk", func(t *testing.T) {
		full, fill := w.SmallDisk()
		w.Env = append(w.Env, "XDG_STATE_HOME="+full)
		defer func() { w.Env = w.Env[:len(w.Env)-1] }()
		l := startLogin(w, site+"/login", "--state-save", "ann", unseen)
		l.wire.AwaitTitle("logged in")
		fill(0)
		l.cmd.Process.Signal(syscall.SIGTERM)
		l.ends().Exits(t, 1, "no space left on device")
		w.Clean()
	})
}

func TestLoginRefuses(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
	w.Run("blaunch", "--state-save", "ann").Exits(t, 64, "--state-save needs --no-headless")
	w.Run("blaunch", "--headless", "--state-save", "ann").Exits(t, 64, "--state-save needs --no-headless")
	w.Run("blaunch", "--no-headless", "--state-save", "../ann").Exits(t, 64, "not the name of a state")
	for _, b := range []string{"firefox", "chrome-headless-shell"} {
		w.Run("blaunch", "--no-headless", "--state-save", "ann", "--browser", b).Exits(t, 64, "not "+b)
	}
	w.Run("blaunch", "--no-headless", "--state-save", "ann", "--browser", "chromium").Exits(t, 69, "no display")
	cmdtest.WriteFile(t, w.Dir+"/file", "")
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/file")
	w.Run("blaunch", "--no-headless", "--state-save", "ann").Exits(t, 1, "cannot save a state")
	w.Clean()
}
