//go:build linux

package main_test

import (
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// A browser that is launched with the extension joins the hub, as itself.
func TestLaunchWithExtension(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	launch := func(t *testing.T, args ...string) cmdtest.Joiner {
		t.Helper()
		return cmdtest.ParseJoiner(t, w.Run("blaunch", append([]string{"--browser", "chromium", "--extension"},
			args...)...))
	}
	gone := func(t *testing.T) {
		t.Helper()
		cmdtest.Until(t, "nothing has joined", func() bool { return len(w.JoinedIDs()) == 0 })
	}
	w.Run("blaunch", "--browser", "chromium", "--extension").Exits(t, 69, "start one with bproxy hub")

	t.Run("somebody else's", func(t *testing.T) {
		dir := filepath.Join(w.Dir, "theirs")
		cmdtest.WriteFile(t, dir+"/manifest.json",
			`{"manifest_version":3,"name":"theirs","version":"1","background":{"service_worker":"worker.js"}}`)
		cmdtest.WriteFile(t, dir+"/worker.js", "")
		r := w.Run("blaunch", "--browser", "chromium", "--arg=--load-extension="+dir,
			"-f", "instance.http_url,instance.id")
		url, id, _ := strings.Cut(strings.TrimSpace(r.Out), "\t")
		cmdtest.Until(t, "its worker runs", func() bool {
			_, list := cmdtest.Get(t, "GET", url+"/json/list")
			return strings.Contains(list, "/worker.js")
		})
		w.Run("blaunch", "stop", id)
	})
	hub := w.HubHere()

	t.Run("several at once", func(t *testing.T) {
		var all [2]cmdtest.Result
		var wg sync.WaitGroup
		for n := range all {
			wg.Go(func() { all[n] = w.Run("blaunch", "--browser", "chromium", "--extension") })
		}
		wg.Wait()
		for _, r := range all {
			j := cmdtest.ParseJoiner(t, r)
			if want := hub.URL + "/session/" + j.Joined.ID; j.Joined.HTTPURL != want {
				t.Errorf("its address at the hub is %s, want %s", j.Joined.HTTPURL, want)
			}
			// What is opened at its place at the hub is in the browser itself.
			answer := cmdtest.Dial(t, j.Joined.WSURL).Ask("Target.createTarget", `{"url":"about:blank"}`)
			_, target, _ := strings.Cut(answer, `"targetId":"`)
			target, _, ok := strings.Cut(target, `"`)
			if _, list := cmdtest.Get(t, "GET", j.Instance.HTTPURL+"/json/list"); !ok || !strings.Contains(list,
				target) {
				t.Errorf("%s is not in the browser itself: %s", answer, list)
			}
			files, _ := filepath.Glob(w.Dir + "/btools-" + j.Instance.ID + "/extension/config.json")
			if len(files) == 0 {
				t.Error("the extension is not in the browser's own directory")
			}
			syscall.Kill(j.Instance.PID, syscall.SIGKILL)
		}
		gone(t)
		cmdtest.Until(t, "the directories are deleted", func() bool {
			dirs, _ := filepath.Glob(w.Dir + "/btools-*/extension")
			return len(dirs) == 0
		})
	})

	// A profile keeps the instance's ID and not the mark: what happened to the
	// browser before does not keep it from joining again. The first browser is a
	// Chrome, which ignores the switch that loads extensions.
	t.Run("profile", func(t *testing.T) {
		profile, chrome := w.Dir+"/profile", w.Dir+"/bin/chrome"
		cmdtest.WriteFile(t, chrome, `#!/bin/sh
for a do case $a in --load-extension* | --disable-extensions-except*) exit 1 ;; esac; done
exec chromium "$@"
`)
		first := launch(t, "--profile", profile, "--browser", chrome)
		if first.Browser.Type != "chrome" {
			t.Errorf("it is %s", first.Browser.Type)
		}
		if r := w.Run("bproxy", "stop", first.Joined.ID); r.Code != 0 {
			t.Error(r.Err)
		}
		gone(t)
		w.Run("blaunch", "stop", first.Instance.ID)
		second := launch(t, "--profile", profile, "--hub", hub.URL)
		if first.Joined.ID != second.Joined.ID {
			t.Errorf("first it was %s, then %s", first.Joined.ID, second.Joined.ID)
		}
		w.Run("blaunch", "stop", second.Instance.ID)
		gone(t)
	})

	t.Run("window", func(t *testing.T) {
		w.Env = append(w.Env, "DISPLAY="+cmdtest.Display(t))
		j := launch(t, "--no-headless")
		w.Run("blaunch", "stop", j.Instance.ID)
		gone(t)
	})

	t.Run("refused", func(t *testing.T) {
		firefox := w.Dir + "/bin/firefox"
		cmdtest.WriteFile(t, firefox, "#!/bin/sh\n")
		for message, args := range map[string][]string{
			"--hub needs --extension":                         {"--hub", "3300"},
			"is not a port or an address":                     {"--extension", "--hub", "x"},
			"--extension and --state-save exclude each other": {"--extension", "--no-headless", "--state-save", "x"},
			"--extension needs a browser based on Chromium":   {"--extension", "--browser", firefox},
		} {
			w.Run("blaunch", args...).Exits(t, 64, message)
		}
		w.Run("blaunch", "--extension", "--hub", "1").Exits(t, 69, "no bproxy hub listens on port 1")
	})

	// A browser whose extension cannot join any more is stopped.
	t.Run("hub ends", func(t *testing.T) {
		r := make(chan cmdtest.Result)
		go func() { r <- w.Fake("", "--extension") }()
		cmdtest.Until(t, "it is running", func() bool { return len(w.Browsers()) > 0 })
		hub.Stop()
		(<-r).Exits(t, 75, "Extension failed to connect")
		w.Clean()
	})
}
