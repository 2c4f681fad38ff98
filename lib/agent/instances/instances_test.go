//go:build unix

package instances

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btools/lib/extension/keep"
	"btools/lib/state"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newSet returns a set for a user whose home directory is new and short.
func newSet(t *testing.T) *Set {
	t.Helper()
	home, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	env := map[string]string{"BTOOLS_STATE": home + "/state.json"}
	getenv := func(name string) string { return env[name] }
	return &Set{Hubs: &keep.Keeper{Store: state.Open(getenv)}, Home: home, Getenv: getenv}
}

// What makes no sense is refused before anything is looked for.
func TestRequests(t *testing.T) {
	yes, s := true, newSet(t)
	for want, r := range map[string]Request{
		"Profile option is only valid with chrome mode.":    {Profile: "Default"},
		"Headless option is only valid with chromium mode.": {Mode: Testing, Headless: &yes},
		"mode is chromium, testing or chrome, not \"edge\"": {Mode: "edge"},
		"extensions are loaded in the modes chromium and":   {Mode: Chrome, Extensions: []string{"x"}},
		"url must be an address such as https://example":    {URL: "--utility-cmd-prefix=sh"},
		"not \"file:///etc/passwd\"":                        {URL: "file:///etc/passwd"},
		"not \"chrome://settings\"":                         {URL: "chrome://settings"},
	} {
		if _, err := s.New(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
	if err := s.End(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "instanceId is missing") {
		t.Error(err)
	}
	s.Close()
	if _, err := s.New(t.Context(), Request{}); err != errClosed {
		t.Errorf("after the end: %v", err)
	}
}

// Profiles are those of all browsers, Chrome's first, and are in use as long as a
// browser listens.
func TestProfiles(t *testing.T) {
	s := newSet(t)
	if all, err := s.Profiles(); err != nil || len(all) != 0 {
		t.Errorf("without a browser: %v, %v", all, err)
	}
	if _, err := s.profile(""); err == nil {
		t.Error("there is a profile")
	}
	dirs := map[string]string{}
	for _, d := range userData {
		dirs[d.browser] = s.userDataDir(d.linux, d.darwin, d.windows)
	}
	write(t, dirs["chromium"]+"/Local State", `{"profile":{"info_cache":{"Default":{"name":"Tests"}}}}`)
	write(t, dirs["chrome"]+"/Local State", `{"profile":{"info_cache":{"Profile 1":{"name":"Work"},
		"Default":{"name":"Ann"},"../x":{"name":"out"}},"last_used":"Profile 1"}}`)
	write(t, dirs["edge"]+"/Local State", `{broken`)
	shown := func() (text string) {
		t.Helper()
		all, err := s.Profiles()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			text += fmt.Sprintf("%s/%s %s %v; ", p.Browser, p.Directory, p.Name, p.InUse)
		}
		return text
	}
	const rest = "chrome/Profile 1 Work %[1]v; chromium/Default Tests false; "
	free := fmt.Sprintf("chrome/Default Ann %[1]v; "+rest, false)
	if got := shown(); got != free {
		t.Errorf("got %s want %s", got, free)
	}
	for name, want := range map[string]string{
		"": "chrome/Profile 1", "Default": "chrome/Default", "Tests": "chromium/Default",
		"Ann": "chrome/Default", "chromium/Default": "chromium/Default",
	} {
		if p, err := s.profile(name); err != nil || p.Browser+"/"+p.Directory != want {
			t.Errorf("%q is %s/%s, %v", name, p.Browser, p.Directory, err)
		}
	}
	for _, none := range []string{"../x", "/etc", "edge/Default"} {
		if p, err := s.profile(none); err == nil {
			t.Errorf("%q is %+v", none, p)
		}
	}
	// A browser that was killed leaves its lock behind, and nobody listens.
	host, _ := os.Hostname()
	socket, lock := dirs["chrome"]+"/SingletonSocket", dirs["chrome"]+"/SingletonLock"
	os.Symlink(host+"-1", lock)
	if got := shown(); got != free {
		t.Errorf("after a kill: %s", got)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	inUse := fmt.Sprintf("chrome/Default Ann %[1]v; "+rest, true)
	if got := shown(); got != inUse {
		t.Errorf("while it is open: %s", got)
	}
	l.Close()
	os.Remove(lock)
	os.Symlink("another-host-1", lock)
	if got := shown(); got != inUse {
		t.Errorf("open on another machine: %s", got)
	}
}

// An agent names extensions of its project, and nothing else.
func TestExtensions(t *testing.T) {
	s := newSet(t)
	if _, err := s.extension("x"); err == nil {
		t.Error("one is found without a project")
	}
	s.Dir = s.Home + "/project"
	write(t, s.Dir+"/mine/manifest.json", "{}")
	write(t, s.Dir+"/none/file", "{}")
	write(t, s.Home+"/outside/manifest.json", "{}")
	os.Symlink(s.Home+"/outside", s.Dir+"/link")
	for _, name := range []string{"mine", s.Dir + "/mine", "./none/../mine"} {
		if dir, err := s.extension(name); err != nil || dir != s.Dir+"/mine" {
			t.Errorf("%s is %s, %v", name, dir, err)
		}
	}
	for _, name := range []string{"none", "missing", "link", "../outside", s.Home + "/outside", "/"} {
		if dir, err := s.extension(name); err == nil {
			t.Errorf("%s is %s", name, dir)
		}
	}
}
