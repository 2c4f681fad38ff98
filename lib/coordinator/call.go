package coordinator

import (
	"context"

	"btools/lib/agent/source"
	"btools/lib/coordinator/pending"
	"btools/lib/jsonrpc"
	"btools/lib/mcp/catalog"
	"btools/lib/tools"
)

// toolCall is the call of a child's tool, on its way to the child.
type toolCall struct {
	*request
	route catalog.Route // its child is nil until the tool is known
	ref   source.BrowserRef
	sup   *supervisor // of the child for its browser; nil: it has no browser yet
}

// to notes where the tool is, and which browser the call names. A call that our own tool would refuse takes no browser
// from others.
func (c *toolCall) to(r catalog.Route) (err error) {
	c.route = r
	if c.ref, err = source.RefIn(c.env.Args, r.Stripped); err != nil || !r.Child.Builtin {
		return err
	}
	args := jsonrpc.Get(r.Rename(c.m).Params, "arguments")
	return tools.CheckArguments(r.Name, args, c.host.server.Source.Arguments)
}

// run relays the call: at once if nothing has to be waited for. Otherwise it gets a turn, and waits in that.
func (c *toolCall) run(ctx context.Context) {
	turns := &c.host.turns
	var known bool
	if c.route, known = c.host.tools(c.env.Audience).Route(c.env.Name); known {
		if err := c.to(c.route); err != nil {
			c.fault(err)
			return
		}
		group := groupOf(c.route.Child, c.ref)
		if at, ok := c.tryTake(group); ok {
			if !c.hold(at) {
				return
			}
			if p := c.sup.ready(c.mayAsk()); p != nil && turns.IsFirst(group, c.sup) {
				c.forward(p, c.route.Rename(c.m))
				return
			}
		}
	}
	turns.Add(c.turn, c.sup)
	c.host.do(func() { c.inTurn(ctx) })
}

// tryTake leases a browser, nil if the child needs none. It reports false if the call has to wait for one, or for
// others that do.
func (c *toolCall) tryTake(group string) (at *source.Lease, ok bool) {
	switch {
	case !c.route.Child.Drives():
		return nil, true
	case !c.host.turns.IsFirst(group, nil):
		return nil, false
	}
	at = c.host.browsers.TryTake(c.ref)
	return at, at != nil
}

// inTurn goes on with a call that waits: for its tool if that is not known, for its browser if it has none yet, for
// its child, and for the calls before it.
func (c *toolCall) inTurn(ctx context.Context) {
	if c.route.Child == nil {
		r, ok := c.find(ctx, c.env.Name)
		if !ok {
			c.fail(c.unknown(c.env.Name))
			return
		}
		if err := c.to(r); err != nil {
			c.fault(err)
			return
		}
	}
	if c.sup == nil {
		at, err := c.take(ctx)
		if err != nil {
			c.fault(err)
			return
		}
		if !c.hold(at) {
			return
		}
	}
	p, err := c.start(ctx, c.sup)
	if err != nil {
		c.fault(err)
		return
	}
	if c.host.turns.Wait(ctx, c.turn) {
		c.forward(p, c.route.Rename(c.m))
	}
}

// hold attaches a lease to the call until the call ends; nil if the tool needs no browser. It reports false if the call
// has ended.
func (c *toolCall) hold(at *source.Lease) bool {
	b, h := source.Browser{}, c.host
	if at != nil {
		b, c.lease = at.Browser, at
		var watch, over bool
		h.read(func(t *table) {
			watch, over = t.Hold(&c.Request, pending.Lease{Release: at.Release, Died: at.Died})
		})
		switch {
		case over:
			at.Release()
			return false
		case watch:
			h.do(func() { h.watch(at.Died) })
		}
	}
	if c.sup = h.supervisor(c.route.Child, b, c.env.Audience); c.sup == nil {
		c.fault(source.ErrEnded)
		return false
	}
	h.usePages(c.sup)
	return true
}

// take leases a browser, in the call's turn; it returns nil if the child needs none. The calls of a group get browsers
// in the order of their arrival: the first lease goes to the first call, whichever call requested it.
func (c *toolCall) take(ctx context.Context) (*source.Lease, error) {
	h := c.host
	if !c.route.Child.Drives() {
		return nil, nil
	}
	if c.ref == (source.BrowserRef{}) {
		h.warm(c.route.Child, c.env.Audience)
	}
	if c.turn == nil { // a task has none
		at, err := h.browsers.Take(ctx, c.ref)
		return at, source.Explain(err)
	}
	defer c.tellWaiting(ctx, c.ref)()
	asks, cancel := context.WithCancel(h.ctx)
	a := h.turns.Ask(c.turn, cancel)
	h.do(func() {
		defer cancel()
		for h.turns.Wanted(a) {
			at, err := h.browsers.Take(asks, c.ref)
			if !h.turns.Hand(a, at, err) && at != nil {
				at.Release()
			}
		}
	})
	at, err := h.turns.Got(ctx, c.turn)
	return at, source.Explain(err)
}
