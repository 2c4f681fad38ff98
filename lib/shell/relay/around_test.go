package relay

import (
	"slices"
	"testing"
)

// A variable that only the caller's programs heed makes no other service for sessions without these.
func TestAround(t *testing.T) {
	t.Parallel()
	common := []string{"PATH=/bin", "HOME=/home/a", "LANG=C"}
	socket := func(dir string, programs bool, more ...string) string {
		return AroundCall(append(common, more...), dir, programs).Socket()
	}
	browser, program := socket("/a", false), socket("/a", true)
	for _, variable := range []string{"DISPLAY=:0", "TMPDIR=/gone", "LC_ALL=de", "https_proxy=http://p", "SEARCH_URL=x",
		"PW_MCP_PROXY__A_INSTANCES=1", "BTOOLS_POOL_SOCKET=/s"} {
		if socket("/a", false, variable) == browser || socket("/a", true, variable) == program {
			t.Errorf("%s has no service of its own", variable)
		}
	}
	for _, variable := range []string{"TOKEN=x", "CLAUDE_CODE=1", "SSH_CONNECTION=x", "TERM=xterm"} {
		if socket("/a", false, variable) != browser || socket("/a", true, variable) == program {
			t.Errorf("%s has a service of its own for browsers, or none for programs", variable)
		}
	}
	for _, variable := range []string{"PWD=/b", "SHLVL=2", "_=/bin/bmcp", "BTOOLS_SESSION=x"} {
		if socket("/a", false, variable) != browser || socket("/a", true, variable) != program {
			t.Errorf("%s has a service of its own", variable)
		}
	}
	if socket("/b", false) != browser || socket("/b", true) == program {
		t.Error("the directory makes another service for browsers, or none for programs")
	}
	if a := AroundCall(append(common, "TOKEN=x"), "/a", false); slices.Contains(a.Env, "TOKEN=x") {
		t.Errorf("the service of all has %q", a.Env)
	}
}
