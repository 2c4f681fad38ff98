//go:build linux

package cmd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
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
func (m *mcp) instances(t *testing.T, args string) (x struct {
	Instances []instanceOf
	Instance  instanceOf
	Closed    string
	Profiles  []struct {
		Browser, Profile, Name string
		InUse                  bool
	}
}) {
	t.Helper()
	r := m.tool("browser_instance", args).tool(t)
	if r.IsError {
		t.Fatalf("%s: %s", args, r.text())
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
func (m *mcp) instanceFails(t *testing.T, args, want string) {
	t.Helper()
	if r := m.tool("browser_instance", args).tool(t); !r.IsError || !strings.Contains(r.text(), want) {
		t.Errorf("%s: %s, want the error %q", args, r.text(), want)
	}
}

// An agent launches browsers that join the hub, and closes them.
func TestBrowserInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	home, err := os.MkdirTemp("/tmp", "bt-home-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	w.env = append(w.env, "HOME="+home)
	hub := w.hubHere()
	visits := make(chan string, 100)
	site := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/favicon.ico" {
			visits <- r.URL.Path
		}
		fmt.Fprint(rw, "<title>"+r.URL.Path+"</title>")
	}))
	defer site.Close()
	visited := func(t *testing.T, path string) {
		t.Helper()
		until(t, path+" is visited", func() bool {
			for len(visits) > 0 {
				if <-visits == path {
					return true
				}
			}
			return false
		})
	}
	w.usersChrome(home, hub)
	w.env = append(w.env, "DISPLAY="+display(t))
	m := w.startMCP(nil, "--extension")
	m.greet("{}")

	t.Run("chromium", func(t *testing.T) {
		if all := m.instances(t, `{"action":"list"}`).Instances; len(all) != 0 {
			t.Errorf("at first there are %+v", all)
		}
		first := m.instances(t, `{"action":"new","url":"`+site.URL+`/first"}`).Instance
		visited(t, "/first")
		if !first.Launched || !first.Headless || first.Mode != "chromium" ||
			first.HTTPURL != hub.url+"/session/"+first.InstanceID {
			t.Errorf("launched %+v", first)
		}
		write(t, w.dir+"/mine/manifest.json", `{"manifest_version":3,"name":"mine","version":"1",
			"content_scripts":[{"matches":["http://127.0.0.1/*"],"js":["mine.js"]}]}`)
		write(t, w.dir+"/mine/mine.js", `fetch("/from-extension")`)
		second := m.instances(t, `{"action":"new","headless":false,"url":"`+site.URL+
			`/second","extensions":["mine"],"closeOtherTabs":true}`).Instance
		visited(t, "/second")
		visited(t, "/from-extension")
		all := m.instances(t, `{"action":"list"}`).Instances
		if len(all) != 2 || all[0].InstanceID != first.InstanceID || all[1].InstanceID != second.InstanceID ||
			all[1].Headless {
			t.Errorf("there are %+v, want %s and %s", all, first.InstanceID, second.InstanceID)
		}
		// Another program's is listed, and its own to close.
		other := parseJoiner(t, w.run("blaunch", "--browser", "chromium", "--extension"))
		m.instanceFails(t, `{"action":"close","instanceId":"`+other.Joined.ID+`"}`, "was not launched here")
		w.run("blaunch", "stop", other.Instance.ID)

		if m.instances(t, `{"action":"close","instanceId":"`+first.InstanceID+`"}`).Closed != first.InstanceID {
			t.Error("it does not say what is closed")
		}
		if n := len(w.browsers()); n != 1 {
			t.Errorf("%d browsers are running after one was closed", n)
		}
		m.instanceFails(t, `{"action":"close","instanceId":"`+first.InstanceID+`"}`, "is running")
		for _, pid := range w.browsers() {
			n, _ := strconv.Atoi(pid)
			syscall.Kill(n, syscall.SIGKILL)
		}
		until(t, "one that was killed has left", func() bool {
			return len(m.instances(t, `{"action":"list"}`).Instances) == 0
		})
	})

	t.Run("chrome", func(t *testing.T) {
		profiles := m.instances(t, `{"action":"profiles"}`).Profiles
		if len(profiles) != 1 || profiles[0].Browser != "chrome" || profiles[0].Name != "Ann" || profiles[0].InUse {
			t.Errorf("the profiles are %+v", profiles)
		}
		i := m.instances(t, `{"action":"new","mode":"chrome","profile":"Ann","closeOtherTabs":true,"url":"`+site.URL+
			`/chrome"}`).Instance
		visited(t, "/chrome")
		if i.Mode != "chrome" || i.Profile != "chrome/Default" || i.Headless {
			t.Errorf("launched %+v", i)
		}
		if !m.instances(t, `{"action":"profiles"}`).Profiles[0].InUse {
			t.Error("the profile is not in use")
		}
		m.instanceFails(t, `{"action":"new","mode":"chrome"}`, "is in use")
		m.instances(t, `{"action":"close","instanceId":"`+i.InstanceID+`"}`)
		if left := w.browsers(); len(left) != 0 {
			t.Errorf("it is running after it was closed: %v", left)
		}
		if m.instances(t, `{"action":"profiles"}`).Profiles[0].InUse {
			t.Error("the profile is in use after the end")
		}
	})

	// The browser tools use one that was launched, as no person's has joined.
	t.Run("tools", func(t *testing.T) {
		i := m.instances(t, `{"action":"new"}`).Instance
		for _, path := range []string{"/tool", "/again"} {
			if r := m.tool("browser_navigate", `{"url":"`+site.URL+path+`"}`).tool(t); r.IsError {
				t.Fatal(r.text())
			}
			visited(t, path)
		}
		all := m.instances(t, `{"action":"list"}`).Instances
		if len(all) != 1 || !all[0].Claimed {
			t.Errorf("there are %+v, want one that is in use", all)
		}
		m.instances(t, `{"action":"close","instanceId":"`+i.InstanceID+`"}`)
		m.instances(t, `{"action":"new"}`)
		r := m.tool("browser_navigate", `{"url":"`+site.URL+`/other"}`).tool(t)
		if r.IsError || !strings.Contains(r.text(), "one has joined since") {
			t.Errorf("after another was launched: %s", r.text())
		}
		visited(t, "/other")
		for _, i := range m.instances(t, `{"action":"list"}`).Instances {
			m.instances(t, `{"action":"close","instanceId":"`+i.InstanceID+`"}`)
		}
	})

	t.Run("testing", func(t *testing.T) {
		i := m.instances(t, `{"action":"new","mode":"testing"}`).Instance
		if i.Mode != "testing" || i.Headless {
			t.Errorf("launched %+v", i)
		}
		m.instances(t, `{"action":"close","instanceId":"`+i.InstanceID+`"}`)
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
			m.instanceFails(t, args, want)
		}
	})

	// What is running ends with bmcp.
	t.Run("end", func(t *testing.T) {
		m.instances(t, `{"action":"new"}`)
		m.instances(t, `{"action":"new","mode":"chrome"}`)
		m.end()
		until(t, "its browsers have left", func() bool { return len(w.joinedIDs()) == 0 })
		until(t, "its browsers have ended", func() bool { return len(w.browsers()) == 0 })
	})

	t.Run("killed", func(t *testing.T) {
		m := w.startMCP(nil, "--extension")
		m.greet("{}")
		m.instances(t, `{"action":"new"}`)
		m.instances(t, `{"action":"new","mode":"chrome"}`)
		m.cmd.Process.Kill()
		m.cmd.Wait()
		until(t, "its browsers have left", func() bool { return len(w.joinedIDs()) == 0 })
		until(t, "its browsers have ended", func() bool { return len(w.browsers()) == 0 })
		// Nobody is left to remove the socket of the user's browser.
		sockets, _ := filepath.Glob(w.dir + "/org.chromium*")
		for _, dir := range sockets {
			os.RemoveAll(dir)
		}
	})
}

// usersChrome makes a Chrome that a user has installed, with a profile that has the
// extension, paired with a hub; and a Chrome for Testing.
func (w *world) usersChrome(home string, hub *proxy) {
	w.t.Helper()
	dir := home + "/extension"
	w.run("bproxy", "extension", "--paired", "--hub", hub.url, dir).wants(w.t, 0, "")
	write(w.t, w.dir+"/bin/google-chrome", `#!/bin/sh
exec chromium --no-sandbox --load-extension=`+dir+` --disable-extensions-except=`+dir+` "$@"
`)
	write(w.t, home+"/.cache/puppeteer/chrome/linux-156.0.8078.79/chrome-linux64/chrome", `#!/bin/sh
exec chromium "$@"
`)
	write(w.t, home+"/.config/google-chrome/Local State",
		`{"profile":{"info_cache":{"Default":{"name":"Ann"}},"last_used":"Default"}}`)
	i := slices.IndexFunc(w.env, func(kv string) bool { return strings.HasPrefix(kv, "PATH="+bin) })
	w.env = append(w.env, "PATH="+w.dir+"/bin:"+strings.TrimPrefix(w.env[i], "PATH="))
}
