//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// instanceOf is a browser as browser_instance shows it.
type instanceOf struct {
	InstanceID string
	HTTPURL    string
	Launched   bool
	Headless   bool
	Claimed    bool
	Mode       string
	Profile    string
}

// instances calls browser_instance.
func instances(m *cmdtest.MCP, t *testing.T, args string) (x struct {
	Instances []instanceOf
	Instance  instanceOf
	Closed    string
	Profiles  []struct {
		Browser, Profile, Name string
		InUse                  bool
	}
}) {
	t.Helper()
	r := m.Tool("browser_instance", args).Tool(t)
	if r.IsError {
		t.Fatalf("%s: %s", args, r.Text())
	}
	b, err := json.Marshal(r.Struct)
	if err == nil {
		err = json.Unmarshal(b, &x)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// instanceFails asserts the error of a call of browser_instance.
func instanceFails(m *cmdtest.MCP, t *testing.T, args, want string) {
	t.Helper()
	m.Tool("browser_instance", args).MustFail(t, want)
}

// An agent launches browsers that join the hub, and closes them.
func TestBrowserInstance(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	home, err := os.MkdirTemp("", "h")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	w.Env = append(w.Env, "HOME="+home)
	hub := w.HubHere()
	visits := make(chan string, 100)
	site := cmdtest.Serve(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/favicon.ico" {
			visits <- r.URL.Path
		}
		fmt.Fprint(rw, "<title>"+r.URL.Path+"</title>")
	})
	visited := func(t *testing.T, path string) {
		t.Helper()
		cmdtest.Until(t, path+" is visited", func() bool {
			for len(visits) > 0 {
				if <-visits == path {
					return true
				}
			}
			return false
		})
	}
	usersChrome(w, home, hub)
	w.Env = append(w.Env, "DISPLAY="+cmdtest.Display(t))
	m := w.StartMCP(nil, "--extension")
	m.Initialize("{}")

	t.Run("chromium", func(t *testing.T) {
		if all := instances(m, t, `{"action":"list"}`).Instances; len(all) != 0 {
			t.Errorf("at first there are %+v", all)
		}
		first := instances(m, t, `{"action":"new","url":"`+site+`/first"}`).Instance
		visited(t, "/first")
		if !first.Launched || !first.Headless || first.Mode != "chromium" ||
			first.HTTPURL != hub.URL+"/session/"+first.InstanceID {
			t.Errorf("launched %+v", first)
		}
		cmdtest.WriteFile(t, w.Dir+"/mine/manifest.json", `{"manifest_version":3,"name":"mine","version":"1",
			"content_scripts":[{"matches":["http://127.0.0.1/*"],"js":["mine.js"]}]}`)
		cmdtest.WriteFile(t, w.Dir+"/mine/mine.js", `fetch("/from-extension")`)
		second := instances(m, t, `{"action":"new","headless":false,"url":"`+site+
			`/second","extensions":["mine"],"closeOtherTabs":true}`).Instance
		visited(t, "/second")
		visited(t, "/from-extension")
		all := instances(m, t, `{"action":"list"}`).Instances
		if len(all) != 2 || all[0].InstanceID != first.InstanceID || all[1].InstanceID != second.InstanceID ||
			all[1].Headless {
			t.Errorf("there are %+v, want %s and %s", all, first.InstanceID, second.InstanceID)
		}
		// Another program's is listed, and its own to close.
		other := cmdtest.ParseJoiner(t, w.Run("blaunch", "--browser", "chromium", "--extension"))
		instanceFails(m, t, `{"action":"close","instanceId":"`+other.Joined.ID+`"}`, "was not launched here")
		w.Run("blaunch", "stop", other.Instance.ID)

		if instances(m, t, `{"action":"close","instanceId":"`+first.InstanceID+`"}`).Closed != first.InstanceID {
			t.Error("it does not say what is closed")
		}
		if n := len(w.Browsers()); n != 1 {
			t.Errorf("%d browsers are running after one was closed", n)
		}
		instanceFails(m, t, `{"action":"close","instanceId":"`+first.InstanceID+`"}`, "is running")
		for _, pid := range w.Browsers() {
			n, _ := strconv.Atoi(pid)
			syscall.Kill(n, syscall.SIGKILL)
		}
		cmdtest.Until(t, "one that was killed has left", func() bool {
			return len(instances(m, t, `{"action":"list"}`).Instances) == 0
		})
	})

	t.Run("chrome", func(t *testing.T) {
		profiles := instances(m, t, `{"action":"profiles"}`).Profiles
		if len(profiles) != 1 || profiles[0].Browser != "chrome" || profiles[0].Name != "Ann" || profiles[0].InUse {
			t.Errorf("the profiles are %+v", profiles)
		}
		i := instances(m, t, `{"action":"new","mode":"chrome","profile":"Ann","closeOtherTabs":true,"url":"`+site+
			`/chrome"}`).Instance
		visited(t, "/chrome")
		if i.Mode != "chrome" || i.Profile != "chrome/Default" || i.Headless {
			t.Errorf("launched %+v", i)
		}
		if !instances(m, t, `{"action":"profiles"}`).Profiles[0].InUse {
			t.Error("the profile is not in use")
		}
		instanceFails(m, t, `{"action":"new","mode":"chrome"}`, "is in use")
		instances(m, t, `{"action":"close","instanceId":"`+i.InstanceID+`"}`)
		if left := w.Browsers(); len(left) != 0 {
			t.Errorf("it is running after it was closed: %v", left)
		}
		if instances(m, t, `{"action":"profiles"}`).Profiles[0].InUse {
			t.Error("the profile is in use after the end")
		}
	})

	// The browser tools use one that was launched, as no person's has joined.
	t.Run("tools", func(t *testing.T) {
		i := instances(m, t, `{"action":"new"}`).Instance
		for _, path := range []string{"/tool", "/again"} {
			m.Tool("browser_navigate", `{"url":"`+site+path+`"}`).MustSucceed(t)
			visited(t, path)
		}
		all := instances(m, t, `{"action":"list"}`).Instances
		if len(all) != 1 || !all[0].Claimed {
			t.Errorf("there are %+v, want one that is in use", all)
		}
		instances(m, t, `{"action":"close","instanceId":"`+i.InstanceID+`"}`)
		instances(m, t, `{"action":"new"}`)
		r := m.Tool("browser_navigate", `{"url":"`+site+`/other"}`).Tool(t)
		if r.IsError || !strings.Contains(r.Text(), "one has joined since") {
			t.Errorf("after another was launched: %s", r.Text())
		}
		visited(t, "/other")
		for _, i := range instances(m, t, `{"action":"list"}`).Instances {
			instances(m, t, `{"action":"close","instanceId":"`+i.InstanceID+`"}`)
		}
	})

	t.Run("testing", func(t *testing.T) {
		i := instances(m, t, `{"action":"new","mode":"testing"}`).Instance
		if i.Mode != "testing" || i.Headless {
			t.Errorf("launched %+v", i)
		}
		instances(m, t, `{"action":"close","instanceId":"`+i.InstanceID+`"}`)
	})

	t.Run("refused", func(t *testing.T) {
		for args, want := range map[string]string{
			`{"action":"new","profile":"Default"}`:              "Profile option is only valid with chrome mode.",
			`{"action":"new","mode":"testing","headless":true}`: "Headless option is only valid with chromium mode.",
			`{"action":"new","mode":"chrome","headless":false}`: "Headless option is only valid with chromium mode.",
			`{"action":"new","mode":"chrome","profile":"../x"}`: "there is no profile",
			`{"action":"new","mode":"/bin/sh"}`:                 "mode",
			`{"action":"new","url":"--no-sandbox"}`:             "url must be an address",
			`{"action":"new","url":"file:///etc/passwd"}`:       "url must be an address",
			`{"action":"new","extensions":["/etc"]}`:            "is not in",
			`{"action":"close"}`:                                "instanceId is missing",
			`{"action":"close","instanceId":"inst_1_x"}`:        `no browser "inst_1_x" is running`,
			`{"action":"open"}`:                                 "action",
			`{}`:                                                "action",
		} {
			instanceFails(m, t, args, want)
		}
	})

	// What is running ends with bmcp.
	t.Run("end", func(t *testing.T) {
		instances(m, t, `{"action":"new"}`)
		instances(m, t, `{"action":"new","mode":"chrome"}`)
		m.End()
		cmdtest.Until(t, "its browsers have left", func() bool { return len(w.JoinedIDs()) == 0 })
		cmdtest.Until(t, "its browsers have ended", func() bool { return len(w.Browsers()) == 0 })
	})

	t.Run("killed", func(t *testing.T) {
		m := w.StartMCP(nil, "--extension")
		m.Initialize("{}")
		instances(m, t, `{"action":"new"}`)
		instances(m, t, `{"action":"new","mode":"chrome"}`)
		m.Cmd.Process.Kill()
		m.Cmd.Wait()
		cmdtest.Until(t, "its browsers have left", func() bool { return len(w.JoinedIDs()) == 0 })
		cmdtest.Until(t, "its browsers have ended", func() bool { return len(w.Browsers()) == 0 })
		// Nobody is left to remove the socket of the user's browser.
		sockets, _ := filepath.Glob(w.Dir + "/org.chromium*")
		for _, dir := range sockets {
			os.RemoveAll(dir)
		}
	})
}

// usersChrome makes a Chrome that a user has installed, with a profile that has the
// extension, paired with a hub; and a Chrome for Testing.
func usersChrome(w *cmdtest.World, home string, hub *cmdtest.Proxy) {
	w.T.Helper()
	dir := home + "/extension"
	w.Run("bproxy", "extension", "--paired", "--hub", hub.URL, dir).Exits(w.T, 0, "")
	cmdtest.WriteFile(w.T, w.Dir+"/bin/google-chrome", `#!/bin/sh
exec chromium --no-sandbox --load-extension=`+dir+` --disable-extensions-except=`+dir+` "$@"
`)
	cmdtest.WriteFile(w.T, home+"/.cache/puppeteer/chrome/linux-156.0.8078.79/chrome-linux64/chrome", `#!/bin/sh
exec chromium "$@"
`)
	cmdtest.WriteFile(w.T, home+"/.config/google-chrome/Local State",
		`{"profile":{"info_cache":{"Default":{"name":"Ann"}},"last_used":"Default"}}`)
	i := slices.IndexFunc(w.Env, func(kv string) bool { return strings.HasPrefix(kv, "PATH="+cmdtest.Bin) })
	w.Env = append(w.Env, "PATH="+w.Dir+"/bin:"+strings.TrimPrefix(w.Env[i], "PATH="))
}
