package source

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control/api"
	"btools/lib/settings"
)

// fakeOwner is an owner without children, but for what stop does in their place.
type fakeOwner struct {
	name string
	stop func()
}

func (o fakeOwner) Name() string                  { return o.name }
func (o fakeOwner) Busy(func(*Browser) bool) bool { return false }
func (o fakeOwner) StopChildren(func(*Browser) bool, bool) (stopped func()) {
	if o.stop != nil {
		o.stop()
	}
	return func() {}
}

// So many session_ids may be in use, of a host and of all. Hosts that share an owner are
// bounded together with all others.
func TestSessionIDsAreBounded(t *testing.T) {
	s := Proxied(nil, nil, nil, Sharing{Kind: SessionsOnly})
	s.maxIDsOfHost, s.maxIDs = 2, 5
	enter := func(b Browsers, n int) (refused bool) {
		_, err := b.(*ownerUse).join(t.Context(), sessionKey{id: fmt.Sprint("agent", n)}, "")
		return err != nil
	}
	one, shared := s.Of(t.Context(), fakeOwner{name: "one"}, false), s.Of(t.Context(), fakeOwner{name: "all"}, true)
	for n := range 3 {
		if refused := enter(one, n); refused != (n == 2) {
			t.Errorf("session_id %d of one host: %v", n, refused)
		}
	}
	for n := range 4 {
		if refused := enter(shared, n); refused != (n == 3) {
			t.Errorf("session_id %d of all hosts: %v", n, refused)
		}
	}
	if _, err := one.(*ownerUse).join(t.Context(), sessionKey{}, ""); err != nil {
		t.Errorf("the host's own browser counts: %v", err)
	}
	one.Leave()
	if enter(shared, 4) {
		t.Error("those of a host that has left still count")
	}
}

// A call that comes while the children of an unused browser are stopped does not get
// one of them.
func TestCallWhileChildrenAreStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopping := make(chan struct{})
		s := Proxied(nil, nil, nil, Sharing{Kind: SessionsOnly,
			Settings: settings.Settings{Hibernate: time.Minute}})
		b := s.Of(t.Context(), fakeOwner{name: "one", stop: func() { <-stopping }}, false).(*ownerUse)
		v, err := b.join(t.Context(), sessionKey{}, "")
		if err != nil {
			t.Fatal(err)
		}
		b.leave(v)
		time.Sleep(time.Minute)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.join(ctx, sessionKey{}, ""); err != context.DeadlineExceeded {
			t.Fatalf("a call meanwhile: %v", err)
		}
		time.AfterFunc(time.Second, func() { close(stopping) })
		if again, err := b.join(t.Context(), sessionKey{}, ""); again != v || err != nil {
			t.Errorf("a call then: %v, %v", again, err)
		}
		b.leave(v)
		b.Leave()
		s.book.close()
	})
}

// A call that comes while a session ends waits, and gets a new one; a call that waits for a place in it learns of its
// end. A session that is saved for the place of another one is not woken before it has given up its place.
func TestCallsAtTheEndOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &slowStart{start: make(chan struct{}), step: make(chan struct{})}
		s := &Source{}
		s.init(SessionsOnly, p, Sharing{Settings: settings.Settings{MaxSessions: 1, SessionIdle: time.Hour}})
		b := s.Of(t.Context(), fakeOwner{name: "one"}, false).(*ownerUse)
		join := func(id string) chan error {
			got := make(chan error, 1)
			go func() {
				_, err := b.join(t.Context(), sessionKey{id: id}, "")
				got <- err
			}()
			synctest.Wait()
			return got
		}
		ann, bob := sessionKey{id: "ann"}, sessionKey{id: "bob"}
		if err := <-join("ann"); err != nil {
			t.Fatal(err)
		}
		waits := join("bob")
		go b.expel(bob)
		synctest.Wait()
		again := join("bob")
		p.step <- struct{}{} // it has ended, and then
		p.step <- struct{}{} // what its children have made again
		if err := <-waits; err != ErrBrowserDied {
			t.Errorf("a call that waits for the place of a session that ends: %v", err)
		}
		synctest.Wait()
		b.leave(b.all[ann])
		time.Sleep(placeRest)
		synctest.Wait() // ann is being saved
		woken := join("ann")
		if len(woken) > 0 || len(again) > 0 || b.all[bob] == nil {
			t.Fatal("a session has the place of one that is being saved")
		}
		p.step <- struct{}{}
		if err := <-again; err != nil || len(woken) > 0 {
			t.Errorf("the session that has waited for a place: %v", err)
		}
		b.leave(b.all[bob])
		time.Sleep(placeRest)
		p.step <- struct{}{} // bob is saved
		if err := <-woken; err != nil {
			t.Errorf("the session that was used while it was saved: %v", err)
		}
		b.Leave()
		s.book.close()
	})
}

// A session that no call has used for its time is hibernated and has no place any more: another one need not wait for
// it.
func TestHibernatedSessionHasNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &slowStart{step: make(chan struct{}, 1)}
		s := &Source{}
		s.init(SessionsOnly, p, Sharing{Settings: settings.Settings{MaxSessions: 1, Hibernate: time.Minute}})
		b := s.Of(t.Context(), fakeOwner{name: "one"}, false).(*ownerUse)
		v, err := b.join(t.Context(), sessionKey{id: "ann"}, "")
		if err != nil {
			t.Fatal(err)
		}
		b.leave(v)
		p.step <- struct{}{} // it is saved
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := b.join(noWait, sessionKey{id: "bob"}, ""); err != nil {
			t.Errorf("a call on another one waits: %v", err)
		}
		b.Leave()
		s.book.close()
	})
}

// A session that a person has taken over does not end, and does so later if no call uses it then.
func TestSessionUnderAPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &slowStart{step: make(chan struct{}, 2)}
		p.step <- struct{}{} // its end waits for nothing
		p.step <- struct{}{}
		s := &Source{}
		s.init(SessionsOnly, p, Sharing{Settings: settings.Settings{SessionIdle: time.Hour}})
		b := s.Of(t.Context(), fakeOwner{name: "one"}, false).(*ownerUse)
		ann := sessionKey{id: "ann"}
		v, err := b.join(t.Context(), ann, "")
		if err != nil {
			t.Fatal(err)
		}
		ours := sessionStatus{}
		ours.Name, ours.Control = "one.ann", &api.Control{By: "anna"}
		p.has([]sessionStatus{{}, ours})
		b.leave(v)
		there := func() bool {
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.all[ann] == v
		}
		if time.Sleep(2*time.Hour + time.Minute); !there() {
			t.Error("the session ends under a person")
		}
		p.has(nil)
		if time.Sleep(time.Hour); there() {
			t.Error("the session stays without a person")
		}
		b.Leave()
		s.book.close()
	})
}

// slowStart is a browser whose sessions start when the test says so.
type slowStart struct {
	provider
	start, step chan struct{}
	began       int
	mu          sync.Mutex
	sessions    []sessionStatus
}

func (s *slowStart) list(context.Context) []sessionStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions
}

// has sets what list returns.
func (s *slowStart) has(all []sessionStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = all
}

func (s *slowStart) end(string, string)                     { <-s.step }
func (s *slowStart) hibernate(context.Context, string) bool { <-s.step; return true }

func (s *slowStart) up(string, string) *Lease { return &Lease{Browser: Browser{ID: "one"}} }
func (s *slowStart) newSession(context.Context, string, string) error {
	s.began++
	<-s.start
	return nil
}

// While a call starts a session with its state, others wait for it, as long as they want to; a call that must not
// wait does not.
func TestCallsWhileASessionStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &slowStart{start: make(chan struct{})}
		s := &Source{}
		s.init(SessionsOnly, p, Sharing{})
		b := s.Of(t.Context(), fakeOwner{name: "one"}, false).(*ownerUse)
		with := BrowserRef{Session: "agent", State: "login"}
		v, err := b.join(t.Context(), sessionKey{id: "agent"}, "login")
		if err != nil {
			t.Fatal(err)
		}
		first := make(chan error, 1)
		go func() { first <- b.begin(t.Context(), v, p.up("", "")) }()
		synctest.Wait()
		if b.TryTake(with) != nil {
			t.Error("a call gets the session before it has started")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.begin(ctx, v, p.up("", "")); err != context.DeadlineExceeded {
			t.Errorf("a call that waits for a second: %v", err)
		}
		close(p.start)
		if err := <-first; err != nil || p.began != 1 {
			t.Errorf("the session was started %d times: %v", p.began, err)
		}
		if b.TryTake(with) == nil {
			t.Error("a call does not get the session that has started")
		}
	})
}
