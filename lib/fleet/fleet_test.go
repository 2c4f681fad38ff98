package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet/book"
	"btools/lib/settings"
	"btools/lib/virtual"
)

// fakes makes sessions that only begin and end.
type fakes struct {
	made    []*fake
	takes   time.Duration // to make one
	err     error
	saves   time.Duration // to save one
	saveErr error
	look    atomic.Pointer[virtual.Snapshot] // what has changed when a session is looked at; nil: nothing
	held    atomic.Int64                     // Chromes that are needed
}

type fake struct {
	key      Key
	settings Wanted
	from     *virtual.Saved
	used     atomic.Int64 // Unix nanoseconds
	done     chan struct{}
	over     atomic.Bool
	why      error // it has ended
	fakes    *fakes
}

func (f *fake) Used() time.Time                     { return time.Unix(0, f.used.Load()) }
func (f *fake) Done() <-chan struct{}               { return f.done }
func (f *fake) TellControl(func(event, who string)) {}
func (f *fake) Stats() api.Stats                    { return api.Stats{} }
func (f *fake) Err() error                          { return f.why }
func (f *fake) Look(context.Context) (*virtual.Snapshot, error) {
	return f.fakes.look.Load(), nil
}
func (f *fake) Snapshot(context.Context, bool) (*virtual.Snapshot, error) {
	time.Sleep(f.fakes.saves)
	return &virtual.Snapshot{}, f.fakes.saveErr
}
func (f *fake) End(context.Context) error {
	f.over.Store(true)
	return nil
}

func (f *fakes) begin(ctx context.Context, e *Entry, from *virtual.Saved) (Session, Use, error) {
	select {
	case <-time.After(f.takes):
	case <-ctx.Done():
		return nil, Use{}, ctx.Err()
	}
	if f.err != nil {
		return nil, Use{}, f.err
	}
	s := &fake{key: e.Key, settings: e.wanted, from: from, done: make(chan struct{}), fakes: f}
	s.used.Store(time.Now().UnixNano())
	f.made = append(f.made, s)
	f.held.Add(1)
	return s, Use{Ended: func(error) { f.held.Add(-1) }}, nil
}

// withFleet runs a test with a fleet of fake sessions, in a bubble of its own.
func withFleet(t *testing.T, do func(t *testing.T, g *Fleet, f *fakes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{takes: time.Second}
		g := &Fleet{begin: f.begin, Log: slog.New(slog.DiscardHandler), Noun: "session",
			Policy: book.Policy{Grace: 10 * time.Second, Idle: time.Minute, Max: 3}}
		do(t, g, f)
		g.Close()
		if f.held.Load() != 0 {
			t.Errorf("%d sessions still need Chrome after the end of all", f.held.Load())
		}
	})
}

// use uses a session that must exist.
func use(t *testing.T, g *Fleet, k Key) (*fake, func()) {
	t.Helper()
	e, s, err := g.use(t.Context(), k, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s.(*needing).Session.(*fake), e.Leave
}

// sleep lets time pass, and everything that happens then.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestOneCreationHoweverManyWait(t *testing.T) {
	t.Parallel()
	withFleet(t, func(t *testing.T, g *Fleet, f *fakes) {
		got := make(chan Session, 5)
		for range 5 {
			go func() {
				_, s, err := g.use(t.Context(), Key{Name: "a"}, nil)
				if err != nil {
					t.Error(err)
				}
				got <- s
			}()
		}
		first := <-got
		for range 4 {
			if <-got != first {
				t.Error("two that waited for one session got two")
			}
		}
		if len(f.made) != 1 {
			t.Errorf("%d were made", len(f.made))
		}
	})
}

func TestNewSessionsAreNew(t *testing.T) {
	t.Parallel()
	withFleet(t, func(t *testing.T, g *Fleet, f *fakes) {
		g.Defaults.TabLimit = 7
		e, _, err := g.use(t.Context(), Key{Name: "a"}, &Wanted{Settings: settings.Settings{TabLimit: 1}})
		if err != nil {
			t.Fatal(err)
		}
		e.Leave()
		_, done := use(t, g, Key{Name: "b"})
		done()
		if a, b := f.made[0].settings, f.made[1].settings; a.TabLimit != 1 || !reflect.DeepEqual(b, g.Defaults) {
			t.Errorf("the settings are %+v and %+v", a, b)
		}
		var exists *control.Error
		if _, _, err := g.use(t.Context(), Key{Name: "b"}, &Wanted{}); !errors.As(err, &exists) ||
			exists.Code != control.SessionExists {
			t.Errorf("a name that exists: %v", err)
		}
	})
}

func TestNamedSessionsEndWithoutTraffic(t *testing.T) {
	t.Parallel()
	withFleet(t, func(t *testing.T, g *Fleet, f *fakes) {
		s, done := use(t, g, Key{Name: "a"})
		sleep(50 * time.Second)
		s.used.Store(time.Now().UnixNano())
		sleep(50 * time.Second)
		if s.over.Load() {
			t.Fatal("it ended 50 s after it was used; --session-idle is 1m")
		}
		sleep(11 * time.Second)
		if !s.over.Load() {
			t.Error("it is still there 61 s after it was used, for a connection without traffic")
		}
		done()
		if again, done := use(t, g, Key{Name: "a"}); again == s {
			t.Error("its address leads to a session that has ended")
		} else {
			done()
		}
	})
}

// A session that is held ends with its holder, whenever it was used last.
func TestHeldSessionsEndWithTheirHolder(t *testing.T) {
	t.Parallel()
	withFleet(t, func(t *testing.T, g *Fleet, f *fakes) {
		release, err := g.Reserve("a")
		if err != nil || len(f.made) != 0 {
			t.Fatalf("%v; %d sessions are there before the first client", err, len(f.made))
		}
		if _, err := g.Reserve("a"); err == nil {
			t.Error("two hold one session")
		}
		s, done := use(t, g, Key{Name: "a"})
		done()
		sleep(time.Hour)
		if s.over.Load() {
			t.Error("it has ended without use, and its holder is there")
		}
		release()
		if !s.over.Load() {
			t.Error("it is there, and its holder is not")
		}
		s, done = use(t, g, Key{Name: "a"})
		done()
		sleep(2 * time.Minute)
		if !s.over.Load() {
			t.Error("another one with its name does not end without use")
		}
	})
}

func TestAnonymousSessionsEndAfterTheirConnections(t *testing.T) {
	withFleet(t, func(t *testing.T, g *Fleet, f *fakes) {
		k := Key{Name: "id", Kind: book.Anonymous}
		s, done := use(t, g, k)
		_, also := use(t, g, k)
		done()
		sleep(time.Hour)
		also()
		sleep(9 * time.Second)
		if again, done := use(t, g, k); again != s {
			t.Error("a client that came back within the grace time got another session")
		} else {
			done()
		}
		sleep(9 * time.Second)
		if s.over.Load() {
			t.Error("it ended before its grace time was over")
		}
		sleep(2 * time.Second)
		if !s.over.Load() {
			t.Error("it is still there after its grace time")
		}
		one, done := use(t, g, Key{Name: "x", Kind: book.Single})
		done()
		synctest.Wait()
		if !one.over.Load() {
			t.Error("a session of one connection is still there after that")
		}
	})
}

func TestNoMoreSessionsThanAllowed(t *testing.T) {
	t.Parallel()
	withFleet(t, func(t *testing.T, g *Fleet, f *fakes) {
		for i := range 3 {
			_, done := use(t, g, Key{Name: fmt.Sprint(i)})
			done()
		}
		_, _, err := g.use(t.Context(), Key{Name: "more"}, nil)
		var e *control.Error
		if !errors.As(err, &e) || e.Code != control.SessionLimit || !strings.Contains(err.Error(), "3 sessions") {
			t.Errorf("a fourth of 3: %v", err)
		}
		if err := g.End(t.Context(), "1"); err != nil {
			t.Fatal(err)
		}
		use(t, g, Key{Name: "more"})
		if err := g.End(t.Context(), "1"); err == nil || control.ErrorOf(err).Code != control.SessionNotFound {
			t.Errorf("ending one that has ended: %v", err)
		}
	})
}

func TestSessionThatEndsByItselfIsReplaced(t *testing.T) {
	withFleet(t, func(t *testing.T, g *Fleet, f *fakes) {
		s, done := use(t, g, Key{Name: "a"})
		s.why = virtual.ErrClosed
		close(s.done) // Chrome has died, or a client has closed it
		if again, done := use(t, g, Key{Name: "a"}); again == s {
			t.Error("its address leads to a session that has ended")
		} else {
			done()
		}
		done()
		synctest.Wait()
		if f.held.Load() != 1 {
			t.Errorf("%d sessions need Chrome, want 1", f.held.Load())
		}
	})
}

func TestCreationEndsWithThoseThatWait(t *testing.T) {
	withFleet(t, func(t *testing.T, g *Fleet, f *fakes) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, cancel)
		if _, _, err := g.use(ctx, Key{Name: "a"}, nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		sleep(time.Second)
		if len(f.made) != 0 {
			t.Error("a session was made for nobody")
		}
		f.err = errors.New("no Chrome")
		if _, _, err := g.use(t.Context(), Key{Name: "a"}, nil); !errors.Is(err, f.err) {
			t.Error(err)
		}
		f.err = nil
		use(t, g, Key{Name: "a"})
		waits := make(chan error, 1)
		go func() {
			_, _, err := g.use(t.Context(), Key{Name: "b"}, nil)
			waits <- err
		}()
		synctest.Wait()
		g.EndAll(t.Context())
		if err := <-waits; !errors.Is(err, ErrEnded) {
			t.Errorf("one that waited when all were ended: %v", err)
		}
		if !f.made[0].over.Load() || len(f.made) != 1 {
			t.Error("EndAll left a session")
		}
	})
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "A.b_c-9", strings.Repeat("x", 64), "..."} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", strings.Repeat("x", 65), "a b", "a/b", "ä", "a%2f", "a\x00"} {
		if err := CheckName(name); err == nil || !strings.Contains(err.Error(), "1 to 64 letters") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
