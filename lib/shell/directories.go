package shell

import (
	"context"
	"sync"
)

// directories has the calls of one session that are made in different directories wait for each other: the server asks
// for the directory in the course of a call, and cannot say of which.
type directories struct {
	mu      sync.Mutex
	dir     string // of the calls that run, or of the latest
	running int
	waiting []entrant // in the order in which they came
}

type entrant struct {
	dir  string
	goes chan struct{} // closed when it runs
}

// enter returns when a call in a directory may run, which ends with leave; or with the context's error.
func (d *directories) enter(ctx context.Context, dir string) error {
	d.mu.Lock()
	e := entrant{dir, make(chan struct{})}
	d.waiting = append(d.waiting, e)
	d.admitLocked()
	d.mu.Unlock()
	select {
	case <-e.goes:
		return nil
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, other := range d.waiting {
		if other.goes == e.goes {
			d.waiting = append(d.waiting[:i:i], d.waiting[i+1:]...)
			d.admitLocked()
			return context.Cause(ctx)
		}
	}
	return nil // it runs
}

// leave ends a call.
func (d *directories) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running--
	d.admitLocked()
}

// now returns the directory of the calls that run, or of the latest.
func (d *directories) now() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dir
}

// admitLocked lets those run that are next.
func (d *directories) admitLocked() {
	for len(d.waiting) > 0 && (d.running == 0 || d.waiting[0].dir == d.dir) {
		d.dir = d.waiting[0].dir
		d.running++
		close(d.waiting[0].goes)
		d.waiting = d.waiting[1:]
	}
}
