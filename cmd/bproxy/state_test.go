//go:build linux

package main_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

func TestStateCommands(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	dir := w.Dir + "/xdg/btools/states"
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
	w.Run("bproxy", "state", "list").Exits(t, 0, "")
	w.Run("bproxy", "state", "show", "x").Exits(t, 69, `there is no state "x"`)
	w.Run("bproxy", "state", "show", "../x").Exits(t, 64, "not the name of a state")
	w.Run("bproxy", "state", "save", "x").Exits(t, 64, "save needs --from")
	w.Run("bproxy", "state", "save", "x", "--from", "y").Exits(t, 69, "no bproxy share is running")
	w.Run("bproxy", "--state", "x").Exits(t, 64, "--state is an option of bproxy share")
	w.Run("bproxy", "--isolate", "--state", "x").Exits(t, 69, `there is no state "x"`)
	cmdtest.WriteFile(t, w.Dir+"/ann.json", `{"cookies":[{"name":"a","value":"s3cret","domain":".a.test","path":"/",
		"expires":1893456000,"httpOnly":true,"secure":true,"sameSite":"Lax"}],"origins":[{"origin":"https://a.test",
		"localStorage":[{"name":"n","value":"s3cret"}]}],"credentials":[{"id":"s3cret"}]}`)
	r := w.Run("bproxy", "state", "import", w.Dir+"/ann.json")
	r.Exits(t, 0, "not in the state: credentials")
	fields := "state.name,state.cookie_count,state.earliest_expiry,state.origins"
	if list := w.Run("bproxy", "state", "list", "-f", fields); list.Out !=
		"ann\t1\t2030-01-01T00:00:00.000Z\t[\"https://a.test\"]\n" {
		t.Errorf("the list is %q", list.Out)
	}
	if show := w.Run("bproxy", "state", "show", "ann"); strings.Contains(show.Out, "s3cret") ||
		!strings.Contains(show.Out, `"item_count":1`) {
		t.Errorf("the state is shown as %s", show.Out)
	}
	var state struct{ Cookies, Origins []json.RawMessage }
	if out := w.Run("bproxy", "state", "export", "ann").Out; json.Unmarshal([]byte(out), &state) != nil ||
		len(state.Cookies) != 1 || len(state.Origins) != 1 || !strings.Contains(out, "s3cret") {
		t.Errorf("the state is exported as %s", out)
	}
	for text, want := range map[string]string{
		`{"cookies":[{"name":"a","value":77123,"domain":"a"}]}`: "cookies.value is not a string",
		`{"cookies":["s3cret"`:                        "not valid JSON at byte",
		`{"cookies":[{"name":"a","value":"s3cret"}]}`: "cookies[0]: it has no domain",
		`{"origins":[{"origin":"s3cret"}]}`:           "origins[0]: origin is not an origin",
	} {
		cmdtest.WriteFile(t, w.Dir+"/bad.json", text)
		r := w.Run("bproxy", "state", "import", w.Dir+"/bad.json")
		r.Exits(t, 65, want)
		if strings.Contains(r.Err, "s3cret") || strings.Contains(r.Err, "77123") {
			t.Errorf("the error has a value in it: %s", r.Err)
		}
	}
	cmdtest.WriteFile(t, dir+"/newer.json", `{"version":2,"state":"s3cret"}`)
	cmdtest.WriteFile(t, dir+"/damaged.json", `{"version":1,"state":{"cook`)
	cmdtest.WriteFile(t, dir+"/ann.json.new", `{"version":1`)
	w.Run("bproxy", "--isolate", "--state", "newer").Exits(t, 65, "of a newer btools")
	w.Run("bproxy", "--isolate", "--state", "damaged").Exits(t, 65, "is damaged")
	w.Run("bproxy", "state", "list").Exits(t, 0, "is damaged")
	if _, err := os.Stat(dir + "/ann.json.new"); err == nil {
		t.Error("a file of a writer that was killed is still there")
	}
	w.Run("bproxy", "state", "delete", "damaged").Exits(t, 0, "")
	w.Run("bproxy", "state", "delete", "damaged").Exits(t, 69, "there is no state")
	if os.Geteuid() == 0 {
		os.Chown(dir+"/ann.json", 65534, 65534)
		w.Run("bproxy", "state", "export", "ann").Exits(t, 69, "belongs to another user")
	}
	w.Clean()
}

// A disk that fills up during a save leaves the old state.
func TestStateFullDisk(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	full, fill := w.SmallDisk()
	w.Env = append(w.Env, "XDG_STATE_HOME="+full)
	cmdtest.WriteFile(t, w.Dir+"/s.json",
		`{"origins":[{"origin":"https://a.test","localStorage":[{"name":"old","value":""}]}]}`)
	w.Run("bproxy", "state", "import", w.Dir+"/s.json").Exits(t, 0, "")
	before := w.Run("bproxy", "state", "export", "s").Out
	fill(16 << 10)
	cmdtest.WriteFile(t, w.Dir+"/s.json",
		`{"origins":[{"origin":"https://a.test","localStorage":[{"name":"new","value":"`+
			strings.Repeat("x", 64<<10)+`"}]}]}`)
	w.Run("bproxy", "state", "import", w.Dir+"/s.json").Exits(t, 1, "no space left on device")
	if after := w.Run("bproxy", "state", "export", "s").Out; after != before || before == "" {
		t.Errorf("the state is %q, and was %q", after, before)
	}
	if files, err := os.ReadDir(full + "/btools/states"); err != nil || len(files) != 2 { // with the lock
		t.Errorf("the directory has %v, %v", files, err)
	}
}

// The proxy that runs the sessions has the states, wherever its client would have them;
// of several that run, the one that is named.
func TestStatesOfAProxy(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	there := w.With("XDG_STATE_HOME=" + w.Dir + "/there")
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/here")
	dir := w.Dir + "/there/btools/states"
	cmdtest.WriteFile(t, w.Dir+"/ann.json", `{"origins":[{"origin":"https://a.test"}],"credentials":[1]}`)
	cmdtest.WriteFile(t, w.Dir+"/bad.json", `{"cookies":["s3cret"`)
	state := func(args ...string) cmdtest.Result { return w.Run("bproxy", append([]string{"state"}, args...)...) }
	state("import", w.Dir+"/ann.json", "--name", "here").Exits(t, 0, "")
	names := func(args ...string) string {
		return state(append([]string{"list", "-f", "state.name"}, args...)...).Out
	}

	p := there.Proxy("--isolate", "--browser", cmdtest.Bin+"/fakebrowser")
	if got := names(); got != "" {
		t.Errorf("the proxy has %q", got)
	}
	state("import", w.Dir+"/ann.json").Exits(t, 0, "not in the state: credentials")
	if _, err := os.Stat(dir + "/ann.json"); err != nil {
		t.Error(err)
	}
	state("import", w.Dir+"/bad.json", "--name", "ann").Exits(t, 65, `cannot import the state "ann": it is not valid`)
	state("import", w.Dir).Exits(t, 65, "cannot import: read ")
	if got := state("export", "ann").Out; !strings.Contains(got, "https://a.test") {
		t.Errorf("the state is exported as %s", got)
	}
	cmdtest.WriteFile(t, dir+"/damaged.json", `{"version":1,"state":{"cook`)
	state("show", "damaged").Exits(t, 65, "is damaged")
	w.Run("bproxy", "session", "new", "s", "--state", "damaged").Exits(t, 65, "is damaged")
	w.Run("bproxy", "session", "new", "s", "--state", "here").Exits(t, 69, `there is no state "here"`)
	state("list").Exits(t, 0, "is damaged")
	state("delete", "damaged").Exits(t, 0, "")
	state("delete", "here").Exits(t, 69, `there is no state "here"`)

	second := w.Proxy("--isolate", "--browser", cmdtest.Bin+"/fakebrowser")
	_, port, _ := strings.Cut(p.Addr, ":")
	if here, there := names(), names("--port", port); here != "here\n" || there != "ann\n" {
		t.Errorf("of two proxies none has %q and one %q", here, there)
	}
	second.Stop()
	p.Stop()
	if got := names(); got != "here\n" {
		t.Errorf("without a proxy there are %q", got)
	}
	w.Clean()
}
