//go:build linux

package cmd_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// How an example is tried.
const (
	run    = "run"    // it ends well
	serve  = "serve"  // it runs until it is interrupted, and ends well then
	lasts  = "lasts"  // it runs until it is interrupted, whatever the code
	parsed = "parsed" // it needs a network, an account, a display or another program: its options exist
	stop   = "stop"   // what is served is interrupted
)

// shownCommands are those of README and of the EXAMPLES in the manual, as they
// follow from each other.
var shownCommands = []struct{ how, line string }{
	{run, "bfind --type chromium --first -f browser.path"},
	{run, "bfind --type chrome,chromium --first | blaunch -"},
	{run, "bfind --type firefox --first | blaunch -"},
	{run, "blaunch list | blaunch stop"},
	{run, "bfind --type chromium --first | blaunch -f instance.ws_url"},
	{run, "bfind | blaunch --headless"},
	{run, "bfind --first | bport | blaunch"},
	{run, `bfind --first | blaunch --port "$(bport --no-input -f port)"`},
	{run, "port=$(bport -f port)"},
	{run, "blaunch -- sh -c 'echo $BTOOLS_WS_URL'"},
	{run, "blaunch -- node script.js {ws_endpoint}"},
	{run, `while read -r url; do blaunch --no-input --url "$url"; done <urls`},
	{run, "blaunch list | blaunch stop"},

	{run, "bproxy --trace trace.jsonl -- node script.js {ws_endpoint}"},
	{run, "bproxy har trace.jsonl >requests.har"},
	{serve, "bproxy --listen 9222 --idle 10m"},
	{stop, ""},
	{serve, "bproxy share --listen 9222 --hibernate 10m"},
	{stop, ""},
	{serve, "bproxy share --listen 9222"},
	{run, "node agent.js http://127.0.0.1:9222/session/agent-7"},
	{run, "node one.js http://127.0.0.1:9222/session/one"},
	{run, "node two.js http://127.0.0.1:9222/session/two"},
	{lasts, "bproxy cast agent-7 --duration 10m film"},
	{run, "bproxy state save shop --from agent-7"},
	{run, "bproxy session new agent-9 --state shop"},
	{run, "bproxy session new agent --state shop"},
	{run, "bproxy session new three --proxy @$HOME/.config/proxy-url"},
	{stop, ""},
	{serve, "bproxy --launch 'nice blaunch --wait --bind-fd 3'"},
	{stop, ""},

	{run, "export PW_MCP_PROXY__MAIN_INSTANCES=3 PW_MCP_PROXY__MAIN_IS_DEFAULT=true\n" +
		"export PW_MCP_PROXY__FF_INSTANCES=1 PW_MCP_PROXY__FF_BROWSER=firefox\nbpool check"},
	{serve, "bpool serve --env-file .env"},
	{run, "bpool lease -- node script.js {ws_endpoint}"},
	{run, "bpool lease --bind-pid $$ -f instance.http_url"},
	{run, "bpool lease FF > lease.json"},
	{run, "bpool release < lease.json"},
	{serve, "bproxy --launch 'bpool lease --wait --bind-fd 3'"},
	{stop, ""},
	{serve, "export PW_MCP_PROXY__S_INSTANCES=20 PW_MCP_PROXY__S_ISOLATION=context\nbpool serve &"},
	{run, "bpool lease -- node script.js {ws_endpoint}"},
	{stop, ""},

	{run, "bmcp config vscode"},
	{run, "bmcp config vscode -- --no-headless"},
	{run, "bmcp config cursor --env PW_MCP_PROXY__A_INSTANCES=3"},
	{run, "bmcp config codex -- -- my-server --browser {ws_endpoint}"},
	{serve, "bmcp --http 8931"},
	{run, "curl http://127.0.0.1:8931/mcp \\\n" +
		"  -H 'Mcp-Protocol-Version: 2026-07-28' -H 'Mcp-Method: tools/list' \\\n" +
		"  -d '" + `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` + "\n" +
		`    "io.modelcontextprotocol/protocolVersion":"2026-07-28",` + "\n" +
		`    "io.modelcontextprotocol/clientCapabilities":{}}}}'`},
	{stop, ""},
	{run, "PW_MCP_PROXY__A_INSTANCES=3 PW_MCP_PROXY_LEASE_TTL=5m bmcp"}, // its input has ended

	{parsed, "apt install ./btools_VERSION_amd64.deb chromium"}, // make packages-test
	{parsed, "git clone https://github.com/OWNER/btools && cd btools"},
	{parsed, "make demo"}, // .ci/run
	{parsed, "make test"},
	{parsed, "go install github.com/OWNER/btools/cmd/...@latest"},
	{parsed, "make install"},
	{parsed, "- uses: OWNER/btools/.github/actions/setup@v0"},
	{parsed, "with: { version: 0.1.0 }"},
	{parsed, "- run: npm start &"},
	// TestRecipes, TestEvidence
	{parsed, "- run: blaunch --wait-for http://localhost:3000 --evidence out -- npx playwright test"},
	{parsed, "claude mcp add browser -- bmcp"},
	{parsed, "bmcp call navigate https://example.com"}, // TestCall
	{parsed, "bmcp call --url https://host.example/mcp --token-file token navigate https://example.com"},
	{parsed, "bmcp call snapshot"},
	{parsed, "bmcp call click e6"},
	{parsed, "bmcp call take_screenshot --save page.png"},
	{parsed, "bmcp call screenshot https://example.com page.png"}, // TestCallShot
	{parsed, "bmcp call --json evaluate document.title"},
	{parsed, "bmcp call --once 'navigate https://example.com' 'get_markdown --save page.md'"}, // TestCallOnce
	{parsed, "bmcp call --session two screenshot https://example.com page.png"},               // TestCallShot
	{parsed, "seq 9 | xargs -P3 -I@ sh -c 'bmcp call --bind-pid $$ navigate https://example.com/@ &&\n" +
		"    bmcp call --bind-pid $$ --save @.png take_screenshot'"},
	{run, "bmcp skill --install .claude/skills"},
	{parsed, "blaunch --no-headless --state-save shop --url https://shop.example/login"},
	{parsed, "blaunch --no-headless --extension -f joined.http_url"},
	{parsed, "bproxy launch --no-headless 9222"},
	{parsed, "bproxy downloads agent-7 --wait --save reports"}, // TestSessionDownloads
	{parsed, "bproxy -- npx @playwright/mcp --cdp-endpoint {cdp_endpoint}"},
	{parsed, "bmcp --mcp @playwright/mcp --mcp chrome-devtools-mcp"},
	{parsed, "bproxy cast agent-7 film.webm"}, // TestVideo
	{parsed, "bproxy view"},                   // TestView
	{parsed, "bproxy top"},                    // TestTop
	{parsed, `port=$(bport -f port) && python3 -m http.server "$port"`},
	{parsed, "bport --wait http://localhost:3000 --wait-timeout 2m && npm test"}, // TestWaitFor
}

var (
	note        = regexp.MustCompile(` {2,}#.*$`)
	mdocEscapes = strings.NewReplacer(`\-`, "-", `\(dq`, `"`, `\e`, `\`, `\&`, "")
)

// documented returns the commands of README and of the manual's EXAMPLES, and
// the output that README shows, by command.
func documented(t *testing.T) (lines []string, shown map[string]string) {
	t.Helper()
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	shown = map[string]string{}
	last := ""
	readme := strings.Split(read(cmdtest.Root+"/README.md"), "\n")
	if len(readme) > 110 {
		t.Errorf("README has %d lines: 110 at most, the rest has pages", len(readme))
	}
	for _, l := range readme {
		code, is := strings.CutPrefix(l, "    ")
		command, prompt := strings.CutPrefix(code, "$ ")
		switch {
		case !is || strings.Contains(code, "──"):
		case last != "" && !prompt && strings.ContainsAny(code[:1], "w{"):
			shown[last] = code
		default:
			last = ""
			lines = append(lines, strings.TrimSpace(note.ReplaceAllString(command, "")))
			if prompt {
				last = lines[len(lines)-1]
			}
		}
	}
	pages, _ := filepath.Glob(cmdtest.Root + "/man/*.1")
	for _, p := range pages {
		_, text, _ := strings.Cut(read(p), ".Sh EXAMPLES\n")
		text, _, _ = strings.Cut(text, "\n.Sh ")
		block := false
		for _, l := range strings.Split(text, "\n") {
			command, is := strings.CutPrefix(l, ".Dl $ ")
			switch {
			case strings.HasPrefix(l, ".Bd"):
				block = true
				lines = append(lines, "")
			case l == ".Ed":
				block = false
			case block:
				if at := &lines[len(lines)-1]; *at == "" {
					*at = mdocEscapes.Replace(strings.TrimPrefix(l, "$ "))
				} else {
					*at += "\n" + mdocEscapes.Replace(strings.TrimPrefix(l, "$ "))
				}
			case is:
				lines = append(lines, mdocEscapes.Replace(command))
			}
		}
	}
	return lines, shown
}

// Every command that README and the manual show does what they say.
func TestExamples(t *testing.T) {
	t.Parallel()
	lines, shown := documented(t)
	for _, l := range lines {
		// What a page shows together may be several examples.
		rest := l
		for _, x := range shownCommands {
			if x.how != stop {
				rest = strings.TrimSpace(strings.Replace("\n"+rest+"\n", "\n"+x.line+"\n", "\n", 1))
			}
		}
		if rest != "" && rest != "bpool serve" { // without --env-file, the same
			t.Errorf("nobody tries the example %q", rest)
		}
	}
	all := "\n" + strings.Join(lines, "\n") + "\n"
	w := cmdtest.New(t)
	w.Env = append(w.Env, "HOME="+w.Dir, "PW_MCP_PROXY_BROWSER=chrome-headless-shell")
	free := strings.Fields(w.Run("bport", "-n", "2", "-f", "port").Out)
	ports := strings.NewReplacer("9222", free[0], "8931", free[1])
	for name, text := range map[string]string{
		"script.js": `(async () => {
	const { default: puppeteer } = await import('puppeteer-core');
	let at = process.argv[2];
	if (at.startsWith('http')) at = (await (await fetch(at + '/json/version')).json()).webSocketDebuggerUrl;
	const browser = await puppeteer.connect({ browserWSEndpoint: at });
	const page = (await browser.pages())[0] ?? await browser.newPage();
	await page.goto('data:text/html,<title>here</title>');
	await browser.disconnect();
})();`,
		"urls": "about:blank\n", ".config/proxy-url": "direct://\n",
		".env": "PW_MCP_PROXY__MAIN_INSTANCES=2\nPW_MCP_PROXY__MAIN_IS_DEFAULT=true\nPW_MCP_PROXY__FF_INSTANCES=1\n",
	} {
		cmdtest.WriteFile(t, w.Dir+"/"+name, text)
	}
	os.Symlink(cmdtest.Clients(t)+"/node_modules", w.Dir+"/node_modules")
	for _, name := range []string{"agent.js", "one.js", "two.js"} {
		os.Symlink("script.js", w.Dir+"/"+name)
	}
	var served []*exec.Cmd
	var kinds []string
	interrupt := func() {
		for i, c := range slices.Backward(served) {
			c.Process.Signal(syscall.SIGINT)
			if err := c.Wait(); err != nil && kinds[i] == serve {
				t.Errorf("%s: %v", c, err)
			}
		}
		served, kinds = nil, nil
	}
	for _, x := range shownCommands {
		if x.how != stop && !strings.Contains(all, "\n"+x.line+"\n") {
			t.Errorf("nobody shows the example %q", x.line)
		}
		line := ports.Replace(x.line)
		c := w.Cmd("bash", "-ec", line)
		c.Dir = w.Dir
		switch x.how {
		case stop:
			interrupt()
		case parsed:
			optionsExist(w, x.line)
		case run:
			out, err := c.Output()
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
			if want := shown[x.line]; want != "" && !like(want, string(out)) {
				t.Errorf("%s prints %q, not %q", line, out, want)
			}
		default:
			c.Args[2] = strings.TrimSuffix(regexp.MustCompile(`(?m)^(b\w+ )`).ReplaceAllString(line, "exec $1"), " &")
			out, err := c.StdoutPipe()
			if err == nil {
				err = c.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			served, kinds = append(served, c), append(kinds, x.how)
			if x.how == lasts {
				file := w.Dir + "/" + line[strings.LastIndex(line, " ")+1:]
				cmdtest.Until(t, line, func() bool { _, err := os.Stat(file); return err == nil })
				continue
			}
			first, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
			if want := shown[x.line]; want != "" && !like(want, first) {
				t.Errorf("%s prints %q, not %q", line, first, want)
			}
		}
	}
	interrupt()
	w.Run("blaunch", "stop", "--all")
	w.Clean()
}

// like reports whether an output is the one that is shown, but for numbers, IDs
// and what "…" stands for.
func like(shown, out string) bool {
	pattern := regexp.QuoteMeta(shown)
	pattern = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllString(pattern, `[0-9a-f-]{36}`)
	pattern = regexp.MustCompile(`:\d+`).ReplaceAllString(pattern, `:\d+`)
	return regexp.MustCompile("^" + strings.ReplaceAll(pattern, "…", ".*") + "\n?$").MatchString(out)
}

// optionsExist checks that the programs in a command line have its options.
func optionsExist(w *cmdtest.World, line string) {
	w.T.Helper()
	words := strings.Fields(line)
	at := slices.IndexFunc(words, programName.MatchString)
	if at < 0 {
		return
	}
	args := []string{"--help", "--all"}
	if at+1 < len(words) && !strings.HasPrefix(words[at+1], "-") {
		args = slices.Insert(args, 0, words[at+1])
	}
	help := w.Run(words[at], args...).Out
	for _, word := range words[at+1:] {
		if word == "--" {
			break
		}
		if name, is := strings.CutPrefix(word, "--"); is && !strings.Contains(help, "--"+name) {
			w.T.Errorf("%q: %s has no %s", line, words[at], word)
		}
	}
}

var programName = regexp.MustCompile(`^b(find|port|launch|proxy|pool|mcp)$`)
