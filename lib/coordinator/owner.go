package coordinator

import (
	"errors"
	"sync"

	"btools/lib/agent/source"
)

// errUnused ends a child that nobody needs.
var errUnused = errors.New("its browser is not used")

// What a source of browsers knows of a session.

func (s *Session) Name() string { return s.name }

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
		ending.Go(func() { p.Stop(errUnused) }) // whose end the session waits for
	}
	return ending.Wait
}

// Away implements Host.
func (s *Session) Away() (busy bool) { return s.browsers.Away() }
