package web

import (
	"context"
	"slices"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/spell"
	"btools/lib/tokens"
)

// maxLine is how many requests of a token wait for one of its leases to end.
const maxLine = 1000

// lines are those of the tokens that may have some leases at once: their requests wait here first, in their order. The
// zero value is empty.
type lines struct {
	mu sync.Mutex
	of map[string]*line // by the token's name
}

// line is the requests of a token.
type line struct {
	leases  int // that it has, or that wait in the pool's queue
	most    int // of them at once; 0: any number
	waiting []chan struct{}
}

// enter waits until a token may have another lease, for at most some time or until the context ends. The function ends
// the lease's place.
func (l *lines) enter(ctx context.Context, t *tokens.Token, most time.Duration) (leave func(), err error) {
	l.mu.Lock()
	x := l.lineLocked(t.Name)
	x.most = t.Max // the file may have changed
	x.next()
	leave = sync.OnceFunc(func() { l.leave(t.Name, x) })
	switch {
	case t.Max == 0 || x.leases < t.Max && len(x.waiting) == 0:
		x.leases++
		l.mu.Unlock()
		return leave, nil
	case len(x.waiting) >= maxLine:
		l.mu.Unlock()
		return nil, control.Errorf(control.QueueFull, "%d requests of the token %s wait already", maxLine, t.Name)
	case most <= 0:
		l.mu.Unlock()
		return nil, errMany(t)
	}
	turn := make(chan struct{})
	x.waiting = append(x.waiting, turn)
	l.mu.Unlock()
	over := time.NewTimer(most)
	defer over.Stop()
	select {
	case <-turn:
		return leave, nil
	case <-over.C:
		err = errMany(t)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := slices.Index(x.waiting, turn); k >= 0 {
		x.waiting = slices.Delete(x.waiting, k, k+1)
		return nil, err
	}
	return leave, nil // its turn came just now
}

// count counts a lease that a token has. The function ends the lease's place.
func (l *lines) count(token string) (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.lineLocked(token)
	x.leases++
	return sync.OnceFunc(func() { l.leave(token, x) })
}

// lineLocked returns the line of a token.
func (l *lines) lineLocked(token string) *line {
	if l.of == nil {
		l.of = map[string]*line{}
	}
	if l.of[token] == nil {
		l.of[token] = &line{}
	}
	return l.of[token]
}

func errMany(t *tokens.Token) error {
	return control.Errorf(control.LeaseTimeout, "the token %s has the %s that it may have at once", t.Name,
		spell.Count(t.Max, "lease"))
}

// leave ends the place of a lease, which the next request gets.
func (l *lines) leave(token string, x *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x.leases--
	x.next()
	if x.leases == 0 && len(x.waiting) == 0 && l.of[token] == x {
		delete(l.of, token)
	}
}

// next gives the places that are free to the requests that have waited longest.
func (x *line) next() {
	for len(x.waiting) > 0 && (x.most == 0 || x.leases < x.most) {
		x.leases++
		close(x.waiting[0])
		x.waiting = x.waiting[1:]
	}
}
