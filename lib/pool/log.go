package pool

import (
	"context"
	"errors"
	"time"

	"btools/lib/control"
)

// logEnd logs a lease that has ended: whose it was, how long it waited and was held, and why
// it has ended.
func (v *Service) logEnd(l *lease, why string) {
	args := []any{"pool", l.slot.poolName, "instance", l.slot.set.ID, "lease", l.id}
	args = append(args, caller(l.by, l.user, l.holder)...)
	v.logLease("a lease has ended", append(args, "waited_ms", l.waited.Milliseconds(),
		"held_ms", time.Since(l.started).Milliseconds(), "why", why)...)
}

// logRefusal logs a request that got no lease. One that a service refuses because it stops
// comes again, until it is another one's.
func (v *Service) logRefusal(r Request, err error) {
	if errors.Is(err, errStopping) {
		return
	}
	args := append([]any{"pool", r.Pool, "instance", r.Instance}, caller(r.By, r.user, printable(r.Holder))...)
	v.logLease("a request got no lease", append(args, "waited_ms", time.Since(r.began).Milliseconds(), "why", err)...)
}

// logLease logs a message soon, or never if too many are to be logged: a log that blocks
// holds up no lease.
func (v *Service) logLease(message string, args ...any) {
	select {
	case v.unlogged <- func() { v.Log.Log(context.Background(), v.LeaseLevel, message, args...) }:
	default:
	}
}

// maxUnlogged is the number of messages about leases that may wait.
const maxUnlogged = 1024

// runLog logs the messages about leases until the service ends.
func (v *Service) runLog() {
	for {
		select {
		case log := <-v.unlogged:
			log()
		case <-v.ctx.Done():
			v.flushLog()
			return
		}
	}
}

// flushLog logs the messages that wait.
func (v *Service) flushLog() {
	for {
		select {
		case log := <-v.unlogged:
			log()
		default:
			return
		}
	}
}

// caller returns what the log says of the program that requests a lease.
func caller(by *control.Peer, user, holder string) []any {
	args := []any{"by", by.String()}
	if user != "" {
		args = append(args, "user", user)
	}
	return append(args, "pid", by.PID, "holder", holder)
}
