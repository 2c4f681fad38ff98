package fleet

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet/book"
)

// hibernating is a registry whose sessions are hibernated after 20 s, in a
// bubble of its own.
func hibernating(t *testing.T, do func(t *testing.T, g *Fleet, f *fakes)) {
	t.Helper()
	dir := t.TempDir()
	withFleet(t, func(t *testing.T, g *Fleet, f *fakes) {
		g.Saves = true
		g.Hibernate, g.MakeDir = 20*time.Second, func(context.Context) (string, error) { return dir, nil }
		do(t, g, f)
		g.Close()
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%d files are left after the end of all sessions", len(left))
		}
	})
}

// listed returns what the list says of a session.
func listed(t *testing.T, g *Fleet, name string) api.Session {
	t.Helper()
	for _, i := range g.List() {
		if i.Name == name {
			return i
		}
	}
	t.Fatalf("the session %s is not listed", name)
	return api.Session{}
}

func TestHibernatedSessionComesBack(t *testing.T) {
	t.Parallel()
	hibernating(t, func(t *testing.T, g *Fleet, f *fakes) {
		s, done := use(t, g, Key{Name: "a"})
		sleep(30 * time.Second)
		if s.over.Load() {
			t.Fatal("a session with a connection was hibernated")
		}
		s.used.Store(time.Now().UnixNano())
		done()
		sleep(19 * time.Second)
		if s.over.Load() {
			t.Fatal("it was hibernated 19 s after its last connection, want 20 s")
		}
		sleep(2 * time.Second)
		if !s.over.Load() || f.held.Load() != 0 {
			t.Fatalf("21 s after its last connection it still has pages, or needs Chrome (%d)", f.held.Load())
		}
		if i := listed(t, g, "a"); !i.Hibernated || i.RestoredAt != nil {
			t.Errorf("it is listed as %+v, want it hibernated", i)
		}
		again, done := use(t, g, Key{Name: "a"})
		defer done()
		if again == s || again.from == nil {
			t.Error("the next connection did not get a session with what was saved")
		}
		if i := listed(t, g, "a"); i.Hibernated || i.RestoredAt == nil {
			t.Errorf("it is listed as %+v, want it restored", i)
		}
	})
}

func TestHibernatedSessionsAreNotCounted(t *testing.T) {
	t.Parallel()
	hibernating(t, func(t *testing.T, g *Fleet, f *fakes) {
		for _, name := range []string{"a", "b", "c"} {
			_, done := use(t, g, Key{Name: name})
			done()
		}
		sleep(21 * time.Second)
		for _, name := range []string{"d", "e", "f"} {
			use(t, g, Key{Name: name})
		}
		_, _, err := g.use(t.Context(), Key{Name: "a"}, nil)
		if err == nil || control.ErrorOf(err).Code != control.SessionLimit {
			t.Errorf("a hibernated session beside the 3 that are allowed: %v", err)
		}
		if i := listed(t, g, "a"); !i.Hibernated {
			t.Error("it is no longer hibernated after that")
		}
		if _, _, err := g.use(t.Context(), Key{Name: "b"}, &Wanted{}); err == nil {
			t.Error("its name was free for a new session")
		}
	})
}

func TestHibernatedSessionsEnd(t *testing.T) {
	t.Parallel()
	hibernating(t, func(t *testing.T, g *Fleet, f *fakes) {
		for _, name := range []string{"a", "b"} {
			_, done := use(t, g, Key{Name: name})
			done()
		}
		sleep(30 * time.Second)
		if err := g.End(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if all := g.List(); len(all) != 1 || all[0].Name != "b" {
			t.Errorf("the sessions are %+v, want b", all)
		}
		sleep(31 * time.Second)
		if all := g.List(); len(all) != 0 {
			t.Errorf("the sessions are %+v a minute after their last use, which is --session-idle", all)
		}
	})
}

func TestConnectionDuringHibernation(t *testing.T) {
	t.Parallel()
	hibernating(t, func(t *testing.T, g *Fleet, f *fakes) {
		f.saves = 5 * time.Second
		s, done := use(t, g, Key{Name: "a"})
		done()
		sleep(22 * time.Second)
		again, done := use(t, g, Key{Name: "a"})
		sleep(5 * time.Second)
		if again != s || s.over.Load() {
			t.Error("a session was hibernated under a client that had come back")
		}
		done()
		sleep(30 * time.Second)
		if !s.over.Load() {
			t.Error("it was not hibernated later")
		}
	})
}

// A client that comes and leaves while its session is saved may have changed it.
func TestVisitDuringHibernation(t *testing.T) {
	t.Parallel()
	hibernating(t, func(t *testing.T, g *Fleet, f *fakes) {
		f.saves = 5 * time.Second
		s, done := use(t, g, Key{Name: "a"})
		done()
		sleep(22 * time.Second)
		_, done = use(t, g, Key{Name: "a"})
		s.used.Store(time.Now().UnixNano())
		done()
		sleep(10 * time.Second)
		if s.over.Load() {
			t.Error("a session was hibernated as it was before its last client")
		}
		sleep(30 * time.Second)
		if !s.over.Load() {
			t.Error("it was not hibernated later")
		}
	})
}

// An open connection is not use, but its end leaves time for another one.
func TestConnectionWithoutUse(t *testing.T) {
	t.Parallel()
	hibernating(t, func(t *testing.T, g *Fleet, f *fakes) {
		s, done := use(t, g, Key{Name: "a"})
		sleep(30 * time.Second)
		done()
		sleep(book.Settle - time.Second)
		if s.over.Load() {
			t.Errorf("a session was hibernated %v after its last connection, want %v", book.Settle-time.Second,
				book.Settle)
		}
		sleep(2 * time.Second)
		if !s.over.Load() {
			t.Error("a session that was not used for 36 s was not hibernated")
		}
	})
}

func TestSessionThatCannotBeSavedStays(t *testing.T) {
	hibernating(t, func(t *testing.T, g *Fleet, f *fakes) {
		f.saveErr = errors.New("no space left")
		s, done := use(t, g, Key{Name: "a"})
		done()
		sleep(21 * time.Second)
		if s.over.Load() {
			t.Fatal("a session that was not saved has ended")
		}
		f.saveErr = nil
		s.used.Store(time.Now().UnixNano())
		sleep(21 * time.Second)
		if !s.over.Load() {
			t.Error("it was not hibernated when it could be saved")
		}
		f.err = errors.New("no Chrome")
		if _, _, err := g.use(t.Context(), Key{Name: "a"}, nil); !errors.Is(err, f.err) {
			t.Errorf("waking it without a Chrome: %v", err)
		}
		f.err = nil
		synctest.Wait()
		again, done := use(t, g, Key{Name: "a"})
		defer done()
		if again.from == nil {
			t.Error("what was saved is lost after a failure")
		}
	})
}

// A session can be hibernated before its time, but not under a client.
func TestFree(t *testing.T) {
	hibernating(t, func(t *testing.T, g *Fleet, f *fakes) {
		f.saves = 2 * time.Second
		s, done := use(t, g, Key{Name: "a"})
		err := g.Free(t.Context(), "a")
		if err == nil || control.ErrorOf(err).Code != control.TryAgain || s.over.Load() {
			t.Errorf("a session with a client: %v, ended %v, want %s", err, s.over.Load(), control.TryAgain)
		}
		done()
		for _, again := range []string{"", " that is hibernated"} {
			if err := g.Free(t.Context(), "a"); err != nil || !listed(t, g, "a").Hibernated {
				t.Errorf("a session%s: %v, %+v", again, err, listed(t, g, "a"))
			}
		}
		synctest.Wait()
		if !s.over.Load() || f.held.Load() != 0 {
			t.Error("it still needs Chrome")
		}
		again, done := use(t, g, Key{Name: "a"})
		if again.from == nil {
			t.Error("what was saved is lost")
		}
		done()
		came := make(chan func(), 1)
		time.AfterFunc(time.Second, func() {
			_, done := use(t, g, Key{Name: "a"})
			came <- done
		})
		if err := g.Free(t.Context(), "a"); err == nil || control.ErrorOf(err).Code != control.TryAgain {
			t.Errorf("a session to which a client has come meanwhile: %v, want %s", err, control.TryAgain)
		}
		(<-came)()
		if err := g.Free(t.Context(), "b"); err == nil || control.ErrorOf(err).Code != control.SessionNotFound {
			t.Errorf("a session that is not there: %v, want %s", err, control.SessionNotFound)
		}
	})
}
