package supply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/exit"
	"btools/lib/settings"
)

// kept is a Keeper of a test and its owner, which notes what it is told.
type kept struct {
	sync.Mutex
	*Keeper
	r      *runs
	told   []string
	wanted bool
	ends   Cause // answer to EndedLocked
}

func (k *kept) note(format string, args ...any) {
	k.told = append(k.told, fmt.Sprintf(format, args...))
}

func (k *kept) StartingLocked() { k.note("starting") }
func (k *kept) BegunLocked(now bool) {
	if k.LaunchedLocked(now, 0) {
		k.note("restart: %s", k.Cause)
	}
	k.note("begun %v", now)
}
func (k *kept) EndedLocked(why error) Cause    { k.note("ended: %v", why); return k.ends }
func (k *kept) FailedLocked(what, next string) { k.note("%s%s; %s", what, k.Check.Err, next) }
func (k *kept) IsWantedLocked() bool           { return k.wanted }
func (k *kept) ReviewLocked(state string) (func(), bool) {
	if state == Ready && (k.ForceReplace || k.GroundsLocked() != None) {
		return func() { k.Runner.Stop(context.Background(), false) }, true
	}
	return nil, false
}

// waker is the owner of the Runner.
type waker struct {
	owner
	k *Keeper
}

func (w *waker) Changed() { w.k.Wake() }

// has fails the test if the owner was told something else, in this time.
func (k *kept) has(t *testing.T, within time.Duration, want ...string) {
	t.Helper()
	time.Sleep(within)
	synctest.Wait()
	k.Lock()
	defer k.Unlock()
	if !slices.Equal(k.told, want) {
		t.Errorf("it is told %q, not %q", k.told, want)
	}
	k.told = nil
}

// change changes the Keeper under its lock.
func (k *kept) change(do func()) {
	k.Lock()
	do()
	k.Unlock()
	k.Wake()
}

// withKeeper runs a test with a Keeper whose launches succeed unless a result is there.
func withKeeper(t *testing.T, set func(*kept), do func(t *testing.T, k *kept)) {
	t.Parallel()
	withRunner(t, func(t *testing.T, r *runs) {
		k := &kept{r: r}
		k.Keeper = NewKeeper(k)
		k.Keeper.Runner, k.Keeper.Owner, k.Started, k.Log = &r.Runner, k, func() {}, r.Spec.Log
		r.Runner.Owner = &waker{k: k.Keeper}
		set(k)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { k.Run(ctx) })
		do(t, k)
		cancel()
		running.Wait()
	})
}

func (k *kept) end(why error) { k.r.Status().Current.End(why) }

func TestABrowserIsLaunchedAgain(t *testing.T) {
	withKeeper(t, func(k *kept) { k.Eager = true }, func(t *testing.T, k *kept) {
		k.r.results <- nil
		k.has(t, 0, "starting", "begun true")
		k.r.results <- nil
		k.end(errors.New("gone"))
		k.has(t, 0, "is gone: the browser ended: gone; a new browser replaces it; its pages are lost", "starting",
			"restart: crash", "begun true")
		k.end(&HangError{errors.New("no answer")})
		k.has(t, 0, "is gone: no answer; another one is launched in 1s")
		k.r.results <- errors.New("no memory")
		k.has(t, time.Second, "starting", "could not be launched: no memory; another one is launched in 2s")
		k.has(t, time.Second)
		k.r.results <- nil
		k.change(func() { k.ForceReplace = true }) // which does not wait
		k.has(t, 0, "starting", "restart: asked", "begun true")
		k.r.results <- nil
		k.change(func() { k.Replace = Grounds{Old, "is old"} })
		k.has(t, 0, "starting", "restart: age", "begun true")
	})
}

func TestADefiniteFailureIsNotWaitedFor(t *testing.T) {
	withKeeper(t, func(k *kept) { k.Eager, k.wanted = true, true }, func(t *testing.T, k *kept) {
		k.r.results <- &exit.Error{Code: exit.Config, Err: errors.New("no such browser")}
		k.has(t, 0, "starting", "could not be launched: no such browser; another one is launched in 1s")
		k.Lock()
		defer k.Unlock()
		if at := k.EarliestLocked(); at != Never {
			t.Error("a request waits until", at)
		}
		if k.ForceReplace = true; !k.EarliestLocked().IsZero() {
			t.Error("a restart does not help")
		}
		k.ForceReplace = false
	})
}

func TestABrowserWaitsForItsUse(t *testing.T) {
	withKeeper(t, func(k *kept) {}, func(t *testing.T, k *kept) {
		k.has(t, 0, "begun false")
		k.r.results <- nil
		k.r.Begin()
		k.has(t, 0)
		k.Lock()
		if !k.IsCheckedLocked() {
			t.Error("its health is not checked")
		}
		k.Unlock()
		k.end(Unused)
		k.has(t, 0, "ended: nobody used it", "begun false") // the next one is no restart
		k.r.results <- nil
		k.r.Begin()
		k.has(t, 0)
		k.ends = Asked
		k.end(ToldToStop)
		k.has(t, 0, "ended: it was told to stop", "restart: asked", "begun false")
		k.r.results <- errors.New("no memory")
		k.r.Begin()
		k.has(t, 0, "could not be launched: no memory; another one is launched in 1s")
	})
}

func TestABrowserThatJoinsLeaves(t *testing.T) {
	var left []string
	withKeeper(t, func(k *kept) {
		k.Left = func(why string) { left = append(left, why) }
	}, func(t *testing.T, k *kept) {
		k.r.results <- nil
		k.r.Begin()
		k.has(t, 0, "begun false")
		k.r.results <- nil
		k.end(errors.New("the tab is closed"))
		k.has(t, 0, "restart: asked", "begun false")
		k.r.Begin()
		k.has(t, 0)
		k.end(&HangError{errors.New("no answer")})
		k.has(t, 0, "is gone: no answer; a new browser replaces it; its pages are lost", "starting")
		if !slices.Equal(left, []string{"the tab is closed", "no answer"}) {
			t.Error(left)
		}
	})
}

func TestAHeavyBrowserIsReplacedOnceItIsUsed(t *testing.T) {
	k := NewKeeper(&sync.Mutex{})
	b := found(t)
	k.Wear.MaxMemory = 1
	c := prepare(Spec{})
	c.Browser = b
	if k.Passed(c); !k.Check.Responsive || k.Replace != None {
		t.Error("an unused browser is replaced", k.Replace)
	}
	k.Uses = 1
	k.Remote = true
	if k.Passed(c) != None || k.Memory != 0 {
		t.Error("another system's process is measured")
	}
	if c.End(ToldToStop); k.Passed(c) != None {
		t.Error("a browser that is ending is replaced")
	}
}

// A browser's memory is measured when it has been launched, and then once a minute.
func TestMemoryIsMeasuredOnceAMinute(t *testing.T) {
	k := NewKeeper(&sync.Mutex{})
	isMeasured := func(c *Chrome) bool {
		k.Memory = -1
		k.Passed(c)
		return k.Memory >= 0
	}
	next := func() *Chrome {
		c := prepare(Spec{})
		c.Browser = found(t)
		c.Browser.Instance.PID = os.Getpid()
		return c
	}
	c := next()
	if first := isMeasured(c); !first {
		t.Error("a browser that has been launched is not measured")
	}
	if k.LaunchedLocked(true, 0); isMeasured(c) {
		t.Error("it is measured again by the next check")
	}
	k.measured = k.measured.Add(-memoryInterval)
	if !isMeasured(c) {
		t.Error("it is not measured again after a minute")
	}
	if !isMeasured(next()) {
		t.Error("the next browser is not measured")
	}
}

func TestSettingsOfABrowser(t *testing.T) {
	s := Configured(settings.Settings{HealthInterval: time.Second, HealthTimeout: time.Minute, Idle: time.Hour,
		IdleBy: settings.Connections})
	if s.Idle.Timeout != time.Hour || !s.Idle.ByConnections || s.Health.Interval != time.Second ||
		s.Health.Timeout != time.Minute {
		t.Errorf("%+v", s)
	}
}
