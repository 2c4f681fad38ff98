package proxy

import (
	"syscall"
	"time"

	"btools/lib/fleet/supply"
	"btools/lib/record"
	"btools/lib/sibling"
)

// endDelay is how long a browser without an endpoint may take until it is seen
// to end.
const endDelay = 2 * time.Second

// reportUnreachable reports that a browser does not work as it should. If it
// does not end by itself, it is ended, provided that why is not nil. The result
// says whether the browser has ended or will end, so that the request can be
// tried with another one.
func (b *backend) reportUnreachable(g *supply.Chrome, why error) bool {
	if !b.owned {
		return false
	}
	select {
	case <-g.Done():
		return true // the next user waits until it is gone
	case <-time.After(endDelay):
	}
	if why != nil {
		g.End(why) // the next user launches another one
	}
	return why != nil
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
