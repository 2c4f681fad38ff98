package coordinator

import (
	"context"
	"fmt"
	"time"

	"btools/lib/agent/source"
	"btools/lib/liveness"
	"btools/lib/mcp/child"
)

// What bounds the children of pools: TIMEOUT each call of a tool, and
// HEALTH_TIMEOUT the answer to a ping, which each is sent at HEALTH_INTERVAL.

// errLate is the error of a tool that has not answered in time.
func errLate(child *child.Spec, b source.Browser) error {
	return fmt.Errorf("child %s did not answer the call within %v (TIMEOUT of pool %s): it was cancelled", child.Name,
		b.CallTimeout, b.Pool)
}

// bound limits the time of a call.
func (req *request) bound() {
	if req.lease == nil || req.lease.CallTimeout <= 0 || req.Method != "tools/call" {
		return
	}
	req.callTimer.Store(time.AfterFunc(req.lease.CallTimeout, func() { req.host.do(req.expire) }))
	over := false
	if req.host.read(func(t *table) { over = t.IsOver(&req.Request) }); over {
		req.callTimer.Load().Stop()
	}
}

// expire ends a call whose time is over. If its child waits for the host, the call
// gets as long again.
func (req *request) expire() {
	p, _ := req.Child()
	late := req.faultOf(errLate(p.sup.child, req.lease.Browser))
	req.host.apply(func(t *table) []effect {
		over, again := t.Late(&req.Request)
		if again {
			req.callTimer.Load().Reset(req.lease.CallTimeout)
		}
		if !over {
			return nil
		}
		return t.End(&req.Request, late, "it took too long")
	})
}

// callTool calls a tool for bmcp, within the time limit of the lease.
func (p *running) callTool(ctx context.Context, params []byte, at *source.Lease) ([]byte, error) {
	if at != nil && at.CallTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, at.CallTimeout, errLate(p.sup.child, at.Browser))
		defer cancel()
	}
	return p.Call(ctx, "tools/call", params)
}

// watchHealth pings the child until it has ended. A child that does not answer is
// stopped: its calls fail, and the next call starts another one.
func (p *running) watchHealth() {
	interval, timeout := p.sup.browser.HealthInterval, p.sup.browser.HealthTimeout
	if interval <= 0 {
		return
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-p.Done():
			return
		case <-tick.C:
		}
		err := liveness.Check(context.Background(), timeout, liveness.Load, p.ping)
		if err == nil {
			now := time.Now()
			p.pinged.Store(&now)
			continue
		}
		if p.Gone() == nil {
			err = fmt.Errorf("child %s did not answer two pings, each within %v or more (HEALTH_TIMEOUT of pool %s): "+
				"it was stopped", p.sup.child.Name, timeout, p.sup.browser.Pool)
			p.sup.host.server.Log.Warn(err.Error())
			p.Abort(err)
		}
		return
	}
}
