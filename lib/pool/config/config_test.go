package config

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"btools/lib/settings"

	"btools/lib/envfile"
)

func load(t *testing.T, file string, environ ...string) (*Config, error) {
	t.Helper()
	path := ""
	if file != "" {
		path = t.TempDir() + "/pool.toml"
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range environ {
		environ[i] = "PW_MCP_PROXY_" + environ[i]
	}
	return Load(path, append(environ, "PATH=/bin", "PLAYWRIGHT_X=1"))
}

func TestNothingConfigured(t *testing.T) {
	c, err := load(t, "")
	if err != nil || len(c.Pools) != 1 {
		t.Fatal(c, err)
	}
	p := c.Pools[0]
	if p.Name != "DEFAULT" || !p.IsDefault || len(p.Instances) != 1 || p.LeaseTimeout != time.Minute ||
		p.LeaseTTL != time.Hour {
		t.Errorf("%+v", p)
	}
	if i := p.Instances[0]; i.Browser != "" || !i.IsHeadless() || !i.Launch || i.Timeout != 30*time.Second ||
		i.Start != "eager" {
		t.Errorf("%+v", i)
	}
	if c, err = load(t, "", "BROWSER=chrome"); err != nil || c.Pools[0].Instances[0].Browser != "chrome" {
		t.Error("another browser than the one that is asked for", err)
	}
	if c, err = load(t, "", "_A_INSTANCES=1"); err != nil || c.Pools[0].Instances[0].Browser != "chromium" ||
		!c.Pools[0].IsDefault {
		t.Error("one pool", c, err)
	}
	if c, err = load(t, "", "HEADLESS=false"); err != nil || c.Pools[0].Instances[0].IsHeadless() {
		t.Error("a global key alone is not heeded", err)
	}
}

// Example 3 of the specification, whose table gives the source of each value.
func TestHierarchy(t *testing.T) {
	c, err := load(t, "", "HEADLESS=true", "BROWSER=chromium", "TIMEOUT=30000",
		"_BROWSERS_INSTANCES=3", "_BROWSERS_IS_DEFAULT=true",
		"_BROWSERS__0_BROWSER=msedge", "_BROWSERS__0_ALIAS=edge_main",
		"_BROWSERS__1_BROWSER=firefox", "_BROWSERS__1_ALIAS=firefox_debug", "_BROWSERS__1_HEADLESS=false")
	if err != nil {
		t.Fatal(err)
	}
	p := c.Pools[0]
	for i, want := range []struct {
		alias, browser string
		headless       bool
		sources        string
	}{
		{"edge_main", "msedge", true, "instance global global"},
		{"firefox_debug", "firefox", false, "instance instance global"},
		{"", "chromium", true, "global global global"},
	} {
		got := p.Instances[i]
		if got.Alias != want.alias || got.Browser != want.browser || got.IsHeadless() != want.headless ||
			got.Timeout != 30*time.Second {
			t.Errorf("%d: %+v", i, got)
		}
		var sources []string
		for _, key := range []string{"BROWSER", "HEADLESS", "TIMEOUT"} {
			for _, v := range p.InstanceValues(got.ID, false) {
				if v.Key == key {
					level, _, _ := strings.Cut(v.Source, ",")
					sources = append(sources, level)
				}
			}
		}
		if s := strings.Join(sources, " "); s != want.sources {
			t.Errorf("%d: from %s, want %s", i, s, want.sources)
		}
	}
}

// The other examples of the specification, and names that are easily split
// wrongly.
func TestNames(t *testing.T) {
	c, err := load(t, "", "HEADLESS=true", "_SESSIONLESS_INSTANCES=5", "_SESSIONLESS_IS_DEFAULT=true",
		"_ISOLATED_INSTANCES=2", "_ISOLATED_HEADLESS=false", "_ISOLATED_BROWSER=firefox", "_ISOLATED_ISOLATED=true",
		"_MY_POOL_2_INSTANCES=1", "_MY_POOL_2_LEASE_TIMEOUT=5s", "_MY_POOL_2__0_USER_DATA_DIR=/x",
		"_MY_POOL_2_ARGS=--a 'b c'",
		"_WEB_KIT_INSTANCES=1", "_WEB_KIT_BROWSER=webkit",
		"_NEVER_IDLE_INSTANCES=1", "_NEVER_IDLE_IDLE=5s", "_NEVER_IDLE__0_TIMEOUT=7s", "_WEB_KIT_IDLE_TIMEOUT=6s")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range c.Pools {
		names = append(names, p.Name)
	}
	if want := []string{"ISOLATED", "MY_POOL_2", "NEVER_IDLE", "SESSIONLESS", "WEB_KIT"}; !slices.Equal(names, want) {
		t.Fatalf("%v", names)
	}
	if i := c.Pools[0].Instances[1]; i.IsHeadless() || !i.Isolated || i.Browser != "firefox" {
		t.Errorf("%+v", i)
	}
	if p := c.Pools[1]; p.LeaseTimeout != 5*time.Second || p.Instances[0].Profile != "/x" ||
		!slices.Equal(p.Instances[0].Args, []string{"--a", "b c"}) {
		t.Errorf("%+v", p)
	}
	if i := c.Pools[2].Instances[0]; i.Idle != 5*time.Second || i.Timeout != 7*time.Second {
		t.Errorf("%+v", i)
	}
	if i := c.Pools[4].Instances[0]; i.Launch || i.Idle != 6*time.Second {
		t.Errorf("a webkit is to be launched, or the former name of a key is not known: %+v", i)
	}
}

func TestFile(t *testing.T) {
	const file = `
browser = "firefox"
timeout = 5000
[pool.A]
instances = 2
is_default = true
args = ["--one", "it's two"]
[pool.A.instance.1]
browser = "chrome"
alias = "c"
`
	c, err := load(t, file, "BROWSER=brave", "_A_TIMEOUT=7000", "_A__1_ALIAS=other")
	if err != nil {
		t.Fatal(err)
	}
	a := c.Pools[0].Instances
	if a[0].Browser != "brave" || a[1].Browser != "chrome" || a[0].Timeout != 7*time.Second || a[1].Alias != "other" ||
		!slices.Equal(a[0].Args, []string{"--one", "it's two"}) {
		t.Errorf("%+v", a)
	}
}

// Variables from a file apply where the environment sets none, and take
// precedence over the TOML file.
func TestVariablesOfAFile(t *testing.T) {
	path := t.TempDir() + "/pool.toml"
	os.WriteFile(path, []byte("headless = true\ntimeout = 5000\n[pool.A]\ninstances = 2\n"), 0o600)
	more := []envfile.Variable{
		{Name: "PW_MCP_PROXY_TIMEOUT", Value: "6000", Source: ".env:1"},
		{Name: "PW_MCP_PROXY_HEADLESS", Value: "false", Source: ".env:2"},
		{Name: "PW_MCP_PROXY__A_INSTANCES", Value: "3", Source: ".env:3"},
		{Name: "PW_MCP_PROXY__A_INSTANCES", Value: "4", Source: ".env:4"},
		{Name: "PW_MCP_PROXY_BROWSER", Value: "", Source: ".env:5"}, {Name: "SECRET", Value: "x", Source: ".env:6"},
	}
	c, err := Load(path, []string{"PW_MCP_PROXY_TIMEOUT=7000", "PW_MCP_PROXY_HEADLESS="}, more...)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Pools[0]
	if i := p.Instances[0]; len(p.Instances) != 4 || i.IsHeadless() || i.Timeout != 7*time.Second ||
		i.Browser != "chromium" {
		t.Errorf("%d, %+v", len(p.Instances), i)
	}
	for _, v := range p.Values() {
		want := map[string]string{"INSTANCES": "pool, .env:4: PW_MCP_PROXY__A_INSTANCES",
			"TIMEOUT": "global, PW_MCP_PROXY_TIMEOUT", "HEADLESS": "global, .env:2: PW_MCP_PROXY_HEADLESS"}[v.Key]
		if v.Set && v.Source != want {
			t.Errorf("%s is from %q", v.Key, v.Source)
		}
	}
	slip := envfile.Variable{Name: "PW_MCP_PROXY_HEADLES", Value: "x", Source: ".env:9"}
	if _, err := Load("", nil, slip); err == nil ||
		!strings.Contains(err.Error(), "did you mean HEADLESS? (.env:9: PW_MCP_PROXY_HEADLES)") {
		t.Error(err)
	}
	if Configures([]string{"PATH=/bin", "PW_MCP_PROXY_X="}, envfile.Variable{Name: "SECRET", Value: "x"}) ||
		!Configures(nil, more...) || !Configures([]string{"PW_MCP_PROXY_X=1"}) {
		t.Error("Configures")
	}
}

// All mistakes are reported together, each with what to do.
func TestProblems(t *testing.T) {
	for _, c := range []struct {
		file string
		env  []string
		want []string
	}{
		{"", []string{"_A_BROWSER=chrome"},
			[]string{"Pool missing INSTANCES configuration: A needs PW_MCP_PROXY__A_INSTANCES=N"}},
		{"", []string{"_A_INSTANCES=1", "_B_INSTANCES=1"},
			[]string{"No default pool defined: set PW_MCP_PROXY__POOL_IS_DEFAULT=true for one of A, B"}},
		{"", []string{"_A_INSTANCES=1", "_A_IS_DEFAULT=false"}, []string{"No default pool defined"}},
		{"[pool.A]\ninstances = 1\n[pool.B]\nheadless = true\n", nil,
			[]string{"No default pool defined: set is_default = true in [pool.POOL] for one of A, B",
				"B needs instances = N in [pool.B]"}},
		{"instances = 1\nalias = \"x\"\ntimout = 5\n" +
			"[pool.A]\ninstances = \"x\"\nis_default = \"maybe\"\ntimeout = \"soon\"\n", nil,
			[]string{"instances defined globally: set it for a pool, in [pool.POOL]",
				"alias defined globally: set it for an instance, in [pool.POOL.instance.ID]",
				"unknown key timout: did you mean timeout?", "instances is \"x\"",
				"is_default is \"maybe\"", "timeout is \"soon\""}},
		{"", []string{"_A_INSTANCES=1", "_A_IS_DEFAULT=true", "_B_INSTANCES=1", "_B_IS_DEFAULT=1"},
			[]string{"Multiple default pools defined", "_B_IS_DEFAULT"}},
		{"", []string{"_A_INSTANCES=3", "_A_IS_DEFAULT=true", "_A__5_BROWSER=chrome"},
			[]string{"Invalid instance ID in override", "IDs 0 to 2, not 5"}},
		{"", []string{"_A_INSTANCES=3", "_A_IS_DEFAULT=true", "_A__0_ALIAS=x", "_A__2_ALIAS=x"},
			[]string{"Duplicate alias in pool A"}},
		{"", []string{"_A_INSTANCES=3", "_A_IS_DEFAULT=true", "_A__0_ALIAS=12"},
			[]string{"looks like an instance's ID"}},
		{"", []string{"INSTANCES=1", "IS_DEFAULT=true", "ALIAS=x"},
			[]string{"INSTANCES defined globally: set it for a pool", "IS_DEFAULT defined globally",
				"ALIAS defined globally: set it for an instance"}},
		{"", []string{"_A_INSTANCES=-2", "_B_INSTANCES=abc", "_C_INSTANCES=10001", "_A_IS_DEFAULT=maybe"},
			[]string{`INSTANCES is "-2"`, `INSTANCES is "abc"`,
				`INSTANCES is "10001": must be a number from 1 to 10000`,
				`IS_DEFAULT is "maybe"`}},
		{"", []string{"HEADLES=true", "_A_BROWZER=x", "_A__0_TIMEOUTS=1", "QUARK=1"},
			[]string{"unknown key HEADLES: did you mean HEADLESS?", "did you mean BROWSER?", "did you mean TIMEOUT?",
				"unknown key QUARK (PW"}},
		{"", []string{"VIEWPORT_SIZE=1280,720", "_A_CAPS=vision", "_A__0_STORAGE_STATE=x", "_A_TIMEOUT_ACTION=5"},
			[]string{"unknown key VIEWPORT_SIZE: ARGS with --window-size=WIDTH,HEIGHT", "A_CAPS: --tools of bmcp",
				"unknown key STORAGE_STATE: bpool state import reads such a file",
				"A_TIMEOUT_ACTION: the bounds of tools"}},
		{"", []string{"BROWSER=netscape", "TIMEOUT=-1", "LEASE_TTL=5", "SANDBOX=maybe", "ARGS='x", "USER_DATA_DIR=x"},
			[]string{"BROWSER is", "TIMEOUT is", "LEASE_TTL is \"5\": must have a unit: 5s is seconds", "SANDBOX is",
				"a quote in it is not closed", "USER_DATA_DIR is"}},
		{"", []string{"HEALTH_INTERVAL=1000000h", "LEASE_TTL=9999999h"},
			[]string{"HEALTH_INTERVAL is \"1000000h\": " +
				"must be a duration such as 90s, 5m or 1h30m, at least 10ms, at most 876000h", "LEASE_TTL is"}},
		{"", []string{"_a_INSTANCES=1", "_A___B_INSTANCES=1", "_A-B_INSTANCES=1", "_A__x_BROWSER=chrome",
			"_A__01_BROWSER=chrome"},
			[]string{`"a" is not a valid pool name: did you mean A?`,
				`"A-B" is not a valid pool name. A name has`,
				`"x" is not an instance's ID`, `"01" is not an instance's ID`}},
		{"", []string{"_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_A__0_INSTANCES=2", "_A_ALIAS=x", "_A__0_LEASE_TTL=1s"},
			[]string{"INSTANCES can't be set for an instance", "ALIAS can't be set for a pool",
				"LEASE_TTL can't be set for an instance"}},
		{"[pool.A]\n", nil, []string{"Pool missing INSTANCES configuration: A"}},
		{"", []string{"IDLE=5m", "IDLE_TIMEOUT=1m"}, []string{"IDLE is set twice: remove its former name here, or " +
			"PW_MCP_PROXY_IDLE (PW_MCP_PROXY_IDLE_TIMEOUT)"}},
		{"", []string{"_A_INSTANCES=1", "_A__0_IDLE=5m", "_A__0_IDLE_TIMEOUT=5m"}, []string{"IDLE is set twice"}},
		{"[pool.A]\ninstances = 1\nidle = \"1m\"\nidle_timeout = \"1m\"\n", nil,
			[]string{"idle is set twice: remove its former name here, or /", "pool.toml: pool.A.idle (",
				"pool.toml: pool.A.idle_timeout)"}},
		{"", []string{"_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A_USER_DATA_DIR=/x"},
			[]string{"set for both A/0 and A/1"}},
		{"[pool.A]\ninstances = 9\nis_default = true\n[pool.A.instance.7]\n[pool.A.instance.x]\nalias = \"y\"\n", nil,
			[]string{"[pool.A.instance.7] is not an instance, or has no keys",
				"[pool.A.instance.x] is not an instance"}},
		{"[pool.A]\ninstances = 1\nis_default = true\nbrowser = \"webkit\"\nlaunch = true\n" +
			"args = [\"--user-data-dir=/x\"]\ntimeout = 30.5\n", nil,
			[]string{"--user-data-dir is set by bpool", "pool.A.timeout is 30.5: must be a duration"}},
		{"", []string{"_A_INSTANCES=1", "_A_IS_DEFAULT=1", "BROWSER=webkit", "LAUNCH=true"},
			[]string{"LAUNCH is \"true\" for A/0, whose browser is webkit"}},
		{"a = [", nil, []string{"pool.toml:1:", "malformed TOML"}},
		{"Browser = \"x\"\nheadles = true\n[pools.A]\n[pool]\nA = 1\n[pool.B]\ninstances = 1.5\n", nil,
			[]string{"unknown key Browser: did you mean browser?", "unknown key headles: did you mean headless?",
				"unknown table [pools]", "pool.A is not a table", "pool.B.instances is 1.5: must be 1 to 10000"}},
	} {
		_, err := load(t, c.file, slices.Clone(c.env)...)
		if err == nil {
			t.Errorf("%q %v: no error", c.file, c.env)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q %v: misses %q in\n%v", c.file, c.env, want, err)
			}
		}
	}
	// A table with an invalid name is one error, whatever it contains.
	_, err := load(t, "[pool.main]\ninstances = 2\nheadless = true\n[pool.main.instance.0]\nalias = \"x\"\n")
	var e *Error
	if !errors.As(err, &e) || len(e.Problems) != 1 ||
		!strings.Contains(e.Problems[0].What, `"main" is not a valid pool name: did you mean MAIN?`) {
		t.Error(err)
	}
	if _, err := Load(t.TempDir()+"/pool.toml", nil); err == nil ||
		!strings.Contains(err.Error(), "cannot read the configuration: no such file") {
		t.Error(err)
	}
}

// Durations have the same form everywhere; TIMEOUT also accepts milliseconds,
// as in the specification.
func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{"5000": 5 * time.Second, "5s": 5 * time.Second,
		"1m30s": 90 * time.Second, "0": 0, "0s": 0, "86400000": settings.MaxTimeout} {
		c, err := load(t, "", "TIMEOUT="+text)
		if err != nil || c.Pools[0].Instances[0].Timeout != want {
			t.Errorf("%s: %v", text, err)
		}
		if c, err = load(t, "timeout = \""+text+"\"\n"); err != nil || c.Pools[0].Instances[0].Timeout != want {
			t.Errorf("%s in a file: %v", text, err)
		}
	}
	for _, text := range []string{"-1", "-5s", "5", "25h", "1us", "86400001", "99999999999999999999", "soon"} {
		if c, err := load(t, "", "TIMEOUT="+text); (err == nil) != (text == "5") {
			t.Errorf("%s: %v, %v", text, c, err)
		}
	}
}

func TestIsolation(t *testing.T) {
	c, err := load(t, `
max_memory = "2GiB"
isolated = true
[pool.A]
instances = 3
is_default = true
isolation = "context"
per_browser = 2
[pool.A.instance.2]
isolation = "process"
[pool.B]
instances = 1
`, "_A_SPARES=1")
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Pools[0].Instances, c.Pools[1].Instances[0]
	if a[0].Isolation != settings.Context || a[0].PerBrowser != 2 || a[0].Spares != 1 ||
		a[2].Isolation != settings.Process || b.Isolation != settings.Process || b.Spares != settings.MaxInstances ||
		b.MaxMemory != 2<<30 {
		t.Errorf("%+v", c.Pools)
	}
	shared := []string{"_A_INSTANCES=2", "_A_ISOLATION=context"}
	for _, x := range []struct {
		vars []string
		says string
	}{
		{append(shared, "BROWSER=firefox"),
			`ISOLATION is "context" for A/0, whose browser is firefox: only browsers based on Chromium`},
		{append(shared, "BROWSER=/opt/Firefox/firefox-bin"),
			"whose browser is firefox-bin: only browsers based on Chromium"},
		{append(shared, "_A__1_BROWSER=webkit"), `for A/1, whose browser is webkit`},
		{append(shared, "PROXY_BYPASS=a.example", "BLOCK_PRIVATE=true"), "which has a proxy_bypass: allow_origins"},
		{append(shared, "LAUNCH=false"), "which has no browser to share: launch is false"},
		{append(shared, "_A__1_USER_DATA_DIR=/x"), "for A/1, which has a user_data_dir"},
		{[]string{"_A_INSTANCES=2", "SPARES=1"}, "SPARES has no effect here"},
		{[]string{"_A_INSTANCES=2", "_A__0_ISOLATION=context", "_A__1_PER_BROWSER=3"},
			"PER_BROWSER has no effect here"},
		{[]string{"_A_INSTANCES=1", "_A_HIBERNATE=10m"},
			`HIBERNATE has no effect here: it applies only to instances with isolation = "context"`},
		{[]string{"_A_INSTANCES=2", "LAUNCH=false", "MAX_MEMORY=1GiB"}, "MAX_MEMORY has no effect here"},
		{[]string{"_A_INSTANCES=2", "MAX_MEMORY=1GB"}, "a whole number with a unit, such as 512MiB"},
		{append(shared, "SPARES=some"), "must be a number from 0 to 10000, or all"},
		{append(shared, "PER_BROWSER=0"), "must be a number from 1 to 10000"},
		{[]string{"_A_INSTANCES=2", "ISOLATION=thread"}, "must be process or context"},
	} {
		if _, err := load(t, "", x.vars...); err == nil || !strings.Contains(err.Error(), x.says) ||
			strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%v: %v; want %q alone", x.vars, err, x.says)
		}
	}
}

func FuzzEnvironment(f *testing.F) {
	f.Add("_A_INSTANCES=3\n_A_IS_DEFAULT=true\n_A__1_ALIAS=x\nARGS=a 'b' \\c")
	f.Fuzz(func(t *testing.T, lines string) {
		var env []string
		for _, l := range strings.Split(lines, "\n") {
			env = append(env, Prefix+l)
		}
		c, err := Load("", env)
		if (c == nil) == (err == nil) {
			t.Errorf("%v, %v", c, err)
		}
		if err == nil && !slices.ContainsFunc(c.Pools, func(p Pool) bool {
			return p.IsDefault &&
				len(p.Instances) > 0
		}) {
			t.Errorf("no default: %+v", c)
		}
	})
}
