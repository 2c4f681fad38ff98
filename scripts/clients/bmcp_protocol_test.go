//go:build linux

package clients_test

import (
	"bufio"
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// The official suite finds nothing, in either era, that it does not find in
// the server behind bmcp too.
func TestMCPConformance(t *testing.T) {
	cmdtest.Long(t)
	t.Parallel()
	w := cmdtest.New(t)
	clients := cmdtest.Clients(t)
	suite := func(url string, args ...string) string {
		t.Helper()
		c := exec.Command("node",
			slices.Concat([]string{clients + "/node_modules/@modelcontextprotocol/conformance/dist/index.js",
				"server", "--url", url, "--output-dir", t.TempDir()}, args)...)
		out, err := cmdtest.Combined(c)
		if err != nil || !bytes.Contains(out, []byte(" 0 failed")) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		_, summary, _ := bytes.Cut(out, []byte("=== SUMMARY ===\n"))
		return string(summary)
	}
	// By itself it speaks only the protocols before the stateless one.
	direct := exec.Command("node", clients+"/fixture.mjs", "0")
	out := cmdtest.StartRead(t, direct)
	defer direct.Wait()
	defer direct.Process.Kill()
	port, _ := bufio.NewReader(out).ReadString('\n')
	legacy := []string{"--suite", "all", "--spec-version", "2025-11-25"}
	want := suite("http://127.0.0.1:"+strings.TrimSpace(port)+"/mcp", legacy...)

	// With the tools of bmcp itself beside those that the suite asks for.
	url, stop := w.ServeMCP(nil, "--mcp", "builtin", "--", "node", clients+"/fixture.mjs")
	first := cmdtest.NewWebHost(t, url)
	first.AwaitTools("test_simple_text")
	first.EndSession()
	if got := suite(url, legacy...); scenarios(got) != scenarios(want) || scenarios(want) == "" {
		t.Errorf("got %s\nwant %s", got, want)
	}
	// Hosts that can be asked other things have another child; the suite gives
	// some answers half a second, which is less than a node takes to start here.
	code, _, answer := cmdtest.Post(t, url,
		map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call",
			"Mcp-Name": "test_simple_text"},
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"test_simple_text","_meta":`+
			strings.Replace(cmdtest.Stateless, `"sampling":{},`, "", 1)+`}}`)
	if code != 200 {
		t.Errorf("%d %s", code, answer)
	}
	suite(url, "--requirements", "2026-07-28")
	for _, pending := range []string{"json-schema-2020-12", "http-header-validation",
		"http-custom-header-server-validation"} {
		suite(url, "--scenario", pending, "--spec-version", "2026-07-28")
	}
	// Those of the extension for tasks; that for notifications has no checks yet.
	for _, name := range []string{"lifecycle", "capability-negotiation", "wire-fields", "request-state-removal",
		"mrtr-input", "request-headers", "dispatch-and-envelope", "status-notifications", "required-task-error",
		"mrtr-composition"} {
		suite(url, "--scenario", "tasks-"+name, "--timeout", "60000")
	}
	stop()
	w.Clean()
}

// What Inspector has to say of the merged list would be its children's own
// fault, and of theirs it says nothing.
func TestMCPInspector(t *testing.T) {
	cmdtest.Long(t)
	t.Parallel()
	w := cmdtest.New(t)
	clients := cmdtest.Clients(t) + "/node_modules"
	// Inspector asks for the tools once: from then on they are in the cache.
	m := w.StartMCP([]string{"HOME=" + w.Dir}, cmdtest.BrowserChildren(t)...)
	m.Initialize("{}")
	m.AwaitTools("browser_navigate", "navigate_page")
	m.End()
	for _, pools := range []string{"1", "3"} {
		for _, era := range []string{"legacy", "modern"} {
			var env []string
			if pools != "1" {
				env = append(env, "PW_MCP_PROXY__P_IS_DEFAULT=true", "PW_MCP_PROXY__P_INSTANCES="+pools)
			}
			c := inspector(w, env, "--mcp", clients+"/.bin/playwright-mcp", "--mcp",
				clients+"/.bin/chrome-devtools-mcp --no-usage-statistics --no-performance-crux",
				"--protocol-era", era, "--method", "tools/list", "--strict", "--format", "json")
			var errs bytes.Buffer
			c.Stderr = &errs
			out, err := c.Output()
			if err != nil || strings.Contains(errs.String(), "Issue:") {
				t.Errorf("%s, %s: %v\n%s", pools, era, err, errs.String())
			}
			for _, want := range []string{`"browser_navigate"`, `"navigate_page"`, `"coordinator_status"`} {
				if !bytes.Contains(out, []byte(want)) {
					t.Errorf("%s, %s: no %s in %.300s", pools, era, want, out)
				}
			}
		}
	}
	w.Clean()
}

// inspector is Inspector's command line on a bmcp with these arguments and
// variables. It gives its server no variables but those that it is told.
func inspector(w *cmdtest.World, env []string, args ...string) *exec.Cmd {
	w.T.Helper()
	clients := cmdtest.Clients(w.T) + "/node_modules"
	argv := []string{clients + "/@modelcontextprotocol/inspector/clients/launcher/build/index.js", "--cli"}
	for _, kv := range slices.Concat(w.Env, []string{"HOME=" + w.Dir, "XDG_CACHE_HOME=" + w.Dir + "/cache"}, env) {
		if name, _, _ := strings.Cut(kv, "="); name == "HOME" || name == "TMPDIR" || name == "PATH" ||
			strings.HasPrefix(name, "XDG_") || strings.HasPrefix(name, "BTOOLS_") || slices.Contains(env, kv) {
			argv = append(argv, "-e", kv)
		}
	}
	c := exec.Command("node", slices.Concat(argv, []string{cmdtest.Bin + "/bmcp"}, args)...)
	c.Env = slices.Concat(w.Env, []string{"HOME=" + w.Dir})
	return c
}

// scenarios are the names of those that a summary says have passed.
func scenarios(summary string) string {
	var names []string
	for line := range strings.Lines(summary) {
		if name, _, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(name, "✓") {
			names = append(names, name)
		}
	}
	return strings.Join(names, "\n")
}
