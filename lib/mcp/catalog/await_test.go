package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/mcp/child"
)

// A child that does not answer is waited for once, however many ask; that it
// did not is known to the next run, which waits less.
func TestLateChild(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		start := func() *Catalog {
			c := New(Options{Children: []child.Spec{{Name: "well", Argv: []string{"./none/well"}},
				{Name: "late", Argv: []string{"./none/late"}}}, Dir: dir, Limits: DefaultLimits})
			if _, _, err := c.Update(&c.Children[0], "{}", toolsNamed("echo")); err != nil {
				t.Fatal(err)
			}
			return c
		}
		waits := func(c *Catalog, want time.Duration) {
			t.Helper()
			began := time.Now()
			done := make(chan struct{})
			go func() { // who asks a little later waits no longer
				defer close(done)
				time.Sleep(want / 2)
				c.Await(context.Background(), Listed, c.Limits.List)
			}()
			c.Await(context.Background(), Listed, c.Limits.List)
			<-done
			if took := time.Since(began); took != want {
				t.Errorf("%v, want %v", took, want)
			}
		}
		c := start()
		waits(c, DefaultLimits.List)
		waits(c, 0)
		c = start()
		waits(c, DefaultLimits.Late)
		waits(c, 0)
		// It answers after all: the next run has its list, and no word of that.
		c.Update(&c.Children[1], "{}", toolsNamed("slow"))
		if e := c.read(&c.Children[1]); e.state != stale || e.Late {
			t.Errorf("%+v", e)
		}
	})
}

// What is known of a child grows, and a list is made again only if its tools, or the
// reasons why some are missing, are others.
func TestStatesOfAChild(t *testing.T) {
	h := newHosts(t, 1, "a")
	h.Catalog.Log = slog.New(slog.DiscardHandler)
	a, why := &h.Children[0], errors.New("it crashed")
	before := h.now.Load()
	reached := func(stage Stage) bool { return h.entries["a"].state >= state(stage) }
	for _, c := range []struct {
		what                           string
		do                             func()
		initialized, listed, listedNow bool
		remade                         bool
		missing                        string
	}{
		{"at first", func() {}, false, false, false, false, ""},
		{"initialized", func() { h.Initialized(a, json.RawMessage("{}")) }, true, false, false, false, ""},
		{"failed", func() { h.Failed(a, why) }, true, true, true, true, "it crashed"},
		{"failed again", func() { h.Failed(a, why) }, true, true, true, false, "it crashed"},
		{"to be tried again", func() { h.Retry(a) }, true, true, false, false, "it crashed"},
		{"listed", func() { h.Update(a, "{}", toolsNamed("t")) }, true, true, true, true, ""},
		{"listed the same", func() { h.Update(a, "{}", toolsNamed("t")) }, true, true, true, false, ""},
		{"failed at last", func() { h.Failed(a, why) }, true, true, true, false, ""},
	} {
		c.do()
		got := []bool{reached(Initialized), reached(Listed), reached(ListedNow), h.now.Load() != before}
		before = h.now.Load()
		_, missing := h.Missing()
		if want := []bool{c.initialized, c.listed, c.listedNow, c.remade}; !slices.Equal(got, want) ||
			missing != c.missing {
			t.Errorf("%s: %v, missing %q, want %v, %q", c.what, got, missing, want, c.missing)
		}
	}
	if h.Retry(a) {
		t.Error("a child whose tools are known is not tried again")
	}
}
