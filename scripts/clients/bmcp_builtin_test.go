//go:build linux

package clients_test

import (
	"bytes"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// Inspector finds nothing wrong with the tools.
func TestBuiltinInspector(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for _, pools := range []string{"1", "3"} {
		var env []string
		if pools != "1" {
			env = append(env, "PW_MCP_PROXY__P_INSTANCES="+pools)
		}
		c := inspector(w, env, "--protocol-era", "modern", "--method", "tools/list", "--strict", "--format", "json")
		var errs bytes.Buffer
		c.Stderr = &errs
		out, err := c.Output()
		if err != nil || strings.Contains(errs.String(), "Issue:") || !bytes.Contains(out, []byte(`"browser_click"`)) {
			t.Errorf("%s: %v\n%s\n%.300s", pools, err, errs.String(), out)
		}
	}
	w.Clean()
}
