package pool

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"btools/lib/control"
)

// leaseLog is the queue of messages about leases: a log that blocks holds up no lease.
type leaseLog chan leaseMessage

type leaseMessage struct {
	text string
	args []any
}

// maxUnlogged is the number of messages about leases that may wait.
const maxUnlogged = 1024

// add logs a message soon, or never if too many wait.
func (q leaseLog) add(text string, args ...any) {
	select {
	case q <- leaseMessage{text, args}:
	default:
	}
}

// ended logs a lease that has ended: its owner, how long it waited and was held, and why it has ended.
func (q leaseLog) ended(l *lease, why string) {
	args := []any{"pool", l.slot.poolName, "instance", l.slot.set.ID, "lease", l.id}
	args = append(args, caller(l.by, l.user, l.holder)...)
	q.add("a lease has ended", append(args, "waited_ms", l.waited.Milliseconds(),
		"held_ms", time.Since(l.started).Milliseconds(), "why", why)...)
}

// refused logs a request that got no lease. One that a service refuses because it stops
// comes again, until it is another one's.
func (q leaseLog) refused(r Request, err error) {
	if errors.Is(err, errStopping) {
		return
	}
	args := append([]any{"pool", r.Pool, "instance", r.Instance}, caller(r.By, r.user, printable(r.Holder))...)
	q.add("a request got no lease", append(args, "waited_ms", time.Since(r.began).Milliseconds(), "why", err)...)
}

// LogRefusal logs that a request, which began then, got no lease before it came to a pool.
func (v *Service) LogRefusal(r Request, began time.Time, err error) {
	r.began = began
	v.unlogged.refused(r, err)
}

// run passes the messages to a function until the context ends.
func (q leaseLog) run(ctx context.Context, log func(leaseMessage)) {
	for {
		select {
		case m := <-q:
			log(m)
		case <-ctx.Done():
			q.flush(log)
			return
		}
	}
}

// flush passes the messages that wait to a function.
func (q leaseLog) flush(log func(leaseMessage)) {
	for {
		select {
		case m := <-q:
			log(m)
		default:
			return
		}
	}
}

// caller returns the members of a message about the program that requests a lease.
func caller(by *control.Peer, user, holder string) []any {
	args := []any{"by", by.String()}
	if user != "" {
		args = append(args, "user", user)
	}
	return append(args, "pid", by.PID, "holder", holder)
}

// leaseIDs are the leases of a browser. They have a lock of their own, so that any other may be held while something
// is logged.
type leaseIDs struct {
	mu  sync.Mutex
	ids []string
}

func (h *leaseIDs) add(lease string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids = append(h.ids, lease)
}

func (h *leaseIDs) remove(lease string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids = slices.DeleteFunc(h.ids, func(id string) bool { return id == lease })
}

// all returns the IDs of the leases.
func (h *leaseIDs) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ids)
}

// member returns the leases as a member of a message, lease or leases, or nil if there are none.
func (h *leaseIDs) member() []slog.Attr {
	switch ids := h.all(); len(ids) {
	case 0:
		return nil
	case 1:
		return []slog.Attr{slog.String("lease", ids[0])}
	default:
		return []slog.Attr{slog.Any("leases", ids)}
	}
}

// heldHandler adds the leases of a browser to the messages about it.
type heldHandler struct {
	slog.Handler
	held *leaseIDs
}

func (h heldHandler) Handle(ctx context.Context, r slog.Record) error {
	named := false // the message is about one of them
	r.Attrs(func(a slog.Attr) bool {
		named = named || a.Key == "lease"
		return !named
	})
	if !named {
		r = r.Clone()
		r.AddAttrs(h.held.member()...)
	}
	return h.Handler.Handle(ctx, r)
}

func (h heldHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return heldHandler{h.Handler.WithAttrs(a), h.held}
}

func (h heldHandler) WithGroup(name string) slog.Handler {
	return heldHandler{h.Handler.WithGroup(name), h.held}
}
