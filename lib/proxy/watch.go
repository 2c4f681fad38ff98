package proxy

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"btools/lib/liveness"
	"btools/lib/record"
	"btools/lib/sibling"
)

// watch checks a browser's health periodically until the context ends. It ends
// a browser of our own that does not answer.
func (b *backend) watch(ctx context.Context, g *generation) {
	if b.health.Interval <= 0 {
		return
	}
	tick := time.NewTicker(b.health.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		err := liveness.Check(ctx, b.health.Timeout, liveness.Load,
			func(ctx context.Context, within time.Duration) error { return b.ping(ctx, g, within) })
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errNotAsked) {
			continue
		}
		if errors.Is(err, liveness.ErrNotChecked) {
			b.log.Warn(err.Error())
			continue
		}
		if err != nil && b.activeSince(g, began) {
			continue // it is busy with its sessions, which would all be lost
		}
		b.mu.Lock()
		was := g.checkErr
		g.checked, g.checkErr = record.Now(), ""
		if err != nil {
			g.checkErr = err.Error()
		}
		b.mu.Unlock()
		if err != nil && b.owned {
			b.log.Warn("the browser does not answer: stopping it", "why", err)
			b.end(g, fmt.Errorf("it did not answer: %w", err))
			return
		}
		if err != nil && was == "" {
			b.log.Warn("the browser does not answer; this proxy does not own it and leaves it running", "why", err)
		}
	}
}

// ping asks a browser for an answer: by a connection of its own, or by the only one
// that there is.
func (b *backend) ping(ctx context.Context, g *generation, within time.Duration) error {
	if b.one != nil {
		return b.one.check(ctx, within)
	}
	if g.mux != nil {
		return PingMux(ctx, g.mux, within)
	}
	return Ping(ctx, g.browser.Instance, within)
}

// endDelay is how long a browser without an endpoint may take until it is seen
// to end.
const endDelay = 2 * time.Second

// reportUnreachable reports that a browser does not work as it should. If it
// does not end by itself, it is ended, provided that why is not nil. The result
// says whether the browser has ended or will end, so that the request can be
// tried with another one.
func (b *backend) reportUnreachable(g *generation, why error) bool {
	if !b.owned {
		return false
	}
	select {
	case <-g.gone:
		return true
	case <-g.end:
		return true // the next user waits for that
	case <-time.After(endDelay):
	}
	if why != nil {
		b.end(g, why)
	}
	return why != nil
}

// end ends a browser of our own; the next user launches another one.
func (b *backend) end(g *generation, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owned {
		b.endLocked(g, why)
	}
}

// stopOrphan stops the browser of a launcher that exited before it, because no
// other program would. The record alone proves nothing: its process numbers may
// come from another machine. So the browser must be listed in the state file of
// this machine, have been launched since, and not be leased.
func (b *backend) stopOrphan(browser *sibling.Browser, since time.Time) {
	if b.state == nil || browser.Instance.ID == "" || browser.Record.Raw("lease") != nil {
		return
	}
	f, err := b.state.Read()
	if err != nil {
		return
	}
	entry := f.Instance(browser.Instance.ID)
	if entry == nil || entry.Record == nil || entry.Supervisor.PID != browser.Instance.SupervisorPID {
		return
	}
	var listed record.Instance
	if _, err := entry.Record.Get("instance", &listed); err != nil ||
		listed.StartedAt.Before(since.Truncate(time.Millisecond)) {
		return
	}
	if entry.Supervisor.Local() && entry.Supervisor.Signal(syscall.SIGTERM) == nil {
		b.log.Warn("the launcher exited before its browser, which is stopped now: a launcher must run as long as "+
			"its browser, as blaunch --wait does", "id", browser.Instance.ID)
	}
}
