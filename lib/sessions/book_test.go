package sessions

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control/api"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// owner makes sessions that only begin and end, one at a time.
type owner struct {
	t      *testing.T
	takes  time.Duration // to open, to save and to end a session
	fails  atomic.Bool
	opened atomic.Int64
	latest atomic.Pointer[fake] // that was opened
	live   atomic.Int64
	closed atomic.Bool

	mu     sync.Mutex
	events []string
}

type fake struct {
	owner *owner
	from  *virtual.Saved
	used  atomic.Pointer[time.Time]
	once  sync.Once
	done  chan struct{}
	why   error
	tell  func(event, who string)
}

func (o *owner) Open(ctx context.Context, from *virtual.Saved) (Session, error) {
	if o.live.Load() > 0 || o.closed.Load() {
		o.t.Error("a session is opened before the last one has ended, or after all")
	}
	select {
	case <-time.After(o.takes):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if from != nil {
		if _, err := from.Load(); err != nil && ctx.Err() == nil {
			o.t.Error("what was saved is gone:", err)
		}
	}
	if o.fails.Load() {
		return nil, errors.New("no Chrome")
	}
	s := &fake{owner: o, from: from, done: make(chan struct{})}
	s.used.Store(new(time.Now()))
	o.opened.Add(1)
	o.live.Add(1)
	o.latest.Store(s)
	return s, nil
}

func (o *owner) Tell(event, why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, event)
}

func (o *owner) Close() {
	if o.closed.Swap(true) || o.live.Load() > 0 {
		o.t.Error("an owner is closed twice, or before its session has ended")
	}
}

func (s *fake) Used() time.Time                          { return *s.used.Load() }
func (s *fake) Done() <-chan struct{}                    { return s.done }
func (s *fake) Err() error                               { return s.why }
func (s *fake) TellControl(tell func(event, who string)) { s.tell = tell }
func (s *fake) Stats() api.Stats                         { return api.Stats{} }
func (s *fake) Look(ctx context.Context) (*virtual.Snapshot, error) {
	return s.Snapshot(ctx)
}

func (s *fake) Snapshot(context.Context) (*virtual.Snapshot, error) {
	time.Sleep(s.owner.takes)
	if s.isOver() {
		return nil, s.why
	}
	return &virtual.Snapshot{}, nil
}

func (s *fake) End(context.Context) error {
	s.stop(virtual.ErrEnded)
	time.Sleep(s.owner.takes)
	if s.owner.live.Add(-1) < 0 {
		s.owner.t.Error("a session has ended twice")
	}
	return nil
}

// stop ends the session for a reason, unless it has ended.
func (s *fake) stop(why error) {
	s.once.Do(func() {
		s.why = why
		close(s.done)
	})
}

func (s *fake) isOver() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// inBook runs a test with a book in a bubble of its own. Nothing may be left after it.
func inBook(t *testing.T, do func(t *testing.T, b *Book)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &Book{Policy: Policy{Grace: 10 * time.Second, Idle: time.Minute, Hibernate: 20 * time.Second, Max: 2},
			MakeDir: func(context.Context) (string, error) { return dir, nil },
			Log:     slog.New(slog.DiscardHandler), Noun: "session"}
		do(t, b)
		b.Close()
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%d files are left", len(left))
		}
	})
}

// A session that a person has taken over stays without a client, and no event follows its end.
func TestPersonKeepsASession(t *testing.T) {
	t.Parallel()
	for kind, rests := range map[Kind]time.Duration{Named: 20 * time.Second, Anonymous: 10 * time.Second, Single: 0} {
		inBook(t, func(t *testing.T, b *Book) {
			o := &owner{t: t}
			key := Key{Name: "one", Kind: kind}
			e, _, err := b.Use(t.Context(), key, true, func() (Owner, Traits) {
				return o, Traits{Keeps: kind == Named}
			})
			if err != nil {
				t.Fatal(err)
			}
			s := o.latest.Load()
			gone := func() bool {
				synctest.Wait()
				i, ok := e.Info()
				return !ok || i.Hibernated || wait.Closed(e.gone)
			}
			s.tell("taken", "anna")
			e.Leave()
			if time.Sleep(50 * time.Second); gone() {
				t.Errorf("kind %d has gone under a person: %v", kind, o.events)
			}
			s.used.Store(new(time.Now())) // as a session says then
			s.tell("given_back", "anna")
			if time.Sleep(rests - 1); rests > 0 && gone() {
				t.Errorf("kind %d has gone at once: %v", kind, o.events)
			}
			if time.Sleep(2 * time.Second); !gone() {
				t.Errorf("kind %d stays afterwards: %v", kind, o.events)
			}
			told := len(o.events)
			if s.tell("given_back", "anna"); !wait.Closed(s.done) || len(o.events) != told {
				t.Errorf("kind %d: after the end it is told %v", kind, o.events[told:])
			}
		})
	}
}

// Whatever happens at the same time, a session has one opening, its users have what is
// there or an error, and nothing is left at the end.
func TestAnythingAtOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		inBook(t, func(t *testing.T, b *Book) {
			random := rand.New(rand.NewPCG(seed, 1))
			var all []*owner
			var lease *Entry
			var leased *owner
			newOwner := func() *owner {
				o := &owner{t: t, takes: time.Duration(random.IntN(3000)) * time.Millisecond}
				all = append(all, o)
				return o
			}
			hold := func() {
				leased = newOwner()
				lease = b.Hold(Key{Name: "lease"}, leased, nil, nil)
			}
			hold()
			var users sync.WaitGroup
			for range 400 {
				key := Key{Name: "named"}
				if random.IntN(3) == 0 {
					key = Key{Name: "other", Kind: Kind(random.IntN(3))}
				}
				stays := time.Duration(random.IntN(30)) * time.Second / time.Duration(1+random.IntN(20))
				patience := time.Duration(1+random.IntN(9000)) * time.Millisecond
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				o := newOwner()
				switch random.IntN(12) {
				case 0, 1, 2:
					users.Go(func() {
						e, s, err := b.Use(ctx, key, false, func() (Owner, Traits) {
							return o, Traits{Keeps: key.Kind == Named}
						})
						if err == nil {
							if s == nil {
								t.Error("a user has no session")
							}
							time.Sleep(stays)
							e.Leave()
						}
					})
				case 3, 4, 5:
					held, its := lease, leased
					users.Go(func() {
						if s, err := held.Use(ctx); err == nil {
							if s.(*fake).owner != its {
								t.Error("a user has another one's session")
							}
							time.Sleep(stays)
							held.Leave()
						}
					})
				case 6: // a Chrome ends
					if s := leased.latest.Load(); s != nil {
						s.stop(virtual.ErrBrowserEnded)
						held, later := lease, time.Duration(random.IntN(2000))*time.Millisecond
						time.AfterFunc(later, func() { held.Lose("it is gone") })
					}
				case 7: // a client closes the browser, or a Chrome ends
					for _, e := range b.Named("named", true) {
						if s := e.Owner().(*owner).latest.Load(); s != nil {
							s.stop([]error{virtual.ErrBrowserEnded, virtual.ErrClosed}[random.IntN(2)])
						}
					}
					if s := leased.latest.Load(); s != nil && random.IntN(2) == 0 {
						s.stop(virtual.ErrClosed)
					}
				case 8:
					users.Go(func() { b.Free(ctx, "named") })
				case 9:
					held := lease
					users.Go(func() { held.Save(ctx) })
					if random.IntN(2) == 0 {
						lease.Replace()
					}
				case 10:
					saved, over := lease.Release(random.IntN(2) == 0)
					if leased = newOwner(); saved == nil || random.IntN(2) == 0 {
						saved.Remove()
						saved = nil
					}
					lease = b.Hold(Key{Name: "lease"}, leased, saved, over)
				case 11:
					o.fails.Store(true)
					if random.IntN(4) == 0 {
						users.Go(func() { b.End(ctx, b.Named("named", true)) })
					}
				}
				b.List()
				time.Sleep(time.Duration(random.IntN(10_000)) * time.Millisecond / time.Duration(1+random.IntN(10)))
			}
			users.Wait()
			b.Close()
			for _, o := range all {
				if o.live.Load() != 0 || o.opened.Load() > 0 && !o.closed.Load() {
					t.Error("a session is left, or its owner does not know of its end")
				}
			}
		})
	}
}
