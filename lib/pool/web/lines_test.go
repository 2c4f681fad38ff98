package web

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"btools/lib/control"
	"btools/lib/tokens"
)

// Requests of a token that has its leases wait in their order; one whose client leaves is not served.
func TestLines(t *testing.T) {
	t.Parallel()
	ci := &tokens.Token{Name: "ci", Max: 1}
	var l lines
	first, err := l.enter(t.Context(), ci, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.enter(t.Context(), ci, 0); control.ErrorOf(err).Code != control.LeaseTimeout {
		t.Errorf("one that does not wait: %v", err)
	}
	left, leave := context.WithCancel(t.Context())
	begin := func(ctx context.Context) (entered chan func(), failed chan error) {
		entered, failed = make(chan func(), 1), make(chan error, 1)
		before := l.waiting(ci)
		go func() {
			done, err := l.enter(ctx, ci, time.Minute)
			failed <- err
			entered <- done
		}()
		for l.waiting(ci) == before {
			time.Sleep(time.Millisecond)
		}
		return entered, failed
	}
	_, gone := begin(left)
	second, _ := begin(t.Context())
	third, _ := begin(t.Context())
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("one whose client has left: %v", err)
	}
	first()
	first() // ends once
	done := <-second
	select {
	case <-third:
		t.Error("two have leases")
	default:
	}
	done()
	last := <-third
	more, _ := l.enter(t.Context(), &tokens.Token{Name: "ci", Max: 1}, 0)
	if more != nil {
		t.Error("two have leases")
	}
	fourth, _ := begin(t.Context())
	more, err = l.enter(t.Context(), &tokens.Token{Name: "ci", Max: 3}, 0) // the file has changed
	if err != nil {
		t.Errorf("with a higher bound: %v", err)
	} else {
		more()
	}
	(<-fourth)()
	last()
	if len(l.of) > 0 {
		t.Errorf("lines are left: %v", l.of)
	}
	if done, err := l.enter(t.Context(), &tokens.Token{Name: "all"}, 0); err != nil {
		t.Errorf("without a bound: %v", err)
	} else {
		done()
	}
}

// The error of one request too many names the token.
func TestLineIsFull(t *testing.T) {
	t.Parallel()
	ci := &tokens.Token{Name: "ci", Max: 1}
	var l lines
	done, _ := l.enter(t.Context(), ci, 0)
	l.of["ci"].waiting = make([]chan struct{}, maxLine)
	if _, err := l.enter(t.Context(), ci, time.Minute); control.ErrorOf(err).Code != control.QueueFull ||
		!strings.Contains(err.Error(), "token ci") {
		t.Errorf("%v", err)
	}
	l.of["ci"].waiting = nil
	done()
}

// waiting returns how many requests of a token wait.
func (l *lines) waiting(t *tokens.Token) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of[t.Name].waiting)
}
