package wait

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoff(t *testing.T) {
	b := Backoff{First: time.Second, Max: 5 * time.Second, Steady: time.Minute}
	for n, c := range []struct{ ran, least, want time.Duration }{
		{0, 0, 0}, {0, 0, time.Second}, {time.Second, 0, 2 * time.Second}, {0, 0, 4 * time.Second},
		{0, 0, 5 * time.Second},
		{0, 0, 5 * time.Second},
		{2 * time.Minute, 0, 0},                     // it was well for a while
		{2 * time.Minute, time.Second, time.Second}, // its first failure is a wait at once
		{0, time.Second, 2 * time.Second},
	} {
		if got := b.Next(c.ran, c.least); got != c.want {
			t.Errorf("failure %d: wait %v, want %v", n, got, c.want)
		}
	}
	if got := new(Backoff).Next(0, 0); got != 0 {
		t.Errorf("the zero value waits %v", got)
	}
}

// thing is what a test's Starter starts.
type thing struct{ gone error }

func starter(start func(n int) (*thing, error)) *Starter[*thing] {
	n := 0
	return &Starter[*thing]{
		Start: func() (*thing, error) {
			n++
			time.Sleep(time.Second)
			return start(n)
		},
		Gone:    func(t *thing) error { return t.gone },
		Backoff: Backoff{First: time.Second, Max: time.Minute, Steady: time.Minute},
	}
}

var errCrash = errors.New("crashed")

// All who wait get the one that was started, and another one after its end.
func TestOneStartForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		s := starter(func(n int) (*thing, error) { starts = n; return &thing{}, nil })
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, err := s.Get(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if s.Running() != nil || s.Starting() != 0 {
			t.Errorf("during the start: %v runs, which has been started for %v", s.Running(), s.Starting())
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := s.Get(impatient); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one who waits for less: %v", err)
		}
		all.Wait()
		first := s.Running()
		if starts != 1 || first == nil {
			t.Fatalf("%d starts, %v runs", starts, first)
		}
		first.gone = errCrash
		s.Ended(first)
		if last, err := s.Last(); s.Running() != nil || last != first || err != errCrash {
			t.Errorf("after its end: %v runs, the last is %v, %v", s.Running(), last, err)
		}
		if second, err := s.Get(t.Context()); err != nil || second == first || starts != 2 {
			t.Errorf("after its end: %v, %v, %d starts", second, err, starts)
		}
		s.Forget(s.Running())
		if s.Get(t.Context()); starts != 3 {
			t.Errorf("one that is forgotten is not replaced: %d starts", starts)
		}
	})
}

// One that can't be started is tried again, ever more rarely.
func TestStartFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := starter(func(n int) (*thing, error) {
			if n == 2 {
				return &thing{gone: errCrash}, nil // before it was known
			}
			return nil, errCrash
		})
		for try := range 2 {
			if _, err := s.Get(t.Context()); err != errCrash {
				t.Errorf("try %d: %v", try, err)
			}
		}
		if _, err := s.Get(t.Context()); !errors.Is(err, errCrash) || !strings.Contains(err.Error(), "again in 1s") {
			t.Errorf("a third try at once: %v", err)
		}
		time.Sleep(time.Second)
		if _, err := s.Get(t.Context()); err != errCrash {
			t.Errorf("a third try in time: %v", err)
		}
	})
}

// Close waits for a start that is under way, and none comes after it.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, closed := &thing{}, errors.New("closed")
		s := starter(func(int) (*thing, error) { return one, nil })
		go s.Get(t.Context())
		synctest.Wait()
		if got := s.Close(closed); got != one {
			t.Errorf("to be stopped: %v", got)
		}
		one.gone = errCrash
		if _, err := s.Get(t.Context()); err != closed || !s.Refuses() {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timer Timer
		timer.Stop()
		fired := make(chan time.Duration, 1)
		begun := time.Now()
		start := func() { timer.Start(time.Second, func() { fired <- time.Since(begun) }) }
		start()
		time.Sleep(time.Second / 2)
		start()
		if after := <-fired; after != time.Second*3/2 {
			t.Errorf("a timer that was started anew has fired after %v", after)
		}
		start()
		timer.Stop()
		time.Sleep(time.Minute)
		if len(fired) > 0 {
			t.Error("a timer has fired that was stopped")
		}
	})
}

func TestFor(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	closed := make(chan struct{})
	close(closed)
	if err := For(ctx, closed); err != nil {
		t.Error(err)
	}
	why := errors.New("why")
	cancel(why)
	if err := For(ctx, nil); err != why {
		t.Errorf("%v, want why the context has ended", err)
	}
}
