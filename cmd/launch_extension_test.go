//go:build linux

package cmd_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// hubHere starts a hub whose pairing code is in the test's own directory.
func (w *world) hubHere(args ...string) *proxy {
	w.t.Helper()
	w.env = append(w.env, "XDG_STATE_HOME="+w.dir+"/xdg")
	p := &proxy{t: w.t, w: w}
	p.cmd = w.cmd("bproxy", "extension") // without the flags of a launch
	p.cmd.Args = append([]string{"bproxy", "--extension", "--no-input", "--listen=127.0.0.1:0",
		"--ports=" + portsOfTest()}, args...)
	p.start()
	return p
}

// portsOfTest is a range of ports for browsers that join: those of the hubs of
// several tests at once are skipped.
func portsOfTest() string { return "23300-23999" }

// joiner is the record of a browser that was launched with the extension.
type joiner struct {
	rec
	Joined struct {
		ID      string
		HTTPURL string `json:"http_url"`
		WSURL   string `json:"ws_url"`
	}
}

func parseJoiner(t *testing.T, r result) (j joiner) {
	t.Helper()
	j.rec = parse(t, r)
	if err := json.Unmarshal([]byte(r.out), &j); err != nil || j.Joined.ID == "" {
		t.Fatalf("it has not joined: %s", r.out)
	}
	return j
}

// joinedIDs are the browsers at the hubs of this test.
func (w *world) joinedIDs() []string {
	return strings.Fields(w.run("bproxy", "list", "-f", "joined.id").out)
}

// A browser that is launched with the extension joins the hub, as itself.
func TestLaunchWithExtension(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	launch := func(t *testing.T, args ...string) joiner {
		t.Helper()
		return parseJoiner(t, w.run("blaunch", append([]string{"--browser", "chromium", "--extension"}, args...)...))
	}
	gone := func(t *testing.T) {
		t.Helper()
		until(t, "nothing has joined", func() bool { return len(w.joinedIDs()) == 0 })
	}
	w.run("blaunch", "--browser", "chromium", "--extension").wants(t, 69, "start one with bproxy --extension")
	hub := w.hubHere()

	t.Run("several at once", func(t *testing.T) {
		var all [3]result
		var wg sync.WaitGroup
		for n := range all {
			wg.Go(func() { all[n] = w.run("blaunch", "--browser", "chromium", "--extension") })
		}
		wg.Wait()
		for _, r := range all {
			j := parseJoiner(t, r)
			if want := hub.url + "/session/" + j.Joined.ID; j.Joined.HTTPURL != want {
				t.Errorf("its address at the hub is %s, want %s", j.Joined.HTTPURL, want)
			}
			// What is opened at its place at the hub is in the browser itself.
			answer := dial(t, j.Joined.WSURL).ask("Target.createTarget", `{"url":"about:blank"}`)
			_, target, _ := strings.Cut(answer, `"targetId":"`)
			target, _, ok := strings.Cut(target, `"`)
			if _, list := get(t, "GET", j.Instance.HTTPURL+"/json/list"); !ok || !strings.Contains(list, target) {
				t.Errorf("%s is not in the browser itself: %s", answer, list)
			}
			files, _ := filepath.Glob(w.dir + "/btools-" + j.Instance.ID + "/extension/config.json")
			if len(files) == 0 {
				t.Error("the extension is not in the browser's own directory")
			}
			syscall.Kill(j.Instance.PID, syscall.SIGKILL)
		}
		gone(t)
		until(t, "the directories are deleted", func() bool {
			dirs, _ := filepath.Glob(w.dir + "/btools-*/extension")
			return len(dirs) == 0
		})
	})

	// A profile keeps the instance's ID and not the mark: what happened to the
	// browser before does not keep it from joining again.
	t.Run("profile", func(t *testing.T) {
		profile := w.dir + "/profile"
		first := launch(t, "--profile", profile)
		if r := w.run("bproxy", "stop", first.Joined.ID); r.code != 0 {
			t.Error(r.err)
		}
		gone(t)
		w.run("blaunch", "stop", first.Instance.ID)
		second := launch(t, "--profile", profile, "--hub", hub.url)
		if first.Joined.ID != second.Joined.ID {
			t.Errorf("first it was %s, then %s", first.Joined.ID, second.Joined.ID)
		}
		w.run("blaunch", "stop", second.Instance.ID)
		gone(t)
	})

	// Chrome ignores the switch that loads extensions.
	t.Run("chrome", func(t *testing.T) {
		chrome := w.dir + "/bin/chrome"
		write(t, chrome, `#!/bin/sh
for a do case $a in --load-extension* | --disable-extensions-except*) exit 1 ;; esac; done
exec chromium "$@"
`)
		j := launch(t, "--browser", chrome)
		if j.Browser.Type != "chrome" {
			t.Errorf("it is %s", j.Browser.Type)
		}
		w.run("blaunch", "stop", j.Instance.ID)
		gone(t)
	})

	t.Run("window", func(t *testing.T) {
		w.env = append(w.env, "DISPLAY="+display(t))
		j := launch(t, "--no-headless")
		w.run("blaunch", "stop", j.Instance.ID)
		gone(t)
	})

	t.Run("refused", func(t *testing.T) {
		firefox := w.dir + "/bin/firefox"
		write(t, firefox, "#!/bin/sh\n")
		for message, args := range map[string][]string{
			"--hub needs --extension":                         {"--hub", "3300"},
			"--hub must be a port or an address":              {"--extension", "--hub", "x"},
			"--extension and --state-save exclude each other": {"--extension", "--no-headless", "--state-save", "x"},
			"--extension needs a browser based on Chromium":   {"--extension", "--browser", firefox},
		} {
			w.run("blaunch", args...).wants(t, 64, message)
		}
		w.run("blaunch", "--extension", "--hub", "1").wants(t, 69, "no hub is running at 1")
	})

	// A browser whose extension cannot join any more is stopped.
	t.Run("hub ends", func(t *testing.T) {
		r := make(chan result)
		go func() { r <- w.fake("", "--extension") }()
		until(t, "it is running", func() bool { return len(w.browsers()) > 0 })
		hub.stop()
		(<-r).wants(t, 75, "Extension failed to connect")
		w.clean()
	})
}
