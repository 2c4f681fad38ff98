package coordinator

import (
	"context"
	"fmt"
	"time"

	"btools/lib/agent/source"
	"btools/lib/coordinator/pending"
	"btools/lib/coordinator/turns"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/catalog"
	"btools/lib/mcp/child"
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
	if c.route.Child == nil && !c.findTool(ctx) {
		return
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

// findTool finds the tool of a call. It reports false if it has answered the call with an error.
func (c *toolCall) findTool(ctx context.Context) bool {
	r, ok := c.find(ctx, c.env.Name)
	if !ok {
		c.fail(c.unknown(c.env.Name))
		return false
	}
	err := c.to(r)
	if err != nil {
		c.fault(err)
	}
	return err == nil
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

// turn is the position of a request among those that may be for the same child.
type turn = turns.Turn[*supervisor, *source.Lease]

// newTurn returns the turn of a request, nil if no child answers it.
func (req *request) newTurn() *turn {
	h := req.host
	group := ""
	switch req.Method {
	case "tools/call":
		if h.server.isOwn(req.env.Name) {
			return nil
		}
		return &turn{Group: func() string {
			r, ok := h.tools(req.env.Audience).Route(req.env.Name)
			if !ok {
				return ""
			}
			w, _ := source.RefIn(req.env.Args, r.Stripped) // an error is reported later
			return groupOf(r.Child, w)
		}}
	case "prompts/get", "completion/complete":
		group = "prompts"
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		group = "resource\x00" + req.env.URI
	default:
		return nil
	}
	return &turn{Group: func() string { return group }}
}

// groupOf names the calls that may be for the same process as one of a child for this
// browser.
func groupOf(child *child.Spec, w source.BrowserRef) string {
	group := "call\x00" + child.Name
	if w != (source.BrowserRef{}) {
		group += "\x00" + w.Pool + "\x00" + w.Instance + "\x00" + w.Session
	}
	return group
}

// endTurn ends the turn of a request, so that later ones can proceed.
func (req *request) endTurn() {
	if at := req.host.turns.End(req.turn); at != nil {
		req.host.server.releasing.Go(at.Release)
	}
}

// How often a host that has asked for it is told that its call waits.
const (
	lookEvery = 250 * time.Millisecond
	tellEvery = 10 * time.Second // if nothing has changed
)

// tellWaiting sends the host progress while a request waits for a place, if it has
// asked for that, until the caller calls stop.
func (req *request) tellWaiting(ctx context.Context, w source.BrowserRef) (stop func()) {
	waiting := req.host.browsers.Waiting(w)
	if req.Token == nil || waiting == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	told := make(chan struct{})
	if !req.host.do(func() {
		defer close(told)
		req.tellPlace(ctx, waiting)
	}) {
		close(told)
	}
	return func() {
		cancel()
		<-told
	}
}

func (req *request) tellPlace(ctx context.Context, waiting func() (ahead int, waits bool)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	began, before := time.Now(), -1
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n, waits := waiting()
		if !waits || n == before && time.Since(last) < tellEvery {
			continue
		}
		before, last = n, time.Now()
		params := jsonrpc.Set(nil, "message", jsonrpc.Quote(fmt.Sprintf("waits for a browser: %d wait before it", n)))
		params = jsonrpc.Set(params, "progress", fmt.Appendf(nil, "%.3f", time.Since(began).Seconds()))
		params = jsonrpc.Set(params, "progressToken", req.Token)
		to := req.ID
		if id := taskID(to); id != "" {
			to, params = nil, withTask(params, id)
		}
		req.host.send(to, false, jsonrpc.Request(nil, "notifications/progress", params))
	}
}

// support is whether the tool of a call runs as a task, "" if it does not. Known is false
// if the tool is not known yet.
func (c *toolCall) support() (support string, known bool) {
	if c.host.server.isOwn(c.env.Name) {
		if c.env.Name == bulkName {
			return mcp.TaskOptional, true
		}
		return "", true
	}
	c.route, known = c.host.tools(c.env.Audience).Route(c.env.Name)
	return mcp.TaskSupport(c.route.Tool), known
}

// asTask answers the call of a tool by a task, if the host asks for that, and reports
// whether it did, or has refused to.
func (c *toolCall) asTask(ctx context.Context) bool {
	if c.env.Tasks == mcp.NoTasks || c.env.Tasks == mcp.AskedTasks && c.env.Task == nil {
		return false
	}
	support, known := c.support()
	if !known && c.env.Tasks != mcp.UndeclaredTasks {
		c.host.turns.Add(c.turn, nil) // it came before those that come while the tool is found
		c.host.do(func() { c.findTask(ctx) })
		return true
	}
	return c.asTaskOf(support)
}

// asTaskOf is asTask for a tool that is known.
func (c *toolCall) asTaskOf(support string) bool {
	switch c.env.Tasks {
	case mcp.UndeclaredTasks:
		if support == mcp.TaskRequired {
			c.fail(mcp.ErrUndeclared())
			return true
		}
		return false
	case mcp.GrantedTasks:
		if support == "" {
			return false
		}
	case mcp.AskedTasks:
		if support == "" {
			c.fail(jsonrpc.Errorf(jsonrpc.MethodNotFound, "the tool %s does not run as a task", c.env.Name))
			return true
		}
	default:
		return false
	}
	var err error
	if c.ttl, err = c.env.Tasks.TTL(c.env.Task, taskTTL); err != nil {
		c.fail(err)
		return true
	}
	c.insists = support == mcp.TaskRequired && c.makesTasks()
	if c.insists {
		return false
	}
	c.createTask()
	return true
}

// findTask answers the call of a tool that is not known yet.
func (c *toolCall) findTask(ctx context.Context) {
	if c.findTool(ctx) && !c.asTaskOf(mcp.TaskSupport(c.route.Tool)) {
		c.inTurn(ctx)
	}
}
