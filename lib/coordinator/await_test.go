package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A child that does not answer is waited for once, however many ask; that it
// did not is known to the next run, which waits less.
func TestLateChild(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		listed := func(l *childCatalog) chan struct{} { return l.toolsKnown }
		start := func() *Coordinator {
			c := withChildren(t, "well", "late")
			c.CacheDir = dir
			for i := range c.Children { // as New does
				l := c.readCache(&c.Children[i])
				l.initialized, l.toolsKnown = make(chan struct{}), make(chan struct{})
				l.toolsFresh = make(chan struct{})
				c.listings[c.Children[i].Name] = l
			}
			if _, _, err := c.updateTools(&c.Children[0], "{}", toolsNamed("echo")); err != nil {
				t.Fatal(err)
			}
			return c
		}
		waits := func(c *Coordinator, want time.Duration) {
			t.Helper()
			began := time.Now()
			done := make(chan struct{})
			go func() { // who asks a little later waits no longer
				defer close(done)
				time.Sleep(want / 2)
				c.await(context.Background(), DefaultLimits.List, listed)
			}()
			c.await(context.Background(), DefaultLimits.List, listed)
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
		c.updateTools(&c.Children[1], "{}", toolsNamed("slow"))
		if l := c.readCache(&c.Children[1]); !l.known || l.Late {
			t.Errorf("%+v", l)
		}
	})
}
