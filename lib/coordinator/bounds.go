package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"btools/lib/jsonrpc"
)

// What bounds the children of pools: TIMEOUT each call of a tool, and
// HEALTH_TIMEOUT the answer to a ping, which each is sent at HEALTH_INTERVAL.

// errLate says that a tool has not answered in time.
func errLate(child *Child, b Browser) error {
	return fmt.Errorf("child %s did not answer the call within %v (TIMEOUT of pool %s): it was cancelled", child.Name,
		b.CallTimeout, b.Pool)
}

// bound has a call fail when its time is over.
func (s *Session) bound(f *flight) {
	if f.place == nil || f.place.CallTimeout <= 0 || f.Method != "tools/call" {
		return
	}
	f.late.Store(time.AfterFunc(f.place.CallTimeout, func() { s.do(func() { s.expire(f) }) }))
	over := false
	if s.read(func(t *table) { over = t.IsOver(&f.Request) }); over {
		f.late.Load().Stop()
	}
}

// expire ends a call whose time is over. One whose child waits for the host's
// answer has as long again.
func (s *Session) expire(f *flight) {
	p, _ := f.Child()
	late := faultOf(f, errLate(p.child, f.place.Browser))
	s.apply(func(t *table) []effect {
		over, again := t.Late(&f.Request)
		if again {
			f.late.Load().Reset(f.place.CallTimeout)
		}
		if !over {
			return nil
		}
		return t.End(&f.Request, late, "it took too long")
	})
}

// callTool calls a tool for us, as long as its place has it.
func (p *process) callTool(ctx context.Context, params []byte, at *place) ([]byte, error) {
	if at != nil && at.CallTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, at.CallTimeout, errLate(p.child, at.Browser))
		defer cancel()
	}
	return p.call(ctx, "tools/call", params)
}

// watchHealth pings the child until it has ended. One that does not answer is
// of no use: its calls fail, and the next one starts another child.
func (s *Session) watchHealth(p *process) {
	interval, timeout := p.browser.HealthInterval, p.browser.HealthTimeout
	if interval <= 0 {
		return
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-p.ended:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		_, err := p.call(ctx, "ping", nil)
		cancel()
		if err == nil || errors.As(err, new(*jsonrpc.Error)) { // which is an answer
			p.mu.Lock()
			p.ping = time.Now()
			p.mu.Unlock()
			continue
		}
		if p.gone() == nil {
			err = fmt.Errorf("child %s did not answer a ping within %v (HEALTH_TIMEOUT of pool %s): it was stopped",
				p.child.Name, timeout, p.browser.Pool)
			s.c.Log.Warn(err.Error())
			p.giveUp(err)
		}
		return
	}
}

// giveUp answers what the child has not, and stops it.
func (p *process) giveUp(err error) {
	p.fail(err)
	p.mu.Lock()
	calls := p.calls
	p.calls = nil
	p.mu.Unlock()
	for _, c := range calls {
		c.answer(nil, err)
	}
	p.stop()
}
