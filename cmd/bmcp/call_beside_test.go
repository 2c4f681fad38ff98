//go:build linux

package main

import (
	"io"
	"strings"
	"testing"

	. "btools/lib/cmdtest"
)

// Two shells of one program that call at the same time do not have each other's tab: the second is refused, and told
// how to have its own.
func TestCallBeside(t *testing.T) {
	t.Parallel()
	w := New(t)
	site := callSite(t)
	runs := func(script string, code int, wants ...string) {
		t.Helper()
		r := w.Run("sh", "-c", script)
		if r.Code != code {
			t.Errorf("%s: exit %d, want %d: %s%s", script, r.Code, code, r.Out, r.Err)
		}
		for _, want := range wants {
			if !strings.Contains(r.Out+r.Err, want) {
				t.Errorf("%s: no %q in %s%s", script, want, r.Out, r.Err)
			}
		}
	}
	first := w.Cmd("sh", "-c", "bmcp call navigate "+site+"/first && read line && "+
		"bmcp call --raw evaluate location.pathname")
	var out SyncBuffer
	first.Stdout = &out
	in, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	Start(t, first)
	Until(t, "the first has its page", func() bool { return strings.Contains(out.String(), "Page /first") })

	// A shell whose last command is the call becomes the call: it has no other one.
	runs("bmcp call navigate "+site+"/second; exit $?", 75, "uses this session", "--session NAME", "--bind-pid $$")
	runs("bmcp call --bind-pid $$ navigate "+site+"/second && bmcp call --bind-pid $$ --raw evaluate location.pathname",
		0, "\n/second")
	runs("bmcp call --session s navigate "+site+"/third; exit $?", 0, "/third")
	io.WriteString(in, "\n")
	if err := first.Wait(); err != nil || !strings.HasSuffix(out.String(), "\n/first") {
		t.Errorf("the first: %v: %s", err, out.String())
	}

	// After its end others go on in its tab. What a caller runs may call, and so may both sides of a pipeline.
	runs("bmcp call --raw evaluate location.pathname; exit $?", 0, "/first")
	runs(`bmcp call none; a=$(bmcp call --raw evaluate 38; true); (bmcp call --raw evaluate 4; true) | (read b
		bmcp call --raw evaluate "$a + $b"; true); bmcp call evaluate 1`, 0, "421\n")
	// A program's own calls that overlap are its affair, and it is told.
	said := w.Dir + "/overlap"
	runs(`bmcp call evaluate "() => new Promise(done => { window.done = done; })" &
		while ! bmcp call --raw evaluate "typeof window.done" 2>`+said+` | grep function; do :; done
		cat `+said+`; bmcp call evaluate "done(1)"; wait`, 0, "another call of this session runs")
	w.Run("bmcp", "end", "--all")
	w.Clean()
}
