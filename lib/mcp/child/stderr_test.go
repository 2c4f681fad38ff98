package child

import (
	"io"
	"testing"
)

func TestReasonOfDeadChild(t *testing.T) {
	for _, c := range []struct{ said, want string }{
		{"one\ntwo\nthree\nfour\n", "two | three | four"},
		{"/srv/x.mjs:1\nlet let\n    ^^^\n\nSyntaxError: let is disallowed\n    at compile (node:internal:1:2)\n" +
			"    at node:internal/main/run_main_module:36:49\n\nNode.js v22.23.3\n", "SyntaxError: let is disallowed"},
		{"TypeError [ERR_X]: no\n    at a\n", "TypeError [ERR_X]: no"},
		{"Traceback (most recent call last):\n  File \"x\"\nmodule.OddError: no\n", "module.OddError: no"},
		{"Server error: later\nbye\n", "Server error: later | bye"},
	} {
		w := &stderrTail{name: "c", log: io.Discard}
		io.WriteString(w, c.said)
		if got := w.how(nil); got != "ended (exited with 0): "+c.want {
			t.Errorf("%q: %s", c.said, got)
		}
	}
}
