package command

import (
	"time"

	"btools/lib/agent/source"
	"btools/lib/cli"
)

// hibernatedIdle is --session-idle where virtual browsers are hibernated: one
// costs no more than a file.
const hibernatedIdle = 30 * 24 * time.Hour

// lastHibernated has virtual browsers that are hibernated last, and the browser
// last until they are, where nothing else is set.
func lastHibernated(how *source.Sessions, idleIsSet, browserIdleIsSet bool) {
	if !idleIsSet {
		how.Idle = hibernatedIdle
	}
	if !browserIdleIsSet {
		how.BrowserIdle = max(how.BrowserIdle, 2*how.Hibernate)
	}
}

// checkHibernate refuses times by which a virtual browser would end before it is
// hibernated.
func checkHibernate(c *cli.Context, how source.Sessions) error {
	after := how.Hibernate
	isShort := func(idle time.Duration) bool { return after > 0 && idle > 0 && idle <= after }
	switch {
	case isShort(how.Idle):
		return c.UsageError("--hibernate must be shorter than --session-idle (%v), which ends hibernated virtual "+
			"browsers, too", how.Idle)
	case isShort(how.BrowserIdle):
		return c.UsageError("--hibernate must be shorter than --idle (%v), which ends the virtual browsers that are "+
			"not hibernated", how.BrowserIdle)
	}
	return nil
}
