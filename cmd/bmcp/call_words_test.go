//go:build linux

package main

import (
	"strings"
	"testing"

	. "btools/lib/cmdtest"
)

// The name of a session has a rule, and an empty one, such as that of a variable that is not set, means none.
func TestCallSessionNames(t *testing.T) {
	t.Parallel()
	w := New(t)
	for _, name := range []string{"", "a\nb", "\x1b[2J", "../x", strings.Repeat("x", 65)} {
		for _, args := range [][]string{{"call", "--session", name, "snapshot"}, {"end", "--session", name}, {"end", name}} {
			if r := w.Run("bmcp", args...); r.Code != 64 || !strings.Contains(r.Err, "is 1 to 64 letters") {
				t.Errorf("%q: exit %d: %s", args, r.Code, r.Err)
			}
		}
	}
	w.Env = append(w.Env, "BTOOLS_SESSION=")
	w.Run("bmcp", "end").Wants(t, 0, "there is no session to end")
}
