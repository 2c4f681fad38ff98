package fleet

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
	"btools/lib/fleet/book"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// owner makes sessions of an entry that only begin and end, one at a time.
type owner struct {
	t      *testing.T
	entry  *Entry
	takes  time.Duration // to open, to save and to end a session
	fails  atomic.Bool
	opened atomic.Int64
	latest atomic.Pointer[played] // that was opened
	live   atomic.Int64

	mu     sync.Mutex
	events []string
}

type played struct {
	owner *owner
	from  *virtual.Saved
	used  atomic.Pointer[time.Time]
	once  sync.Once
	done  chan struct{}
	why   error
	tell  func(event, who string)
}

func (o *owner) open(ctx context.Context, from *virtual.Saved) (Session, Use, error) {
	if o.live.Load() > 0 || wait.Closed(o.entry.gone) {
		o.t.Error("a session is opened before the last one has ended, or after all")
	}
	select {
	case <-time.After(o.takes):
	case <-ctx.Done():
		return nil, Use{}, context.Cause(ctx)
	}
	if from != nil {
		if _, err := from.Load(); err != nil && ctx.Err() == nil {
			o.t.Error("what was saved is gone:", err)
		}
	}
	if o.fails.Load() {
		return nil, Use{}, errors.New("no Chrome")
	}
	s := &played{owner: o, from: from, done: make(chan struct{})}
	s.used.Store(new(time.Now()))
	o.opened.Add(1)
	o.live.Add(1)
	o.latest.Store(s)
	return s, Use{Ended: func(error) {}}, nil
}

func (o *owner) tell(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e.Event)
}

func (s *played) Used() time.Time                          { return *s.used.Load() }
func (s *played) Done() <-chan struct{}                    { return s.done }
func (s *played) Err() error                               { return s.why }
func (s *played) TellControl(tell func(event, who string)) { s.tell = tell }
func (s *played) Stats() api.Stats                         { return api.Stats{} }
func (s *played) Look(ctx context.Context) (*virtual.Snapshot, error) {
	return s.Snapshot(ctx, false)
}

func (s *played) Snapshot(context.Context, bool) (*virtual.Snapshot, error) {
	time.Sleep(s.owner.takes)
	if s.isOver() {
		return nil, s.why
	}
	return &virtual.Snapshot{}, nil
}

func (s *played) End(context.Context) error {
	s.stop(virtual.ErrEnded)
	time.Sleep(s.owner.takes)
	if s.owner.live.Add(-1) < 0 {
		s.owner.t.Error("a session has ended twice")
	}
	return nil
}

// stop ends the session for a reason, unless it has ended.
func (s *played) stop(why error) {
	s.once.Do(func() {
		s.why = why
		close(s.done)
	})
}

func (s *played) isOver() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// owned is a fleet, and the owners of its entries.
type owned struct {
	*Fleet
	mu   sync.Mutex
	all  map[*Entry]*owner
	make func() *owner
}

// of returns the owner of an entry.
func (b *owned) of(e *Entry) *owner {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.all[e]
	if o == nil {
		o = b.make()
		o.entry = e
		b.all[e] = o
	}
	return o
}

// inFleet runs a test with a fleet in a bubble of its own. Nothing may be left after it.
func inFleet(t *testing.T, do func(t *testing.T, b *owned)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &owned{all: map[*Entry]*owner{}, make: func() *owner { return &owner{t: t} }}
		b.Fleet = &Fleet{
			Policy: book.Policy{Grace: 10 * time.Second, Idle: time.Minute, Hibernate: 20 * time.Second, Max: 2},
			begin: func(ctx context.Context, e *Entry, from *virtual.Saved) (Session, Use, error) {
				return b.of(e).open(ctx, from)
			},
			MakeDir: func(context.Context) (string, error) { return dir, nil }, Saves: true,
			Log: slog.New(slog.DiscardHandler), Noun: "session"}
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
	for kind, rests := range map[book.Kind]time.Duration{book.Named: 20 * time.Second, book.Anonymous: 10 * time.Second,
		book.Single: 0} {
		inFleet(t, func(t *testing.T, b *owned) {
			o := &owner{t: t}
			b.make = func() *owner { return o }
			e, _, err := b.use(t.Context(), Key{Name: "one", Kind: kind}, &Wanted{Tell: o.tell})
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
		inFleet(t, func(t *testing.T, b *owned) {
			random := rand.New(rand.NewPCG(seed, 1))
			slow := rand.New(rand.NewPCG(seed, 2))
			b.make = func() *owner {
				return &owner{t: t, takes: time.Duration(slow.IntN(3000)) * time.Millisecond}
			}
			var lease *Entry
			var leased *owner
			hold := func(from *Kept, after <-chan struct{}) {
				lease = b.Hold("lease", Wanted{}, from, after)
				leased = b.of(lease)
			}
			hold(nil, nil)
			var users sync.WaitGroup
			for range 400 {
				key := Key{Name: "named"}
				if random.IntN(3) == 0 {
					key = Key{Name: "other", Kind: book.Kind(random.IntN(3))}
				}
				stays := time.Duration(random.IntN(30)) * time.Second / time.Duration(1+random.IntN(20))
				patience := time.Duration(1+random.IntN(9000)) * time.Millisecond
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				switch random.IntN(12) {
				case 0, 1, 2:
					users.Go(func() {
						e, s, err := b.use(ctx, key, nil)
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
							if s.(*needing).Session.(*played).owner != its {
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
					for _, e := range b.named("named", true) {
						if s := b.of(e).latest.Load(); s != nil {
							s.stop([]error{virtual.ErrBrowserEnded, virtual.ErrClosed}[random.IntN(2)])
						}
					}
					if s := leased.latest.Load(); s != nil && random.IntN(2) == 0 {
						s.stop(virtual.ErrClosed)
					}
				case 8:
					users.Go(func() { b.Free(ctx, "named") })
				case 9:
					held, last := lease, random.IntN(2) == 0
					users.Go(func() { held.Save(ctx, last) })
					if random.IntN(2) == 0 {
						lease.Replace()
					}
				case 10:
					kept, over := lease.Release(random.IntN(2) == 0)
					if kept != nil && random.IntN(2) == 0 {
						kept.Remove()
						kept = nil
					}
					hold(kept, over)
				case 11:
					b.of(lease).fails.Store(true)
					if random.IntN(4) == 0 {
						users.Go(func() { b.end(ctx, b.named("named", true)) })
					}
				}
				b.List()
				time.Sleep(time.Duration(random.IntN(10_000)) * time.Millisecond / time.Duration(1+random.IntN(10)))
			}
			users.Wait()
			b.Close()
			for e, o := range b.all {
				if o.live.Load() != 0 || o.opened.Load() > 0 && !wait.Closed(e.gone) {
					t.Error("a session is left, or its entry has not ended")
				}
			}
		})
	}
}
