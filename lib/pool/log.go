package pool

import (
	"context"
	"log/slog"
	"time"
)

// logEnd logs a lease that has ended: whose it was, how long it waited and was held, and why
// it has ended.
func (v *Service) logEnd(l *lease, why string) {
	args := []any{"pool", l.slot.poolName, "instance", l.slot.set.ID, "lease", l.id}
	args = append(args, caller(l.uid, l.pid, l.user, l.holder)...)
	v.logLease("a lease has ended", append(args, "waited_ms", l.waited.Milliseconds(),
		"held_ms", time.Since(l.started).Milliseconds(), "why", why)...)
}

// logRefusal logs a request that got no lease.
func (v *Service) logRefusal(r Request, err error) {
	args := append([]any{"pool", r.Pool, "instance", r.Instance}, caller(r.UID, r.PID, r.user, printable(r.Holder))...)
	v.logLease("a request got no lease", append(args, "waited_ms", time.Since(r.began).Milliseconds(), "why", err)...)
}

func (v *Service) logLease(message string, args ...any) {
	v.Log.Log(context.Background(), v.LeaseLevel, message, args...)
}

// caller returns what the log says of the program that requests a lease.
func caller(uid, pid int, user, holder string) []any {
	args := []any{slog.Int("uid", uid)}
	if user != "" {
		args = append(args, "user", user)
	}
	return append(args, "pid", pid, "holder", holder)
}
