//go:build linux

package main_test

import (
	"os"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// A child for such an instance runs on Windows' Node.js.
func TestWSLChild(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t).FakeWindows()
	if err := os.Symlink(cmdtest.Bin+"/blaunch", w.Dir+"/windows/blaunch.exe"); err != nil {
		t.Fatal(err)
	}
	var env []string
	for _, v := range cmdtest.WSLPool {
		env = append(env, "PW_MCP_PROXY_"+v)
	}
	env = append(env, "PATH="+w.Path())
	m := w.MCP(env, "--mcp", "kid=npx -y some-mcp {cdp_endpoint}")
	if got := m.Tool("echo", `{}`).Text(t); !strings.Contains(got, "echo") {
		t.Errorf(`got %q, want "echo"`, got)
	}
	args, _ := os.ReadFile(w.Dir + "/node-args")
	if f := strings.Split(strings.TrimSpace(string(args)), "\n"); len(f) != 4 ||
		f[0] != `C:\nodejs\node_modules\npm\bin\npx-cli.js` || f[2] != "some-mcp" ||
		!strings.HasPrefix(f[3], "http://127.0.0.1:") {
		t.Errorf("%q", f)
	}
	m.End()

	os.Remove(w.Dir + "/windows/cmd.exe")
	m = w.MCP(env, "--mcp", "kid=npx -y some-mcp {cdp_endpoint}")
	m.Tool("echo", "{}") // a child whose tools are known is started by a call
	cmdtest.Until(t, "what is missing is told", func() bool {
		return strings.Contains(m.Tool("coordinator_status", `{}`).Text(t), "cmd.exe is not on PATH")
	})
}
