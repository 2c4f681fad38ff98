//go:build linux

package main_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// registry is an npm registry with one package, and what it was asked.
type registry struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
	delay time.Duration
}

// requests are the paths that were asked for.
func (r *registry) requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// serveNpm is a registry whose package has a program, by a name of its own,
// that is the fake child.
func serveNpm(t *testing.T, name, version string) *registry {
	t.Helper()
	manifest := map[string]any{"name": name, "version": version, "bin": map[string]string{"fake-mcp": "cli.js"}}
	about, _ := json.Marshal(manifest)
	var tarball bytes.Buffer
	z := gzip.NewWriter(&tarball)
	w := tar.NewWriter(z)
	for file, text := range map[string]string{
		"package/package.json": string(about),
		"package/cli.js": "#!/usr/bin/env node\nrequire('child_process').spawn('" + cmdtest.Bin +
			"/fakechild', process.argv.slice(2), {stdio: 'inherit'}).on('exit', (c) => process.exit(c))\n",
	} {
		w.WriteHeader(&tar.Header{Name: file, Mode: 0o755, Size: int64(len(text))})
		w.Write([]byte(text))
	}
	w.Close()
	z.Close()
	sum := sha1.Sum(tarball.Bytes())
	r := &registry{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		r.mu.Lock()
		r.asked = append(r.asked, in.URL.Path)
		delay := r.delay
		r.mu.Unlock()
		time.Sleep(delay)
		switch in.URL.Path {
		case "/" + name:
			manifest := maps.Clone(manifest)
			manifest["dist"] = map[string]string{"tarball": r.URL + "/it.tgz", "shasum": hex.EncodeToString(sum[:])}
			json.NewEncoder(out).Encode(map[string]any{"name": name, "dist-tags": map[string]string{"latest": version},
				"versions": map[string]any{version: manifest}})
		case "/it.tgz":
			out.Write(tarball.Bytes())
		default:
			http.NotFound(out, in)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// home makes a home whose npm uses a registry, and returns its variables.
func home(w *cmdtest.World, r *registry) []string {
	cmdtest.WriteFile(w.T, w.Dir+"/home/.npmrc", "registry="+r.URL+"\naudit=false\nfund=false\n")
	return []string{"HOME=" + w.Dir + "/home"}
}

// What a repository carries is not run when an agent opens it, nor is its
// registry asked for anything.
func TestMCPNothingOfTheOpenDirectoryIsRun(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	good, evil := serveNpm(t, "@playwright/mcp", "0.0.83"), serveNpm(t, "@playwright/mcp", "0.0.83")
	repo, ran := w.Dir+"/repo", w.Dir+"/ran"
	note := "#!/bin/sh\necho \"$0\" >>'" + ran + "'\nexec " + cmdtest.Bin + "/fakechild\n"
	about := `{"name":"@playwright/mcp","version":"0.0.83","bin":{"playwright-mcp":"cli.sh"}}`
	cmdtest.WriteFile(t, repo+"/package.json", about)
	cmdtest.WriteFile(t, repo+"/cli.sh", note)
	cmdtest.WriteFile(t, repo+"/.npmrc", "registry="+evil.URL+"\nscript-shell="+repo+"/cli.sh\n")
	cmdtest.WriteFile(t, repo+"/node_modules/@playwright/mcp/package.json", about)
	cmdtest.WriteFile(t, repo+"/node_modules/@playwright/mcp/cli.sh", note)
	for _, name := range []string{"node", "sh", "npx", "npm", "env", "playwright-mcp", "fake-mcp"} {
		cmdtest.WriteFile(t, repo+"/node_modules/.bin/"+name, note)
		cmdtest.WriteFile(t, repo+"/"+name, note)
	}
	for _, spec := range []string{"npx -y @playwright/mcp@0.0.83", "@playwright/mcp"} {
		c := w.Cmd("bmcp", "--mcp", spec)
		c.Env = slices.Concat(w.Env, home(w, good), []string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser"})
		c.Dir = repo
		m := w.Attach(c)
		m.Initialize("{}")
		m.AwaitTools("where", "env")
		if where := m.Tool("where", "{}").Text(t); where != repo {
			t.Errorf("%q: the child runs in %s", spec, where)
		}
		if got := m.Tool("env", "{}").Text(t); !strings.Contains(got, "--cdp-endpoint=http://127.0.0.1:") {
			t.Errorf("%q: it is not given the browser: %s", spec, got)
		}
		for _, p := range w.Processes() {
			if strings.Contains(p, "npx") || strings.Contains(p, "npm") {
				t.Logf("%q: it stays: %s", spec, p)
			}
		}
		m.End()
	}
	if b, err := os.ReadFile(ran); err == nil {
		t.Errorf("the repository's were run:\n%s", b)
	}
	if len(good.requests()) == 0 || len(evil.requests()) != 0 {
		t.Errorf("the user's registry was asked %v, the repository's %v", good.requests(), evil.requests())
	}
	w.Clean()
}

// A package is fetched once for all children, which is told if it takes long,
// and not again by the next run.
func TestMCPChildIsDownloaded(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	r := serveNpm(t, "some-mcp", "1.2.3")
	r.delay = 1500 * time.Millisecond
	env := append(home(w, r), "PW_MCP_PROXY_BROWSER="+cmdtest.Bin+"/fakebrowser", "PW_MCP_PROXY__A_INSTANCES=2")
	m := w.MCP(env, "--eager", "--mcp", "a=some-mcp@1.2.3 {cdp_endpoint}", "--mcp", "b=npx some-mcp")
	second := "" // which child has listed its tools after the other one: its names are prefixed
	cmdtest.Until(t, "both children list their tools", func() bool {
		names := m.Tools()
		if i := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, "__echo") }); i >= 0 {
			second = strings.TrimSuffix(names[i], "echo")
		}
		return slices.Contains(names, "echo") && second != ""
	})
	for _, want := range []string{"bmcp: npx fetches some-mcp@1.2.3\n",
		"bmcp: the first list of tools waits for a, b, for at most 20s\n"} {
		if e := m.Errs.String(); !strings.Contains(e, want) {
			t.Errorf("no %q while it is fetched: %s", want, e)
		}
	}
	if a, b := m.Tool("where", "{}").Text(t), m.Tool(second+"where", "{}").Text(t); a != w.Dir || b != w.Dir {
		t.Error(a, b)
	}
	m.End()
	if n := strings.Count(fmt.Sprint(r.requests()), "it.tgz"); n > 2 { // a, and b, which is another name
		t.Errorf("it was fetched %d times: %v", n, r.requests())
	}
	m = w.MCP(env, "--mcp", "c=other-mcp@1")
	cmdtest.Until(t, "the error says why the child is missing", func() bool {
		r := m.Tool("nonesuch", "{}")
		return r.Error != nil && strings.Contains(r.Error.Message,
			"npx cannot fetch other-mcp@1: npm has no such package (builtin has the tools of bmcp, ")
	})
	m.End()
	r.Close()
	m = w.MCP(env, "--mcp", "a=some-mcp@1.2.3 {cdp_endpoint}")
	m.Tool("where", "{}").MustSucceed(t)
	m.End()
	w.Clean()
}

// A command that is not there is not looked for at npm.
func TestMCPMissingCommandIsNotFetched(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	notes := w.Dir + "/npx-was-given"
	cmdtest.WriteFile(t, w.Dir+"/bin/npx", "#!/bin/sh\necho \"$@\" >>'"+notes+"'\nexit 1\n")
	w.Env = append(w.Env, "PATH="+w.Dir+"/bin:"+cmdtest.Bin+":/usr/bin:/bin")
	w.Run("bmcp", "--", "nonesuch-uvx", "mcp-server-fetch").Exits(t, 127, "cannot run nonesuch-uvx: not found")
	w.Run("bmcp", "--", w.Dir).Exits(t, 126, w.Dir)
	cmdtest.WriteFile(t, w.Dir+"/c.toml", "[child.a]\ncommand = [\"nonesuch-python2\", \"server.py\"]\n")
	w.Run("bmcp", "--config", w.Dir+"/c.toml").Exits(t, 127, "cannot run nonesuch-python2: not found")
	m := w.MCP(nil, "--mcp", "nonesuch-python2 server.py", "--mcp", "DEBUG=1 node server.js", "--mcp", "dir="+w.Dir)
	r := m.Tool("nonesuch", "{}")
	for _, want := range []string{"cannot run nonesuch-python2: not found on PATH; for an npm package, write npx " +
		"nonesuch-python2", "cannot run 1: not found", "cannot run " + w.Dir + ": "} {
		if r.Error == nil || !strings.Contains(r.Error.Message, want) {
			t.Errorf("no %q in %s", want, r.Line)
		}
	}
	m.End()
	if b, err := os.ReadFile(notes); err == nil {
		t.Errorf("npx was given:\n%s", b)
	}
	// The name of a program after -- is one word, whatever is in it.
	odd := w.Dir + "/o'brien/a \"server"
	os.Mkdir(w.Dir+"/o'brien", 0o755)
	if err := os.Symlink(cmdtest.Bin+"/fakechild", odd); err != nil {
		t.Fatal(err)
	}
	m = w.MCP(nil, "--", odd)
	if got := m.Tool("echo", "{}"); got.Error != nil {
		t.Errorf("got %v, want no error", got.Line)
	}
	m.End()
	w.Clean()
}

// The list of a child's last run is that of the directory that it ran in.
func TestCacheIsOfTheDirectory(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	cmdtest.WriteFile(t, w.Dir+"/server", "#!/bin/sh\nFAKE_TOOLS=$(cat tool) exec "+cmdtest.Bin+"/fakechild\n")
	for _, tool := range []string{"secret_of_one", "two", "secret_of_one"} {
		dir := w.Dir + "/" + tool
		cmdtest.WriteFile(t, dir+"/tool", tool)
		c := w.Cmd("bmcp", "--mcp", "sh "+w.Dir+"/server")
		c.Env, c.Dir = append(slices.Clone(w.Env), "XDG_CACHE_HOME="+w.Dir+"/cache"), dir
		m := w.Attach(c)
		m.Initialize("{}")
		if names := m.Tools(); names[len(names)-1] != tool {
			t.Errorf("in %s: %v", tool, names)
		}
		m.End()
	}
	w.Clean()
}

// An agent can choose among browsers, but not name a program.
func TestMCPLaunchRunsNoProgram(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	cmdtest.WriteFile(t, w.Dir+"/evil.sh", "#!/bin/sh\ntouch '"+w.Dir+"/ran'\n")
	m := w.MCP(nil, "--mcp", "a="+cmdtest.FakeChild())
	for _, name := range []string{"./evil.sh", w.Dir + "/evil.sh", "firefox", "../evil.sh", ""} {
		r := m.Tool("coordinator_launch_browser", fmt.Sprintf(`{"browserType":%q}`, name)).Tool(t)
		if want := fmt.Sprintf("### Error\nbrowserType must be one of chrome, edge, chromium, brave, "+
			"chrome-headless-shell, not %q", name); !r.IsError || r.Content[0].Text != want {
			t.Errorf("%q: %+v", name, r)
		}
	}
	if _, err := os.Stat(w.Dir + "/ran"); err == nil {
		t.Error("the program was run")
	}
	r := m.Tool("coordinator_launch_browser", `{"headles":true}`).Tool(t)
	if !r.IsError || r.Content[0].Text != "### Error\nthere is no argument \"headles\": did you mean headless?" {
		t.Errorf(`got %+v, want an error with 'there is no argument "headles": did you mean headless?'`, r)
	}
	// The tools that tell the status say its form once.
	// a property, and that it is required
	if n := strings.Count(m.Call("tools/list", "{}").Line, `"last_exit"`); n != 2 {
		t.Errorf("the status is described %d times", n/2)
	}
	if !strings.Contains(m.Call("tools/list", "{}").Line,
		`"enum":["chrome","edge","chromium","brave","chrome-headless-shell"]`) {
		t.Error("the types are not in the schema")
	}
	for _, id := range []string{"1e400", "123456789012345678901234567890"} { // no number of Go
		m.Send(`{"jsonrpc":"2.0","id":` + id +
			`,"method":"tools/call","params":{"name":"coordinator_status","arguments":{}}}`)
		if r := m.Answer(id); r.Error != nil {
			t.Errorf("got %v, want no error", r.Line)
		}
	}
	m.End()
	w.Clean()
}

// The arguments of children are not shown to the model.
func TestMCPChildrenTellNoSecrets(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP(nil, "--mcp", cmdtest.FakeChild()+" --header 'Authorization: Bearer s3cr3t'", "--mcp",
		"gone="+w.Dir+"/none --token=s3cr3t")
	m.Tools()
	m.Tool("echo", "{}")
	status := m.Tool("coordinator_status", "{}").Text(t)
	if strings.Contains(status, "s3cr3t") || !strings.Contains(status, `"command":"`+cmdtest.Bin+`/fakechild"`) ||
		!strings.Contains(status, `"command":"`+w.Dir+`/none"`) {
		t.Errorf(`got %s, want %s and '"command":"/nonexistent/server"' without "s3cr3t"`, status,
			`"command":"`+cmdtest.Bin+`/fakechild"`)
	}
	m.End()
	w.Clean()
}

// A child finds VS Code's own port where VS Code's programs look for it.
func TestMCPInVSCode(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	cmdtest.WriteFile(t, w.Dir+"/vscode-cdp-port", "9333\n")
	m := w.MCP([]string{"TERM_PROGRAM=vscode", "VSCODE_CDP_PORT="}, "--mcp", "a="+cmdtest.FakeChild())
	if got := m.Tool("getenv", `{"names":["VSCODE_CDP_PORT",`+
		`"npm_config_update_notifier"]}`).Text(t); got != "9333 false" {
		t.Errorf("%q, want %q", got, "9333 false")
	}
	if status := m.Tool("coordinator_status", "{}").Text(t); !strings.Contains(status, `"tier":"2"`) ||
		!strings.Contains(status, `"cdp_port":9333`) {
		t.Errorf(`got %s, want '"tier":"2"' and '"cdp_port":9333'`, status)
	}
	m.End()
	w.Clean()
}

// A child that can't be started is told wherever somebody looks, with what to
// do about it.
func TestMCPMissingChild(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	empty := w.Dir + "/empty"
	os.Mkdir(empty, 0o755)
	for why, args := range map[string][]string{
		"cannot start child playwright: cannot run npx: not found on PATH: install Node.js, which has it": {"--mcp",
			"@playwright/mcp"},
		"cannot start child gone: cannot run " + w.Dir + "/none: no such file or directory": {"--mcp",
			"gone=" + w.Dir + "/none"},
	} {
		c := w.Cmd("bmcp", args...)
		c.Env = append(slices.Clone(w.Env), "PATH="+empty, "XDG_CACHE_HOME="+w.Dir+"/cache")
		m := w.Attach(c)
		greeting := m.Initialize("{}")
		var about struct{ Instructions string }
		greeting.Into(t, &about)
		if !strings.Contains(about.Instructions, " are missing: "+why) {
			t.Errorf("the instructions: %s", about.Instructions)
		}
		var list struct {
			Tools []struct{ Name, Description string }
		}
		m.Call("tools/list", "{}").Into(t, &list)
		i := slices.IndexFunc(list.Tools,
			func(tool struct{ Name, Description string }) bool { return tool.Name == "coordinator_status" })
		if !strings.Contains(list.Tools[i].Description, why) {
			t.Errorf("the description: %+v", list.Tools[i])
		}
		if status := m.Tool("coordinator_status", "{}").Text(t); !strings.Contains(status, why) {
			t.Errorf("the status: %s", status)
		}
		m.End()
		if n := strings.Count(m.Errs.String(), "bmcp: warning: "+why+"\n"); n != 1 {
			t.Errorf("it is logged %d times: %s", n, m.Errs.String())
		}
	}
	// Where no child drives a browser, nothing is said of tools that do.
	for _, args := range [][]string{{"--no-child"}, {"--mcp", cmdtest.Bin + "/fakechild"}} {
		m := w.StartMCP(nil, args...)
		if r := m.Initialize("{}"); !strings.Contains(r.Line, "There are no browser tools here.") {
			t.Errorf("%s\nlacks %q", r.Line, "There are no browser tools here.")
		}
		m.Tool("coordinator_status", "{}")
		cmdtest.Until(t, "the proxy is there", func() bool { return len(w.State().Proxies) == 1 })
		m.End()
	}
	w.Clean()
}

// What a child prints moves no terminal, that of bmcp's or that of the host's.
func TestMCPChildrenMoveNoTerminal(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP(nil, "--mcp", "a="+cmdtest.FakeChild())
	const clean = `\x1b[2Jred\x1b]0;title\x07`
	want := "### Error\nchild a ended (exit status 7): " + clean
	if r := m.Tool("colors", "{}").Tool(t); !r.IsError || r.Content[0].Text != want {
		t.Errorf("%+v", r)
	}
	m.End()
	if e := m.Errs.String(); strings.Contains(e, "\x1b") || !strings.Contains(e, "a: "+clean+"\n") {
		t.Errorf("got %q, want %q without %q", e, "a: "+clean+"\n", "\x1b")
	}
	w.Clean()
}

// Many children leave pipes of the usual size to what else the user runs.
func TestPipesOfManyChildren(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	home, as := w.OtherUser("bmcp", "bproxy", "fakechild") // whose pipes are bounded and counted
	var args []string
	for i := range 40 {
		args = append(args, "--mcp", fmt.Sprintf("c%d=%s/bin/fakechild", i, w.Dir))
	}
	c := w.Cmd(w.Dir+"/bin/bmcp", args...)
	c.Env = append(slices.Clone(w.Env), "HOME="+home, "XDG_CACHE_HOME="+home, "BTOOLS_STATE="+home+"/state.json",
		"TMPDIR="+home)
	c.Dir = home
	c.SysProcAttr = as
	m := w.Attach(c)
	m.Initialize("{}")
	cmdtest.Until(t, "all children run", func() bool {
		return strings.Count(m.Tool("coordinator_status", "{}").Text(t), `"running":1`) == 40
	})
	pipe := w.Cmd("/usr/bin/perl", "-e", "pipe(R, W); print fcntl(W, 1032, 0)") // F_GETPIPE_SZ
	pipe.SysProcAttr, pipe.Dir = as, home
	if out, err := pipe.Output(); err != nil || string(out) != "65536" {
		t.Errorf("a new pipe takes %s bytes, %v", out, err)
	}
	m.End()
}

// Somebody who starts bmcp on a terminal is told what it is for; as a background
// job, which timeout makes of it where the shell stays, it ends.
func TestMCPOnATerminal(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Env = append(w.Env, "SHELL=/bin/sh")
	for _, line := range []string{"bmcp --no-child", "timeout 2 bmcp --no-child; true"} {
		out, err := cmdtest.Combined(w.Cmd("script", "-qec", line, "/dev/null"))
		if err != nil || !strings.Contains(string(out), "bmcp config claude-code") {
			t.Errorf("%s: %v: %s", line, err, out)
		}
		w.Clean()
	}
}

// The entry for a host is one that bmcp can be run with.
func TestMCPConfig(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for _, x := range []struct {
		args string
		code int
		want string
	}{
		{"vscode -- --brwser chrome", 64, "there is no option --brwser: did you mean --browser?"},
		{"vscode -- --no-child --eager", 64, "--no-child and --eager exclude each other"},
		{"vscode -- --token-file x", 64, "--token-file is for --http"},
		{"vscode -- --browser chorme", 64, "chorme"},
		{"vscode -- --mcp '", 64, "a quote in it is not closed"},
		{"vscode -- config codex", 64, "config"},
		{"vscode -- --help", 64, "only prints"},
		{"vscode --env x", 64, "K=V"},
		{"vscode --env PW_MCP_PROXY__A_INSTANCES=many", 78, `INSTANCES is "many"`},
		{"vscode --env PW_MCP_PROXY__A_INSTANCES=2 -- --no-headless", 64, "--no-headless has no effect"},
		{"nonesuch", 64, "no host is known"},
		{"", 64, "name one host"},
	} {
		r := w.Run("bmcp", append([]string{"config"}, strings.Fields(x.args)...)...)
		if r.Code != x.code || r.Out != "" || !strings.Contains(r.Err, x.want) {
			t.Errorf("%s: exit %d, want %d with %q: %s%s", x.args, r.Code, x.code, x.want, r.Out, r.Err)
		}
	}
	type server struct {
		Type, Command string
		Args          []string
		Env           map[string]string
	}
	var entry struct{ Servers struct{ Browser server } }
	r := w.Run("bmcp", "config", "vscode", "--env", "PW_MCP_PROXY__A_INSTANCES=3", "--env=X=a=b", "--", "--mcp",
		"b=nonesuch@1 x")
	if err := json.Unmarshal([]byte(r.Out), &entry); err != nil || r.Code != 0 {
		t.Fatalf("%v: %s%s", err, r.Out, r.Err)
	}
	if got, want := fmt.Sprint(entry.Servers.Browser), fmt.Sprint(server{"stdio", cmdtest.Bin + "/bmcp",
		[]string{"--mcp", "b=nonesuch@1 x"}, map[string]string{"PW_MCP_PROXY__A_INSTANCES": "3",
			"X": "a=b"}}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if r := w.Run("bmcp", "config", "cursor", "--", "--http", "8931", "--token-file", "x"); r.Code != 0 ||
		!strings.Contains(r.Out, `"url": "http://127.0.0.1:8931/mcp"`) || !strings.Contains(r.Err, "TOKEN") {
		t.Errorf("%+v", r)
	}
	w.Run("bmcp", "config", "claude-desktop", "--", "--http", "8931").Exits(t, 64, "leave out --http")
	w.Run("bmcp", "config", "cursor", "--", "--http", "0").Exits(t, 64, "name one")
	// The built-in server is a child of a file as well, whatever its name: it has these tools.
	cmdtest.WriteFile(t, w.Dir+"/c.toml", "[child.own]\nmcp = \"builtin\"\n")
	w.Run("bmcp", "config", "cursor", "--", "--config", w.Dir+"/c.toml", "--tools", "core").Exits(t, 0, "")
	w.Run("bmcp", "config", "codex", "--link").Exits(t, 64, "has no links")
	w.Run("bmcp", "config", "cline").Exits(t, 0, "~/.cline/data/settings/cline_mcp_settings.json") // also in an editor
	if r := w.Run("bmcp", "config", "vscode", "--link"); r.Code != 0 ||
		!strings.HasPrefix(r.Out, "vscode:mcp/install?%7B") {
		t.Errorf("%+v", r)
	}
	w.Env = append(w.Env, "HOME="+w.Dir)
	file := w.Dir + "/.gemini/settings.json"
	mine := "{\n  // mine\n  \"theme\": \"dark\"\n}\n"
	cmdtest.WriteFile(t, file, mine)
	w.Run("bmcp", "config", "gemini-cli", "--write").Exits(t, 64, "give --yes")
	if b, _ := os.ReadFile(file); string(b) != mine {
		t.Errorf("without --yes it is %s", b)
	}
	w.Run("bmcp", "config", "gemini-cli", "--write", "--yes").Exits(t, 0, `+   "mcpServers"`)
	b, _ := os.ReadFile(file)
	if copied, _ := os.ReadFile(file + ".bak"); string(copied) != mine || !strings.HasPrefix(string(b), mine[:29]) ||
		!strings.Contains(string(b), `"command": "`+cmdtest.Bin+`/bmcp"`) {
		t.Errorf("the file is\n%s\nits copy\n%s", b, copied)
	}
	w.Run("bmcp", "config", "gemini-cli", "--write").Exits(t, 0, "has this entry")
	cmdtest.WriteFile(t, file, "{")
	w.Run("bmcp", "config", "gemini-cli", "--write", "--yes").Exits(t, 65, "cannot merge the entry")
	// A file of another form than the usual ones stays, and the entry is shown. A link stays one.
	owner := os.Getuid()
	if owner == 0 {
		owner = 12345 // whose file it is still to be
	}
	inline, dotfiles := "mcp_servers = { browser = { command = \"old\" } }\n", w.Dir+"/dotfiles.toml"
	cmdtest.WriteFile(t, dotfiles, inline)
	if err := errors.Join(os.Mkdir(w.Dir+"/.codex", 0o700), os.Symlink(dotfiles, w.Dir+"/.codex/config.toml"),
		os.Chmod(dotfiles, 0o640), os.Chown(dotfiles, owner, -1)); err != nil {
		t.Fatal(err)
	}
	if r := w.Run("bmcp", "config", "codex", "--write", "--yes", "--env", "X=\x7f"); r.Code != 65 ||
		!strings.Contains(r.Err, "[mcp_servers.browser]\ncommand = ") ||
		!strings.Contains(r.Err, `"X" = "\u007f"`) || !strings.Contains(r.Err, "paste the entry above") {
		t.Errorf("exit %d, want 65 and the entry: %s", r.Code, r.Err)
	}
	if b, _ := os.ReadFile(dotfiles); string(b) != inline {
		t.Errorf("a file that is refused has become %s", b)
	}
	cmdtest.WriteFile(t, dotfiles, "[mcp_servers.browser] # mine\ncommand = \"old\"\n")
	w.Run("bmcp", "config", "codex", "--write", "--yes").Exits(t, 0, "the entry is in "+dotfiles)
	b, _ = os.ReadFile(w.Dir + "/.codex/config.toml")
	if st, err := os.Stat(dotfiles); err != nil || st.Mode() != 0o640 ||
		int(st.Sys().(*syscall.Stat_t).Uid) != owner || strings.Contains(string(b), "old") ||
		!strings.HasPrefix(string(b), "[mcp_servers.browser] # mine\ncommand = ") {
		t.Errorf("%v %v: the file that a link leads to is\n%s", st, err, b)
	}
	os.Remove(dotfiles)
	w.Run("bmcp", "config", "codex", "--write", "--yes").Exits(t, 1, "cannot read the configuration of codex")
	w.Run("bmcp", "config", "zed", "--write", "--yes").Exits(t, 0, "the entry is in "+w.Dir) // a new file
	if b, _ := os.ReadFile(w.Dir + "/.config/zed/settings.json"); !strings.Contains(string(b), `"context_servers"`) {
		t.Errorf("%s", b)
	}
	r = w.Run("bmcp", "config", "codex", "--env", `X=a "b"`, "--", "--", "nonesuch-server", "{ws_endpoint}")
	want := "[mcp_servers.browser]\ncommand = \"" + cmdtest.Bin +
		"/bmcp\"\nargs = [\"--\", \"nonesuch-server\", \"{ws_endpoint}\"]\nenv = { \"X\" = \"a \\\"b\\\"\" }\n"
	if r.Code != 0 || r.Out != want || !strings.Contains(r.Err, "warning: cannot run nonesuch-server: not found") {
		t.Errorf("%d %s, want %s\n%s", r.Code, r.Out, want, r.Err)
	}
}

// A server at a URL is a child as a local one is: here another bmcp, whose child relays. What
// is said of it has no secret, and when it is back the next call reaches it.
func TestMCPChildAtURL(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	fake := "fake=" + cmdtest.Bin + "/fakechild"
	cmdtest.WriteFile(t, w.Dir+"/token", "t0ken\n")
	at, server := w.WebMCP(nil, "--token-file", w.Dir+"/token", "--mcp", fake)
	cmdtest.WriteFile(t, w.Dir+"/c.toml", "[child.far]\nurl = \""+at+"?key=s3cret\"\ntoken_file = \"token\"\n"+
		"headers = { X-Key = \"s3cret\" }\n")
	m := w.MCP(nil, "--config", w.Dir+"/c.toml", "--mcp", "near="+cmdtest.Bin+"/fakechild")
	m.AwaitTools("echo", "far__echo")
	if r := m.Tool("far__echo", `{"n":9007199254740993,"x":1e400}`); !strings.Contains(r.Line,
		`"arguments":{"n":9007199254740993,"x":1e400}`) || !strings.Contains(r.Line, "12345678901234567890.10") {
		t.Errorf("%s", r.Line)
	}
	id := m.Start("tools/call", `{"name":"far__progress","arguments":{"n":3},"_meta":{"progressToken":"tok"}}`)
	for i := range 3 {
		for r := m.Next(); r.Method != "notifications/progress" ||
			string(r.Params) != fmt.Sprintf(`{"progressToken":"tok","progress":%d}`, i); r = m.Next() {
			if r.Method != "notifications/tools/list_changed" {
				t.Fatalf("progress %d: %s", i, r.Line)
			}
		}
	}
	m.Answer(id)
	id = m.StartTool("far__ask", `{"method":"elicitation/create","params":{"message":"m"}}`)
	r := m.Next()
	for r.Method == "notifications/tools/list_changed" {
		r = m.Next()
	}
	m.Send(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{"action":"accept","content":{"n":1.50}}}`)
	if got := m.Answer(id).Text(t); r.Method != "elicitation/create" || !strings.Contains(got, `{"n":1.50}`) {
		t.Errorf("%s is answered %s", r.Line, got)
	}
	m.Tool("far__change", `{"names":["novel"]}`)
	m.AwaitTools("novel")
	if got := m.Tool("coordinator_status", "{}").Line; !strings.Contains(got, at) || strings.Contains(got, "s3cret") {
		t.Errorf("the status says %s", got)
	}
	silent := m.StartTool("far__silent", "{}")
	m.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + silent + `}}`)
	open := m.StartTool("far__silent", "{}")
	m.Tool("far__echo", "{}") // the server has the call before
	server.Process.Signal(syscall.SIGKILL)
	server.Wait()
	if got := m.Answer(open).Text(t); !strings.Contains(got, "child far ended (cannot reach "+at+": ") {
		t.Errorf("got %s", got)
	}
	_, again := w.WebMCP(nil, "--token-file", w.Dir+"/token", "--mcp", fake, "--http", strings.TrimSuffix(
		strings.TrimPrefix(at, "http://"), "/mcp"))
	cmdtest.Until(t, "the server is back", func() bool { return !m.Tool("far__echo", "{}").Tool(t).IsError })
	m.End()
	again.Process.Signal(syscall.SIGTERM)
	again.Wait()

	for text, want := range map[string]string{
		"https://u:s3cret@example.com/mcp?key=s3cret": "has a user and a password", "https://": "is not a URL"} {
		r := w.Run("bmcp", "--mcp", text)
		if r.Exits(t, 64, want); strings.Contains(r.Err, "s3cret") {
			t.Errorf("%s", r.Err)
		}
	}
	for table, want := range map[string]string{
		"url = \"http://example.com/mcp\"\ntoken_file = \"token\"": "needs https",
		"mcp = \"builtin\"\nheaders = { A = \"b\" }":               "are for a url",
		"mcp = \"builtin\"\nurl = \"https://example.com\"":         "has one of command, mcp and url",
	} {
		cmdtest.WriteFile(t, w.Dir+"/c.toml", "[child.far]\n"+table+"\n")
		w.Run("bmcp", "--config", w.Dir+"/c.toml").Exits(t, 78, want)
	}
	w.Clean()
}

// A server at a URL that answers slowly is waited for, one that is told to cancel is told so,
// and one that comes back and refuses the token says that. The secrets are in no message, and
// on no command line.
func TestMCPChildAtURLRefusesTheToken(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	const right, wrong = "s3cret-of-the-server", "s3cret-that-is-wrong"
	cmdtest.WriteFile(t, w.Dir+"/right", right+"\n")
	cmdtest.WriteFile(t, w.Dir+"/token", right+"\n")
	server := []string{"--token-file", w.Dir + "/right", "--mcp",
		"fake=sh -c 'exec " + cmdtest.Bin + "/fakechild 2>>" + w.Dir + "/says'"}
	at, stop := w.ServeMCP(nil, server...)
	cmdtest.WriteFile(t, w.Dir+"/c.toml",
		"[child.far]\nurl = \""+at+"\"\ntoken_file = \"token\"\nprefix = \"always\"\n")
	m := w.MCP(nil, "--config", w.Dir+"/c.toml")
	m.AwaitTools("far__echo")
	if got := m.Tool("far__sleep", `{"ms":2000}`).Text(t); got != "slept" {
		t.Errorf("a slow answer is %s", got)
	}
	silent := m.StartTool("far__silent", "{}")
	m.Tool("far__echo", "{}") // the server has the call before
	m.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + silent + `}}`)
	cmdtest.Until(t, "the child of the server is told to cancel", func() bool {
		says, _ := os.ReadFile(w.Dir + "/says")
		return strings.Contains(string(says), "cancelled {")
	})

	stop()
	cmdtest.WriteFile(t, w.Dir+"/token", wrong+"\n")
	port := strings.TrimSuffix(strings.TrimPrefix(at, "http://"), "/mcp")
	_, stop = w.ServeMCP(nil, append(server, "--http", port)...)
	said := ""
	cmdtest.Until(t, "the token is refused", func() bool {
		text := m.Tool("far__echo", "{}").Line
		said += text
		return strings.Contains(text, at+" answers 401 Unauthorized") && strings.Contains(text, "by bmcp auth far, or")
	})
	argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", m.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	said += string(argv) + m.Errs.String() + m.Tool("coordinator_status", "{}").Line
	if strings.Contains(said, "s3cret") {
		t.Errorf("a secret is shown: %s", said)
	}
	cmdtest.WriteFile(t, w.Dir+"/token", right+"\n")
	cmdtest.Until(t, "the token is right again", func() bool { return !m.Tool("far__echo", "{}").Tool(t).IsError })
	m.End()
	stop()
	w.Clean()
}
