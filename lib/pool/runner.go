package pool

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"btools/lib/fleet/supply"
	"btools/lib/settings"
)

// runner keeps a browser running until its context ends: for one instance, or for
// a group of instances that share it.
type runner struct {
	*supply.Keeper
	service  *Service
	poolName string
	set      settings.Settings
	held     *leaseIDs
	log      *slog.Logger    // adds these leases
	ctx      context.Context // ends with the instance or the group
	stop     context.CancelFunc

	// Protected by the service's lock:
	state   string
	waiting int // requests of clients that wait for a browser to share
}

func (v *Service) newRunner(poolName string, set settings.Settings) runner {
	r := runner{Keeper: supply.NewKeeper(&v.mu), service: v, poolName: poolName, set: set, held: &leaseIDs{}}
	r.log = slog.New(heldHandler{v.Log.Handler(), r.held}).With("pool", poolName)
	r.ctx, r.stop = context.WithCancel(v.ctx)
	r.state = r.startState()
	r.Log, r.Remote = r.log, set.WSLWindows
	r.Eager, r.Follows = set.Start == "eager", set.Isolation == settings.Context
	r.Retry.Off = set.Restart == "never"
	r.Wear = supply.Wear{Once: set.Isolated && set.Isolation == settings.Process, MaxUses: set.MaxUses,
		MaxAge: set.MaxAge, MaxMemory: set.MaxMemory}
	return r
}

// IsWantedLocked reports whether a request waits for the browser.
func (r *runner) IsWantedLocked() bool {
	p := r.service.pools.named(r.poolName)
	return r.waiting > 0 || p != nil && p.leases.Waiting() > 0
}

// failWaitersLocked fails the requests that can only be served by browsers that have failed.
func (r *runner) failWaitersLocked() {
	if p := r.service.pools.named(r.poolName); p != nil {
		p.failWaitersLocked()
	}
}

// restartedLocked counts a browser that replaces another one.
func (r *runner) restartedLocked(by supply.Cause, slots ...*slot) {
	r.service.metrics.restarts.WithLabelValues(r.poolName, string(by)).Inc()
	for _, s := range slots {
		s.restarts++
		r.service.events.ofInstance("restarted", s, "")
	}
}

// briefReason returns the reason in the form that a holder gets.
func briefReason(why string) string {
	return strings.TrimPrefix(FirstSentence(why), supply.EndedPrefix)
}

// idleText says that a browser was stopped because it was idle.
func idleText(set settings.Settings) string {
	without := "traffic"
	if set.IdleBy == settings.Connections {
		without = "a WebSocket"
	}
	return fmt.Sprintf("was stopped after %v without %s", set.Idle, without)
}
