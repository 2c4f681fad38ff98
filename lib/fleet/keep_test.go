package fleet

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/fleet/kept"
	"btools/lib/settings"
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

// A session outlives the program that keeps it in a directory, with its settings, until it is ended.
func TestSessionOutlivesProgram(t *testing.T) {
	t.Parallel()
	dir, keep := t.TempDir(), t.TempDir()
	program := func(t *testing.T) (*Fleet, *fakes) {
		f := &fakes{}
		f.look.Store(&virtual.Snapshot{Tabs: []virtual.Tab{{URL: "https://a.test"}}})
		return &Fleet{begin: f.begin, Log: slog.New(slog.DiscardHandler), Noun: "session", Keep: keep,
			Saves: true, MakeDir: func(context.Context) (string, error) { return dir, nil }}, f
	}
	left := func() (names []string) {
		all, _ := os.ReadDir(keep)
		for _, e := range all {
			names = append(names, e.Name())
		}
		return names
	}
	synctest.Test(t, func(t *testing.T) {
		g, _ := program(t)
		e, _, err := g.use(t.Context(), Key{Name: "a"}, &Wanted{Settings: settings.Settings{BlockPrivate: true}})
		if err != nil {
			t.Fatal(err)
		}
		_, done := use(t, g, Key{Name: "own", Kind: 1}) // one without a name does not
		sleep(lookOften + time.Millisecond)
		e.Leave()
		done()
		g.SaveAll()
		g.Close()
		if all := left(); len(all) != 1 {
			t.Fatalf("the program leaves %q, want the session", all)
		}

		g, f := program(t)
		os.WriteFile(kept.Path(keep, "a")+"~1", nil, 0o600) // of a program that was killed
		if _, err := g.New(t.Context(), "a", Wanted{}); err == nil {
			t.Error("the name of a session that is kept is free for a new one")
		}
		s, done := use(t, g, Key{Name: "a"})
		if s.from == nil || !s.settings.BlockPrivate {
			t.Errorf("the session comes back with %+v", s.settings)
		}
		if i := listed(t, g, "a"); i.RestoredAt == nil || i.KeptAt != nil {
			t.Errorf("it is listed as %+v", i)
		}
		done()
		f.look.Store(nil)
		if err := g.End(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		g.Close()
		if all := left(); len(all) != 0 {
			t.Errorf("after its end there is %q", all)
		}

		os.WriteFile(kept.Path(keep, "a"), []byte("{"), 0o600)
		g, _ = program(t)
		if err := g.End(t.Context(), "../a"); err == nil {
			t.Error("the name of a session is a path")
		}
		if s, done = use(t, g, Key{Name: "a"}); s.from != nil {
			t.Error("a damaged file is a session")
		}
		done()
		os.RemoveAll(keep)
		os.WriteFile(keep, nil, 0o600)
		sleep(lookOften + time.Millisecond)
		if i := listed(t, g, "a"); len(i.Unkept) != 1 {
			t.Errorf("in no directory all is kept but %q", i.Unkept)
		}
		os.Remove(keep)
		sleep(lookWhileIdle + time.Second)
		if i := listed(t, g, "a"); len(i.Unkept) != 0 || len(left()) != 1 {
			t.Errorf("once there is a directory, all is kept but %q, in %q", i.Unkept, left())
		}
		g.Close()
	})
}
