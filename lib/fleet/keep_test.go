package fleet

import (
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/virtual"
)

// A session whose Chrome has ended comes back as it was kept last, also for a client
// that returns at once.
func TestCrash(t *testing.T) {
	t.Parallel()
	hibernating(t, func(t *testing.T, g *Fleet, f *fakes) {
		g.Hibernate = 0
		f.look.Store(&virtual.Snapshot{Tabs: []virtual.Tab{{URL: "https://a.test"}}})
		s, done := use(t, g, Key{Name: "a"})
		crash := func(why error) {
			s.why = why
			close(s.done)
		}
		comesBack := func(want bool) {
			t.Helper()
			old := done
			s, done = use(t, g, Key{Name: "a"})
			old()
			if got := s.from != nil; got != want {
				t.Fatalf("it came back as it was: %v, want %v", got, want)
			}
		}
		if i := listed(t, g, "a"); i.KeptAt != nil {
			t.Errorf("a new session was kept at %v", i.KeptAt)
		}
		crash(virtual.ErrBrowserEnded)
		comesBack(false) // there has been no time to keep anything
		sleep(lookEvery + time.Millisecond)
		if i := listed(t, g, "a"); i.KeptAt == nil {
			t.Error("a session was not kept within 2 s")
		}
		crash(virtual.ErrBrowserEnded)
		comesBack(true)
		f.look.Store(nil)
		sleep(lookWhileIdle)
		crash(virtual.ErrBrowserEnded)
		comesBack(true) // though nothing has changed since
		crash(virtual.ErrBrowserEnded)
		synctest.Wait()
		if i := listed(t, g, "a"); !i.Hibernated {
			t.Errorf("a session whose Chrome has ended is listed as %+v, want it hibernated", i)
		}
		comesBack(true)
		crash(virtual.ErrClosed)
		comesBack(false) // a client has closed it
		done()

		f.look.Store(&virtual.Snapshot{})
		g.Default = "own" // the one with the browser's profile comes back as well
		s, done = use(t, g, Key{Name: "own"})
		sleep(lookEvery + time.Millisecond)
		crash(virtual.ErrBrowserEnded)
		old := done
		if s, done = use(t, g, Key{Name: "own"}); s.from == nil {
			t.Error("the session with the browser's profile has not come back")
		}
		old()
		done()
		foreign := &Fleet{Default: "own", Foreign: true, Saves: true}
		if foreign.keeps(Key{Name: "own"}) || !foreign.keeps(Key{Name: "a"}) {
			t.Error("the profile of another program's browser is kept, or nothing is")
		}
	})
}
