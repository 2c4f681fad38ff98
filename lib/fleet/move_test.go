package fleet

import (
	"context"
	"strings"
	"testing"
	"time"

	"btools/lib/downloads"
	"btools/lib/fleet/book"
	"btools/lib/virtual"
)

// A session is frozen when nobody has used it for a while; nobody can use it until it is thawed, and then it has what
// was saved. Another fleet takes that.
func TestFreeze(t *testing.T) {
	t.Parallel()
	hibernating(t, func(t *testing.T, g *Fleet, f *fakes) {
		g.Hibernate = 0 // not by itself
		e := g.Hold("a", Wanted{}, nil, nil)
		freeze := func(want string) {
			t.Helper()
			err := e.Freeze(t.Context(), 5*time.Second, false)
			if err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("it is frozen with %v, want %q", err, want)
			}
		}
		freeze("")
		if saved, err := e.Frozen(); saved != nil || err != nil {
			t.Errorf("of a session that was never used there is %q, %v", saved, err)
		}
		if _, err := e.Use(t.Context()); err != book.ErrFrozen {
			t.Errorf("a frozen session is used with %v", err)
		}
		e.Thaw()
		if _, err := e.Frozen(); err == nil {
			t.Error("what is saved can be read while the session can be used")
		}
		if _, err := e.Use(t.Context()); err != nil {
			t.Fatal(err)
		}
		sleep(time.Minute)
		freeze("in use")
		e.Leave()
		sleep(4 * time.Second)
		freeze("in use")
		sleep(time.Second)
		f.saveErr = virtual.ErrBusy
		freeze("cannot be saved now")
		f.saveErr, f.saves = nil, 10*time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := e.Freeze(ctx, 0, false); err != context.DeadlineExceeded {
			t.Errorf("it is frozen with %v", err)
		}
		cancel()
		freeze("in use") // it is being saved
		sleep(10 * time.Second)
		freeze("")
		saved, err := e.Frozen()
		if err != nil || len(saved) == 0 {
			t.Fatalf("%q is saved, %v", saved, err)
		}
		kept, err := Receive(t.TempDir(), saved)
		if err != nil {
			t.Fatal(err)
		}
		there := g.Hold("b", Wanted{}, kept, nil)
		for _, of := range []*Entry{there, e} {
			of.Thaw()
			s, err := of.Use(t.Context())
			if err != nil || s.(*needing).Session.(*fake).from == nil {
				t.Errorf("%s comes back with %v", of.Name, err)
			}
			of.Leave()
		}
		files, err := downloads.New(downloads.Options{Dir: t.TempDir() + "/files"})
		if err != nil {
			t.Fatal(err)
		}
		e.setFiles(files)
		files.Begin("6a2e9b8a-8ac8-4a5c-a6c5-1f8b9f3f6a01", "http://a/", "file")
		sleep(10 * time.Second)
		freeze("a download is running")
		files.FailAll("interrupted")
		freeze("")
		if _, err := Receive(t.TempDir(), []byte("{")); err == nil {
			t.Error("a session is taken that is none")
		}
	})
}
