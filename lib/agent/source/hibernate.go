package source

import (
	"context"
	"time"

	"btools/lib/agent/source/uses"
	"btools/lib/control/api"
)

// Bproxy and bpool hibernate a browser that no client is connected to: they save
// it and free its pages. Children stay connected to theirs for days. So a browser
// that no call has used for a while rests: its children are stopped, and the
// next call starts them again, which brings the browser back.

// hibernated is what results tell of the hibernations of a browser, under the lock of its book.
type hibernated struct {
	pending bool          // it may have been hibernated since its last result
	unused  time.Duration // it had not been used for, then
	told    time.Time     // when it had come back before the last result that told so
}

// begin notes that the children of the browser were stopped, as it was not used for so long.
func (n *hibernated) begin(unused time.Duration) { n.pending, n.unused = true, unused }

// now returns how the browser of a lease is; nil: that is not known.
func (l *Lease) now(ctx context.Context) *api.Hibernation {
	if l.look == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, endBound)
	defer cancel()
	return l.look(ctx)
}

// lookAt returns a function that asks how a session is.
func (s *Source) lookAt(name string) func(context.Context) *api.Hibernation {
	return func(ctx context.Context) *api.Hibernation {
		if now := s.session(ctx, "", name); now != nil {
			return &now.Hibernation
		}
		return nil
	}
}

// Away hibernates the virtual browsers that no call uses.
func (b *ownerSessions) Away() (used bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range b.all {
		if b.table.Start(v, uses.Rest) {
			b.beginLocked(uses.Due[usable]{Key: v, Step: uses.Rest, Unused: b.table.Unused(v, time.Now())})
		} else if b.table.Ready(v) {
			used = true
		}
	}
	return used
}
