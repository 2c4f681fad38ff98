package front

import (
	"sync"
	"time"
)

// A host by HTTP that was killed says nothing. But its connections are closed, that
// too by which it listens for messages, if it does: if this is cut and the host is not
// back soon, its virtual browsers are hibernated, and come back with it. A request that
// is cut says less: hosts do that to calls that they no longer want.

// presence watches over the connections on which a host waits for messages.
type presence struct {
	grace time.Duration // 0: a host is never taken for gone
	// lost is called when the host is not back in time. It returns whether to call it
	// again after that time.
	lost func() (again bool)

	mu     sync.Mutex
	open   int         // connections
	cut    bool        // the host was cut off while it listened
	timer  *time.Timer // nil: the host is there
	round  int         // counts timers: one that is stopped may be over already
	closed bool
}

// seen notes that the host has sent something.
func (p *presence) seen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopLocked()
}

// begin notes that the host waits for messages on one more connection.
func (p *presence) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open++
	p.stopLocked()
}

// end notes that it does not any more. Cut says that it listened, and that the
// connection was closed before all was written.
func (p *presence) end(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = p.cut || cut
	if p.open--; p.open == 0 && p.cut && p.grace > 0 && !p.closed {
		p.armLocked()
	}
}

func (p *presence) stopLocked() {
	p.round++
	p.cut = false
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

func (p *presence) armLocked() {
	p.stopLocked()
	round := p.round
	p.timer = time.AfterFunc(p.grace, func() { p.over(round) })
}

// over is called when the time of a timer is over.
func (p *presence) over(round int) {
	if !p.isAway(round) || !p.lost() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.round == round && !p.closed {
		p.armLocked()
	}
}

// isAway reports whether the host has not come back since a timer was started.
func (p *presence) isAway(round int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.round == round
}

func (p *presence) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.stopLocked()
}
