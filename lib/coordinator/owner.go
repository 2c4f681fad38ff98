package coordinator

import (
	"errors"
	"sync"

	"btools/lib/agent/source"
)

// errUnused ends a child that nobody needs.
var errUnused = errors.New("its browser is not used")

// What a source of browsers knows of a host.

func (h *Host) Name() string { return h.name }

func (c *children) StopChildren(match func(*source.Browser) bool, forget bool) (stopped func()) {
	var ending sync.WaitGroup
	if forget {
		for _, sup := range c.remove(match) {
			ending.Go(sup.stop)
		}
		return ending.Wait
	}
	for _, sup := range c.list() {
		p := sup.running()
		if p == nil || !sup.child.drives || !match(&sup.browser) {
			continue
		}
		sup.proc.Forget(p)
		ending.Go(func() { p.Stop(errUnused) }) // whose end the host waits for
	}
	return ending.Wait
}

// Away implements Host.
func (h *Host) Away() (busy bool) { return h.browsers.Away() }
