package sibling

import (
	"errors"
	"strings"
	"testing"

	"btools/lib/exit"
	"btools/lib/tail"
)

// The reason is what the program itself said last, however much of the
// browser's words it gives after that.
func TestReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ said, reason, hint string }{
		{"", "", ""},
		{"I would rather not\n", "I would rather not", ""},
		{"blaunch: sandbox off\nblaunch: cannot launch: no display; " +
			"its last words:\n\tone\n\ttwo\n\tthree\n\tfour\n\tfive\nblaunch: hint: use xvfb-run\n",
			"cannot launch: no display; its last words: one; two; three; four; five", "use xvfb-run"},
		{"1\n2\n3\n4\n5\n\n", "2; 3; 4; 5", ""},
		{"other: hint: try\nother: why\n", "other: why", "try"},
	} {
		l := &tail.Tail{}
		l.Write([]byte(c.said))
		if reason, hint := reasonIn(l.Lines(), "blaunch"); reason != c.reason || hint != c.hint {
			t.Errorf("%q: %q, %q", c.said, reason, hint)
		}
	}
}

// Whoever has only one of the programs is told that it needs the others.
func TestSiblingIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Sibling("bproxy")
	var e *exit.Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint, "install all of them") {
		t.Errorf("%v, want a hint", err)
	}
}
