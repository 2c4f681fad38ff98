//go:build linux

package cmd_test

import (
	"net"
	"os"
	"slices"
	"testing"

	"btools/lib/cmdtest"
)

// Each shell offers the programs' commands, their options, and the values of these:
// fixed ones, lists, files, directories, and the browsers and states that there are.
func TestCompletion(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/home")
	x := cmdtest.Parse(t, w.Fake(""))
	at := w.Dir + "/tree"
	for _, file := range []string{"/tree/a file", "/tree/dir/b", "/home/btools/states/shop.json"} {
		cmdtest.WriteFile(t, w.Dir+file, "{}")
	}
	types := []string{"chrome", "chromium", "chrome-headless-shell"}
	w.CheckOffers(map[string][]string{
		"blaunch stop ": {x.Instance.ID}, "blaunch stop inst": {x.Instance.ID},
		"blaunch stop " + x.Instance.ID + " ": nil,
		"blaunch l":                           {"list"}, "bproxy sta": {"state", "status"},
		"bpool re": {"renew", "release", "restart", "reload"},

		"blaunch --st": {"--stop-timeout", "--state-save"}, "bproxy cast --p": {"--page", "--port"},
		"bfind --first --f": {"--field"}, "blaunch --arg x --ar": {"--arg"}, "bport --": {"--count", "--range",
			"--host", "--reserve", "--wait", "--wait-timeout", "--output", "--field", "--no-input", "--log-level",
			"--log-format", "--help", "--version"},

		"blaunch --sandbox ": {"on", "off", "auto"}, "blaunch --sandbox=o": {"on", "off"},
		"bfind --channel s": {"stable"}, "bport --log-level d": {"debug"}, "bmcp --image-responses=": {"allow", "omit"},
		"bproxy --browser chr": types, "bproxy --browser " + at + "/di": {"dir"},
		"bport --host :": {"::1"}, "bmcp config cla": {"claude-code", "claude-desktop"},
		"bmcp config codex -- --image-responses a": {"allow"}, "bproxy session ": {"list", "new", "end"},

		"bmcp --tools a": {"all"}, "bmcp --tools core,st": {"core,storage"}, "bmcp --tools=core,st": {"core,storage"},
		"bmcp --tools all,browser_navigate_": {"all,browser_navigate_back", "all,browser_navigate_forward"},
		"bfind --type firefox,f":             nil, "bproxy session -f session.n": {"session.name"},
		"bport -f port,browser.pa": {"port,browser.path"},

		"bmcp --state ": {"shop"}, "bproxy --state=s": {"shop"}, "blaunch --state-save s": {"shop"},
		"bproxy state show ": {"shop"}, "bproxy state list ": nil,

		"bproxy --trace " + at + "/a": {"a file"}, "bproxy --trace=" + at + "/a": {"a file"},
		"blaunch --profile " + at + "/": {"dir"}, "blaunch --profile=" + at + "/": {"dir"},
		"bproxy har " + at + "/dir/": {"b"}, "bproxy state import " + at + "/dir/": {"b"},
	})
	before := map[string][]string{"command bport --log-format ": {"text", "json"},
		"FOO=1 bport --output j": {"json"}, "true | bport --output j": {"json"}}
	w.CheckOffers(before, "fish", "zsh") // bash does so with its package bash-completion
}

// Behind -- it is the command's turn. Commands are offered where they may
// stand: not all that there are, and no words of the shell.
func TestCompletionOfCommands(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	os.WriteFile(w.Dir+"/mycommand", []byte("#!/bin/sh\n"), 0o700)
	w.Env = append(slices.Clone(w.Env), "PATH="+w.Dir+":"+os.Getenv("PATH")+":"+cmdtest.Bin)
	mine := []string{"mycommand"}
	w.CheckOffers(map[string][]string{"blaunch -- mycomm": mine, "bproxy --idle 1s -- mycomm": mine,
		"bmcp --eager -- mycomm": mine,
		"bmcp --mcp ":            {"builtin", "@playwright/mcp", "chrome-devtools-mcp", "https://"},
		"bmcp --mcp mycomm":      mine, "bmcp --mcp whil": nil, "bproxy --launch ": nil, "bproxy --launch mycomm": mine,
		"bmcp --mcp @": {"@playwright/mcp"}})
}

// Bash, zsh and fish offer what a running service has, and start none.
func TestCompletionOfPools(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	there := w.With("XDG_STATE_HOME=" + w.Dir + "/there")
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/here")
	cmdtest.WriteFile(t, w.Dir+"/here/btools/states/here.json", "{}")
	cmdtest.WriteFile(t, w.Dir+"/login.json", "{}")
	p := there.Pool("LAUNCH=false", "_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A__1_ALIAS=second", "_B_INSTANCES=1",
		"_B__0_ALIAS=it's $(touch hacked)")
	w.Run("bpool", "state", "import", w.Dir+"/login.json").Exits(t, 0, "")
	a, b := p.Lease("--instance", "second").Lease.ID, p.Lease("B").Lease.ID
	odd := "it's $(touch hacked)"
	w.CheckOffers(map[string][]string{
		"bpool status ": {"A", "B"}, "bpool drain --off ": {"A", "B"}, "bpool scale ": {"A", "B"},
		"bpool lease --ttl 1m ": {"A", "B"}, "bpool lease -": {"--socket", "--instance", "--timeout", "--state",
			"--ttl", "--wait", "--stop-timeout", "--bind-pid", "--bind-fd", "--output", "--field", "--no-input",
			"--log-level", "--log-format", "--help", "--version"},

		"bpool status A ": nil, "bpool drain A ": nil, "bpool scale A ": nil, "bpool restart A ": nil,
		"bpool reload ": nil, "bpool status C": nil,

		"bpool restart ": {"A", "B", "A/0", "A/1", "A/second", "B/0", "B/" + odd}, "bpool restart A/s": {"A/second"},
		"bpool lease --instance ": {"0", "1", "second"}, "bpool lease A --instance s": {"second"},
		"bpool lease --instance=s": {"second"},

		"bpool lease B --instance ": {"0", odd}, "bpool lease --timeout 5s B --wait --instance ": {"0", odd},
		"bpool lease C --instance ": nil,

		"bpool lease --state ": {"login"}, "bpool lease --socket " + p.Socket + " --state l": {"login"},
		"bpool lease --socket " + w.Dir + "/none.sock --state ": nil,

		"bpool renew ": {a, b}, "bpool renew " + a + " ": nil,
		"bpool release lease_": {a, b}, "bpool release " + a + " lease_": {b},

		"bpool status --socket " + p.Socket + " ": {"A", "B"}, "bpool renew --socket=" + p.Socket + " ": {a, b},
		"bpool status --socket " + w.Dir + "/none.sock ": nil, "bpool lease --socket=/ --instance ": nil,
	})
	// After -- it is the command's turn, and names come before options.
	os.WriteFile(w.Dir+"/mycommand", []byte("#!/bin/sh\n"), 0o700)
	path := w.Env
	w.Env = append(slices.Clone(w.Env), "PATH="+w.Dir+":"+os.Getenv("PATH")+":"+cmdtest.Bin)
	w.CheckOffers(map[string][]string{"bpool lease -- mycomm": {"mycommand"},
		"bpool lease A --ttl 1m -- mycomm": {"mycommand"}})
	w.Env = path
	if _, err := os.Stat("hacked"); err == nil {
		t.Error("an alias is executed")
		os.Remove("hacked")
	}
	if s := p.Status().Summary; s.Leased != 2 {
		t.Errorf("after the completions: %+v, want 2 leased as before", s)
	}

	// What follows is bpool's to tell, in all shells alike.
	offers := func(lines map[string][]string) {
		t.Helper()
		w.CheckOffers(lines, "bash")
	}

	// One beside another state file, and two of which neither is named.
	other := w.With("BTOOLS_STATE=" + w.Dir + "/other/state.json")
	o := other.Pool("LAUNCH=false", "_O_INSTANCES=1", "_O_IS_DEFAULT=1")
	offers(map[string][]string{"bpool status --socket " + o.Socket + " ": {"O"}, "bpool status ": {"A", "B"}})
	o.Stop()
	o = &cmdtest.Pool{T: t, W: w, Cmd: w.Cmd("bpool", "serve", "--socket", w.Dir+"/o")}
	o.Cmd.Env = append(o.Cmd.Env, "PW_MCP_PROXY_LAUNCH=false", "PW_MCP_PROXY__O_INSTANCES=1",
		"PW_MCP_PROXY__O_IS_DEFAULT=1")
	o.Start()
	offers(map[string][]string{"bpool status --socket " + o.Socket + " ": {"O"}, "bpool status ": nil})
	o.Stop()

	// One that was killed, at whose socket systemd listens.
	state, _ := os.ReadFile(w.Dir + "/state/state.json")
	p.Stop()
	if err := os.WriteFile(w.Dir+"/state/state.json", state, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			t.Error("a completion would start the service")
			c.Close()
		}
	}()
	offers(map[string][]string{"bpool status ": nil, "bpool renew --socket " + p.Socket + " ": nil})
	os.RemoveAll(w.Dir + "/state")
	offers(map[string][]string{
		"bpool status ": nil, "bpool lease --instance ": nil, "bpool renew --socket " + p.Socket + " ": nil,
		"bpool lease --state ": {"here"},
	})
	if _, err := os.Stat(w.Dir + "/state"); err == nil {
		t.Error("a completion writes a state")
	}
}
