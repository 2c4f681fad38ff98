package command

import (
	"time"

	"btools/lib/agent/source"
	"btools/lib/cli"
	"btools/lib/settings"
)

// lastHibernated has virtual browsers that are hibernated last, and the browser
// last until they are, where nothing else is set.
func lastHibernated(how *source.Sharing, idleIsSet, browserIdleIsSet bool) {
	if !idleIsSet {
		how.SessionIdle = settings.HibernatedIdle
	}
	if !browserIdleIsSet {
		how.Idle = max(how.Idle, 2*how.Hibernate)
	}
}

// checkHibernate refuses times by which a virtual browser would end before it is
// hibernated.
func checkHibernate(c *cli.Context, how source.Sharing) error {
	after := how.Hibernate
	isShort := func(idle time.Duration) bool { return after > 0 && idle > 0 && idle <= after }
	switch {
	case isShort(how.SessionIdle):
		return c.UsageError("--hibernate must be shorter than --session-idle (%v), which ends hibernated virtual "+
			"browsers, too", how.SessionIdle)
	case isShort(how.Idle):
		return c.UsageError("--hibernate must be shorter than --idle (%v), which ends the virtual browsers that are "+
			"not hibernated", how.Idle)
	}
	return nil
}
