//go:build linux

package main_test

import (
	"os"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// Bmcp takes the same file, and hands it on to its bpool.
func TestMCPEnvFile(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	file := w.Dir + "/.env"
	os.WriteFile(file,
		[]byte("PW_MCP_PROXY__FILES_INSTANCES=2\nexport PW_MCP_PROXY_LAUNCH=false\nPW_MCP_PROXY_HEADLESS=true\n"),
		0o600)
	m := w.MCP([]string{"PW_MCP_PROXY_HEADLESS=false"}, "--no-child", "--env-file", file)
	if r := m.Tool("browser_pool_status", "{}"); !strings.Contains(r.Line, "FILES") ||
		!strings.Contains(r.Line, `"total_instances":2`) || !strings.Contains(r.Line, `"headless":false`) {
		t.Errorf("browser_pool_status: %s, want pool FILES with 2 instances that are not headless", r.Line)
	}
	m.End()
	w.Run("bmcp", "--env-file", w.Dir+"/none").Exits(t, 78, "no such file")
	os.WriteFile(file, []byte("PW_MCP_PROXY__FILES_INSTANCE=2\n"), 0o600)
	w.Run("bmcp", "--env-file", file).Exits(t, 78, "did you mean INSTANCES? ("+file+":1: ")
}
