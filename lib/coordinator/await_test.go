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
		start := func() *Catalog {
			c := NewCatalog(CatalogOptions{Children: []Child{{Name: "well", Argv: []string{"./none/well"}},
				{Name: "late", Argv: []string{"./none/late"}}}, Dir: dir, Limits: DefaultCatalogLimits})
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
		waits(c, DefaultCatalogLimits.List)
		waits(c, 0)
		c = start()
		waits(c, DefaultCatalogLimits.Late)
		waits(c, 0)
		// It answers after all: the next run has its list, and no word of that.
		c.Update(&c.Children[1], "{}", toolsNamed("slow"))
		if e := c.read(&c.Children[1]); e.state != stale || e.Late {
			t.Errorf("%+v", e)
		}
	})
}
