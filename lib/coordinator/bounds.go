package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
	"btools/lib/liveness"
)

// What bounds the children of pools: TIMEOUT each call of a tool, and
// HEALTH_TIMEOUT the answer to a ping, which each is sent at HEALTH_INTERVAL.

// errLate is the error of a tool that has not answered in time.
func errLate(child *Child, b source.Browser) error {
	return fmt.Errorf("child %s did not answer the call within %v (TIMEOUT of pool %s): it was cancelled", child.Name,
		b.CallTimeout, b.Pool)
}

// bound limits the time of a call.
func (req *request) bound() {
	if req.lease == nil || req.lease.CallTimeout <= 0 || req.Method != "tools/call" {
		return
	}
	req.late.Store(time.AfterFunc(req.lease.CallTimeout, func() { req.host.do(req.expire) }))
	over := false
	if req.host.read(func(t *table) { over = t.IsOver(&req.Request) }); over {
		req.late.Load().Stop()
	}
}

// expire ends a call whose time is over. If its child waits for the host, the call
// gets as long again.
func (req *request) expire() {
	p, _ := req.Child()
	late := req.faultOf(errLate(p.child, req.lease.Browser))
	req.host.apply(func(t *table) []effect {
		over, again := t.Late(&req.Request)
		if again {
			req.late.Load().Reset(req.lease.CallTimeout)
		}
		if !over {
			return nil
		}
		return t.End(&req.Request, late, "it took too long")
	})
}

// callTool calls a tool for bmcp, within the time limit of the lease.
func (p *process) callTool(ctx context.Context, params []byte, at *source.Lease) ([]byte, error) {
	if at != nil && at.CallTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, at.CallTimeout, errLate(p.child, at.Browser))
		defer cancel()
	}
	return p.call(ctx, "tools/call", params)
}

// watchHealth pings the child until it has ended. A child that does not answer is
// stopped: its calls fail, and the next call starts another one.
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
		err := liveness.Check(context.Background(), timeout, liveness.Load, p.ask)
		if err == nil {
			p.mu.Lock()
			p.ping = time.Now()
			p.mu.Unlock()
			continue
		}
		if p.gone() == nil {
			err = fmt.Errorf("child %s did not answer two pings, each within %v or more (HEALTH_TIMEOUT of pool %s): "+
				"it was stopped", p.child.Name, timeout, p.browser.Pool)
			s.c.Log.Warn(err.Error())
			p.abort(err)
		}
		return
	}
}

// ask has the child answer a ping.
func (p *process) ask(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, err := p.call(ctx, "ping", nil)
	switch {
	case errors.As(err, new(*jsonrpc.Error)): // which is an answer
		return nil
	case err != nil && p.gone() != nil:
		return liveness.ErrNotChecked
	}
	return err
}

// abort answers the open calls with an error and stops the child.
func (p *process) abort(err error) {
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
