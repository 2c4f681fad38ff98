//go:build linux

package cmd_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
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
		"package/cli.js": "#!/usr/bin/env node\nrequire('child_process').spawn('" + bin +
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
func (w *world) home(r *registry) []string {
	write(w.t, w.dir+"/home/.npmrc", "registry="+r.URL+"\naudit=false\nfund=false\n")
	return []string{"HOME=" + w.dir + "/home"}
}

// What a repository carries is not run when an agent opens it, nor is its
// registry asked for anything.
func TestMCPNothingOfTheOpenDirectoryIsRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good, evil := serveNpm(t, "@playwright/mcp", "0.0.83"), serveNpm(t, "@playwright/mcp", "0.0.83")
	repo, ran := w.dir+"/repo", w.dir+"/ran"
	note := "#!/bin/sh\necho \"$0\" >>'" + ran + "'\nexec " + bin + "/fakechild\n"
	about := `{"name":"@playwright/mcp","version":"0.0.83","bin":{"playwright-mcp":"cli.sh"}}`
	write(t, repo+"/package.json", about)
	write(t, repo+"/cli.sh", note)
	write(t, repo+"/.npmrc", "registry="+evil.URL+"\nscript-shell="+repo+"/cli.sh\n")
	write(t, repo+"/node_modules/@playwright/mcp/package.json", about)
	write(t, repo+"/node_modules/@playwright/mcp/cli.sh", note)
	for _, name := range []string{"node", "sh", "npx", "npm", "env", "playwright-mcp", "fake-mcp"} {
		write(t, repo+"/node_modules/.bin/"+name, note)
		write(t, repo+"/"+name, note)
	}
	for _, spec := range []string{"npx -y @playwright/mcp@0.0.83", "@playwright/mcp"} {
		c := w.cmd("bmcp", "--mcp", spec)
		c.Env = slices.Concat(w.env, w.home(good), []string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"})
		c.Dir = repo
		m := w.attach(c)
		m.greet("{}")
		m.lists("where", "env")
		if where := m.tool("where", "{}").text(t); where != repo {
			t.Errorf("%q: the child runs in %s", spec, where)
		}
		if got := m.tool("env", "{}").text(t); !strings.Contains(got, "--cdp-endpoint=http://127.0.0.1:") {
			t.Errorf("%q: it is not given the browser: %s", spec, got)
		}
		for _, p := range w.ours() {
			if strings.Contains(p, "npx") || strings.Contains(p, "npm") {
				t.Logf("%q: it stays: %s", spec, p)
			}
		}
		m.end()
	}
	if b, err := os.ReadFile(ran); err == nil {
		t.Errorf("the repository's were run:\n%s", b)
	}
	if len(good.requests()) == 0 || len(evil.requests()) != 0 {
		t.Errorf("the user's registry was asked %v, the repository's %v", good.requests(), evil.requests())
	}
	w.clean()
}

// A package is fetched once for all children, which is told if it takes long,
// and not again by the next run.
func TestMCPChildIsDownloaded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := serveNpm(t, "some-mcp", "1.2.3")
	r.delay = 1500 * time.Millisecond
	env := append(w.home(r), "PW_MCP_PROXY_BROWSER="+bin+"/fakebrowser", "PW_MCP_PROXY__A_INSTANCES=2")
	m := w.mcp(env, "--eager", "--mcp", "a=some-mcp@1.2.3 {cdp_endpoint}", "--mcp", "b=npx some-mcp")
	m.lists("echo", "b__echo")
	for _, want := range []string{"bmcp: npx fetches some-mcp@1.2.3\n",
		"bmcp: the first list of tools waits for a, b, for at most 20s\n"} {
		if e := m.errs.String(); !strings.Contains(e, want) {
			t.Errorf("no %q while it is fetched: %s", want, e)
		}
	}
	if a, b := m.tool("where", "{}").text(t), m.tool("b__where", "{}").text(t); a != w.dir || b != w.dir {
		t.Error(a, b)
	}
	m.end()
	if n := strings.Count(fmt.Sprint(r.requests()), "it.tgz"); n > 2 { // a, and b, which is another name
		t.Errorf("it was fetched %d times: %v", n, r.requests())
	}
	m = w.mcp(env, "--mcp", "c=other-mcp@1")
	until(t, "the error says why the child is missing", func() bool {
		r := m.tool("nonesuch", "{}")
		return r.Error != nil && strings.Contains(r.Error.Message, "npx cannot fetch other-mcp@1")
	})
	m.end()
	r.Close()
	m = w.mcp(env, "--mcp", "a=some-mcp@1.2.3 {cdp_endpoint}")
	if r := m.tool("where", "{}"); r.tool(t).IsError {
		t.Errorf("got %v, want no error", r.line)
	}
	m.end()
	w.clean()
}

// A command that is not there is not looked for at npm.
func TestMCPMissingCommandIsNotFetched(t *testing.T) {
	w := newWorld(t)
	notes := w.dir + "/npx-was-given"
	write(t, w.dir+"/bin/npx", "#!/bin/sh\necho \"$@\" >>'"+notes+"'\nexit 1\n")
	w.env = append(w.env, "PATH="+w.dir+"/bin:"+bin+":/usr/bin:/bin")
	w.run("bmcp", "--", "nonesuch-uvx", "mcp-server-fetch").wants(t, 127, "cannot run nonesuch-uvx: not found")
	w.run("bmcp", "--", w.dir).wants(t, 126, w.dir)
	write(t, w.dir+"/c.toml", "[child.a]\ncommand = [\"nonesuch-python2\", \"server.py\"]\n")
	w.run("bmcp", "--config", w.dir+"/c.toml").wants(t, 127, "cannot run nonesuch-python2: not found")
	m := w.mcp(nil, "--mcp", "nonesuch-python2 server.py", "--mcp", "DEBUG=1 node server.js", "--mcp", "dir="+w.dir)
	r := m.tool("nonesuch", "{}")
	for _, want := range []string{"cannot run nonesuch-python2: not found on PATH; for an npm package, write npx " +
		"nonesuch-python2", "cannot run 1: not found", "cannot run " + w.dir + ": "} {
		if r.Error == nil || !strings.Contains(r.Error.Message, want) {
			t.Errorf("no %q in %s", want, r.line)
		}
	}
	m.end()
	if b, err := os.ReadFile(notes); err == nil {
		t.Errorf("npx was given:\n%s", b)
	}
	// The name of a program after -- is one word, whatever is in it.
	odd := w.dir + "/o'brien/a \"server"
	os.Mkdir(w.dir+"/o'brien", 0o755)
	if err := os.Symlink(bin+"/fakechild", odd); err != nil {
		t.Fatal(err)
	}
	m = w.mcp(nil, "--", odd)
	if got := m.tool("echo", "{}"); got.Error != nil {
		t.Errorf("got %v, want no error", got.line)
	}
	m.end()
	w.clean()
}

// The list of a child's last run is that of the directory that it ran in.
func TestCacheIsOfTheDirectory(t *testing.T) {
	w := newWorld(t)
	write(t, w.dir+"/server", "#!/bin/sh\nFAKE_TOOLS=$(cat tool) exec "+bin+"/fakechild\n")
	for _, tool := range []string{"secret_of_one", "two", "secret_of_one"} {
		dir := w.dir + "/" + tool
		write(t, dir+"/tool", tool)
		c := w.cmd("bmcp", "--mcp", "sh "+w.dir+"/server")
		c.Env, c.Dir = append(slices.Clone(w.env), "XDG_CACHE_HOME="+w.dir+"/cache"), dir
		m := w.attach(c)
		m.greet("{}")
		if names := m.tools(); names[len(names)-1] != tool {
			t.Errorf("in %s: %v", tool, names)
		}
		m.end()
	}
	w.clean()
}

// An agent can choose among browsers, but not name a program.
func TestMCPLaunchRunsNoProgram(t *testing.T) {
	w := newWorld(t)
	write(t, w.dir+"/evil.sh", "#!/bin/sh\ntouch '"+w.dir+"/ran'\n")
	m := w.mcp(nil, "--mcp", "a="+fake())
	for _, name := range []string{"./evil.sh", w.dir + "/evil.sh", "firefox", "../evil.sh", ""} {
		r := m.tool("coordinator_launch_browser", fmt.Sprintf(`{"browserType":%q}`, name)).tool(t)
		if want := fmt.Sprintf("browserType must be one of chrome, edge, chromium, brave, "+
			"chrome-headless-shell, not %q", name); !r.IsError || r.Content[0].Text != want {
			t.Errorf("%q: %+v", name, r)
		}
	}
	if _, err := os.Stat(w.dir + "/ran"); err == nil {
		t.Error("the program was run")
	}
	r := m.tool("coordinator_launch_browser", `{"headles":true}`).tool(t)
	if !r.IsError || r.Content[0].Text != `there is no argument "headles": did you mean headless?` {
		t.Errorf(`got %+v, want an error with 'there is no argument "headles": did you mean headless?'`, r)
	}
	// The tools that tell the status say its form once.
	// a property, and that it is required
	if n := strings.Count(m.call("tools/list", "{}").line, `"last_exit"`); n != 2 {
		t.Errorf("the status is described %d times", n/2)
	}
	if !strings.Contains(m.call("tools/list", "{}").line,
		`"enum":["chrome","edge","chromium","brave","chrome-headless-shell"]`) {
		t.Error("the types are not in the schema")
	}
	for _, id := range []string{"1e400", "123456789012345678901234567890"} { // no number of Go
		m.send(`{"jsonrpc":"2.0","id":` + id +
			`,"method":"tools/call","params":{"name":"coordinator_status","arguments":{}}}`)
		if r := m.answer(id); r.Error != nil {
			t.Errorf("got %v, want no error", r.line)
		}
	}
	m.end()
	w.clean()
}

// The arguments of children are not shown to the model.
func TestMCPChildrenTellNoSecrets(t *testing.T) {
	w := newWorld(t)
	m := w.mcp(nil, "--mcp", fake()+" --header 'Authorization: Bearer s3cr3t'", "--mcp",
		"gone=/nonexistent/server --token=s3cr3t")
	m.tools()
	m.tool("echo", "{}")
	status := m.tool("coordinator_status", "{}").text(t)
	if strings.Contains(status, "s3cr3t") || !strings.Contains(status, `"command":"`+bin+`/fakechild"`) ||
		!strings.Contains(status, `"command":"/nonexistent/server"`) {
		t.Errorf(`got %s, want %s and '"command":"/nonexistent/server"' without "s3cr3t"`, status,
			`"command":"`+bin+`/fakechild"`)
	}
	m.end()
	w.clean()
}

// A child finds VS Code's own port where VS Code's programs look for it.
func TestMCPInVSCode(t *testing.T) {
	w := newWorld(t)
	write(t, w.dir+"/vscode-cdp-port", "9333\n")
	m := w.mcp([]string{"TERM_PROGRAM=vscode", "VSCODE_CDP_PORT="}, "--mcp", "a="+fake())
	if got := m.tool("getenv", `{"names":["VSCODE_CDP_PORT",`+
		`"npm_config_update_notifier"]}`).text(t); got != "9333 false" {
		t.Errorf("%q, want %q", got, "9333 false")
	}
	if status := m.tool("coordinator_status", "{}").text(t); !strings.Contains(status, `"tier":"2"`) ||
		!strings.Contains(status, `"cdp_port":9333`) {
		t.Errorf(`got %s, want '"tier":"2"' and '"cdp_port":9333'`, status)
	}
	m.end()
	w.clean()
}

// A child that can't be started is told wherever somebody looks, with what to
// do about it.
func TestMCPMissingChild(t *testing.T) {
	w := newWorld(t)
	empty := w.dir + "/empty"
	os.Mkdir(empty, 0o755)
	for why, args := range map[string][]string{
		"cannot start child playwright: cannot run npx: not found on PATH: install Node.js, which has it": {"--mcp",
			"@playwright/mcp"},
		"cannot start child gone: cannot run /nonexistent/server: no such file or directory": {"--mcp",
			"gone=/nonexistent/server"},
	} {
		c := w.cmd("bmcp", args...)
		c.Env = append(slices.Clone(w.env), "PATH="+empty, "XDG_CACHE_HOME="+w.dir+"/cache")
		m := w.attach(c)
		greeting := m.greet("{}")
		var about struct{ Instructions string }
		greeting.into(t, &about)
		if !strings.Contains(about.Instructions, " are missing: "+why) {
			t.Errorf("the instructions: %s", about.Instructions)
		}
		var list struct {
			Tools []struct{ Name, Description string }
		}
		m.call("tools/list", "{}").into(t, &list)
		i := slices.IndexFunc(list.Tools,
			func(tool struct{ Name, Description string }) bool { return tool.Name == "coordinator_status" })
		if !strings.Contains(list.Tools[i].Description, why) {
			t.Errorf("the description: %+v", list.Tools[i])
		}
		if status := m.tool("coordinator_status", "{}").text(t); !strings.Contains(status, why) {
			t.Errorf("the status: %s", status)
		}
		m.end()
		if n := strings.Count(m.errs.String(), "bmcp: warning: "+why+"\n"); n != 1 {
			t.Errorf("it is logged %d times: %s", n, m.errs.String())
		}
	}
	// Where no child drives a browser, nothing is said of tools that do.
	for _, args := range [][]string{{"--no-child"}, {"--mcp", bin + "/fakechild"}} {
		m := w.startMCP(nil, args...)
		if r := m.greet("{}"); !strings.Contains(r.line, "There are no browser tools here.") {
			t.Errorf("%s\nlacks %q", r.line, "There are no browser tools here.")
		}
		m.tool("coordinator_status", "{}")
		until(t, "the proxy is there", func() bool { return len(w.state().Proxies) == 1 })
		m.end()
	}
	w.clean()
}

// What a child prints moves no terminal, that of bmcp's or that of the host's.
func TestMCPChildrenMoveNoTerminal(t *testing.T) {
	w := newWorld(t)
	m := w.mcp(nil, "--mcp", "a="+fake())
	const clean = `\x1b[2Jred\x1b]0;title\x07`
	if r := m.tool("colors", "{}").tool(t); !r.IsError || r.Content[0].Text != "child a ended (exit status 7): "+clean {
		t.Errorf("%+v", r)
	}
	m.end()
	if e := m.errs.String(); strings.Contains(e, "\x1b") || !strings.Contains(e, "a: "+clean+"\n") {
		t.Errorf("got %q, want %q without %q", e, "a: "+clean+"\n", "\x1b")
	}
	w.clean()
}

// Many children leave pipes of the usual size to what else the user runs.
func TestPipesOfManyChildren(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it runs as another user, whose pipes are bounded and counted")
	}
	const nobody = 65534
	w := newWorld(t)
	home := w.dir + "/home"
	os.Chmod(w.dir, 0o755)
	os.Mkdir(home, 0o755)
	os.Chown(home, nobody, nobody)
	for _, name := range []string{"bmcp", "bproxy", "fakechild"} {
		b, err := os.ReadFile(bin + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, w.dir+"/bin/"+name, string(b))
	}
	var args []string
	for i := range 40 {
		args = append(args, "--mcp", fmt.Sprintf("c%d=%s/bin/fakechild", i, w.dir))
	}
	c := w.cmd(w.dir+"/bin/bmcp", args...)
	c.Env = append(slices.Clone(w.env), "HOME="+home, "XDG_CACHE_HOME="+home, "BTOOLS_STATE="+home+"/state.json",
		"TMPDIR="+home)
	c.Dir = home
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	m := w.attach(c)
	m.greet("{}")
	until(t, "all children run", func() bool {
		return strings.Count(m.tool("coordinator_status", "{}").text(t), `"running":1`) == 40
	})
	pipe := w.cmd("/usr/bin/perl", "-e", "pipe(R, W); print fcntl(W, 1032, 0)") // F_GETPIPE_SZ
	pipe.SysProcAttr, pipe.Dir = c.SysProcAttr, home
	if out, err := pipe.Output(); err != nil || string(out) != "65536" {
		t.Errorf("a new pipe takes %s bytes, %v", out, err)
	}
	m.end()
}

// Somebody who starts bmcp on a terminal is told what it is for; as a background
// job, which timeout makes of it where the shell stays, it ends.
func TestMCPOnATerminal(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "SHELL=/bin/sh")
	for _, line := range []string{"bmcp --no-child", "timeout 2 bmcp --no-child; true"} {
		out, err := w.cmd("script", "-qec", line, "/dev/null").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "bmcp config claude-code") {
			t.Errorf("%s: %v: %s", line, err, out)
		}
		w.clean()
	}
}

// The entry for a host is one that bmcp can be run with.
func TestMCPConfig(t *testing.T) {
	w := newWorld(t)
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
		r := w.run("bmcp", append([]string{"config"}, strings.Fields(x.args)...)...)
		if r.code != x.code || r.out != "" || !strings.Contains(r.err, x.want) {
			t.Errorf("%s: exit %d, want %d with %q: %s%s", x.args, r.code, x.code, x.want, r.out, r.err)
		}
	}
	type server struct {
		Type, Command string
		Args          []string
		Env           map[string]string
	}
	var entry struct{ Servers struct{ Browser server } }
	r := w.run("bmcp", "config", "vscode", "--env", "PW_MCP_PROXY__A_INSTANCES=3", "--env=X=a=b", "--", "--mcp",
		"b=nonesuch@1 x")
	if err := json.Unmarshal([]byte(r.out), &entry); err != nil || r.code != 0 {
		t.Fatalf("%v: %s%s", err, r.out, r.err)
	}
	if got, want := fmt.Sprint(entry.Servers.Browser), fmt.Sprint(server{"stdio", bin + "/bmcp",
		[]string{"--mcp", "b=nonesuch@1 x"}, map[string]string{"PW_MCP_PROXY__A_INSTANCES": "3",
			"X": "a=b"}}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	r = w.run("bmcp", "config", "codex", "--env", `X=a "b"`, "--", "--", "nonesuch-server", "{ws_endpoint}")
	want := "[mcp_servers.browser]\ncommand = \"" + bin +
		"/bmcp\"\nargs = [\"--\", \"nonesuch-server\", \"{ws_endpoint}\"]\nenv = { \"X\" = \"a \\\"b\\\"\" }\n"
	if r.code != 0 || r.out != want || !strings.Contains(r.err, "warning: cannot run nonesuch-server: not found") {
		t.Errorf("%d %s, want %s\n%s", r.code, r.out, want, r.err)
	}
}
