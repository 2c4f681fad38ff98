package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
	"btools/lib/liveness"
	"btools/lib/mcp"
	"btools/lib/mcp/child"
	"btools/lib/wait"
)

// supervisor keeps a child of a host for one browser: it starts the child when
// it is needed, and again after it has ended.
type supervisor struct {
	host     *Host
	child    *child.Spec
	browser  source.Browser
	audience mcp.Audience

	proc wait.Starter[*running]

	mu    sync.Mutex
	subs  map[string]int    // subscriptions to its resources, by URI
	pages []json.RawMessage // the tools of the page that its browser shows, see pages.go
}

// newSupervisor returns a supervisor that has not started its child, which will
// have these subscriptions.
func newSupervisor(h *Host, child *child.Spec, b source.Browser, to mcp.Audience, subs map[string]int) *supervisor {
	sup := &supervisor{host: h, child: child, browser: b, audience: to, subs: subs}
	sup.proc.Start, sup.proc.Gone = sup.start, (*running).Gone
	limits := h.server.Limits
	sup.proc.Backoff = wait.Backoff{First: limits.FirstDelay, Max: limits.MaxDelay, Steady: limits.Steady}
	return sup
}

// running returns the child's process, nil if it is not running.
func (sup *supervisor) running() *running { return sup.proc.Running() }

// get returns the child's process, and starts it if necessary. MayAsk says that it is for
// a call during which the child may ask the host.
func (sup *supervisor) get(ctx context.Context, mayAsk bool) (*running, error) {
	sup.replace(mayAsk)
	return sup.proc.Get(ctx)
}

// ready is get without waiting; it returns nil if the child is not running.
func (sup *supervisor) ready(mayAsk bool) *running {
	sup.replace(mayAsk)
	return sup.running()
}

// start starts the child and initializes it.
func (sup *supervisor) start() (*running, error) {
	most := sup.host.server.Limits.Start
	ctx, cancel := context.WithTimeoutCause(sup.host.ctx, most,
		fmt.Errorf("child %s did not answer within %v", sup.child.Name, most))
	defer cancel()
	p, err := sup.begin(ctx)
	if err != nil && !sup.proc.Refuses() && sup.host.ctx.Err() == nil {
		sup.host.server.catalog.Failed(sup.child, err)
	}
	return p, err
}

func (sup *supervisor) begin(ctx context.Context) (*running, error) {
	h := sup.host
	p, err := sup.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot start child %s: %w", sup.child.Name, err)
	}
	result, err := p.Call(ctx, "initialize", sup.audience.ChildParams(h.hostParams(), h.server.us))
	if err != nil {
		p.Stop(nil)
		var e *jsonrpc.Error
		if errors.As(err, &e) {
			err = fmt.Errorf("child %s does not initialize: %s", sup.child.Name, e.Message)
		}
		return nil, err
	}
	h.server.catalog.Initialized(sup.child, result)
	select { // what it asks the host must come after the host's own greeting
	case <-h.initialized:
	case <-p.Done():
		return nil, p.Gone()
	case <-h.ctx.Done():
		p.Stop(nil)
		return nil, context.Cause(h.ctx)
	}
	p.Send(jsonrpc.Request(nil, "notifications/initialized", nil))
	p.capabilities = slices.Clone(jsonrpc.Get(result, "capabilities"))
	if level := h.level.Load(); level != nil && sup.audience == mcp.OfHandshake && p.can("logging") {
		p.Tell("logging/setLevel", *level)
	}
	h.do(p.watchHealth)
	sup.mu.Lock()
	for uri := range sup.subs { // subscriptions of the previous process
		p.Tell("resources/subscribe", uriParams(uri))
	}
	sup.mu.Unlock()
	if jsonrpc.Get(result, "capabilities", "tools") == nil {
		h.listTools(sup.child, sup.audience, nil)
	} else {
		p.relist()
	}
	return p, nil
}

func (sup *supervisor) stop() {
	if p := sup.proc.Close(sup.host.why()); p != nil { // the host's end ends a start
		p.Stop(nil)
	}
}

// subscribe adds more to the number of subscriptions to a resource. The child is
// told of the first and of the last one.
func (sup *supervisor) subscribe(uri string, more int) {
	sup.mu.Lock()
	defer sup.mu.Unlock()
	was := sup.subs[uri]
	now := max(was+more, 0)
	sup.noteLocked(uri, now)
	p := sup.running()
	if (was == 0) == (now == 0) || p == nil {
		return // what is started is told then
	}
	method := "resources/subscribe"
	if now == 0 {
		method = "resources/unsubscribe"
	}
	p.Tell(method, uriParams(uri))
}

// subscriptions are the subscriptions of the child, running or not.
func (sup *supervisor) subscriptions() map[string]int {
	sup.mu.Lock()
	defer sup.mu.Unlock()
	return maps.Clone(sup.subs)
}

func (sup *supervisor) noteLocked(uri string, subscriptions int) {
	if sup.subs == nil {
		sup.subs = map[string]int{}
	}
	sup.subs[uri] = subscriptions
	if subscriptions == 0 {
		delete(sup.subs, uri)
	}
}

// note records a host's own subscription to a resource, for the process that
// follows this one.
func (sup *supervisor) note(req *request) {
	uri := req.env.URI
	sup.mu.Lock()
	defer sup.mu.Unlock()
	switch req.Method {
	case "resources/subscribe":
		sup.noteLocked(uri, max(sup.subs[uri], 1))
	case "resources/unsubscribe":
		sup.noteLocked(uri, 0)
	}
}

func uriParams(uri string) json.RawMessage { return jsonrpc.Set(nil, "uri", jsonrpc.Quote(uri)) }

// running is a child that runs, for its supervisor.
type running struct {
	*child.Process
	sup          *supervisor
	capabilities json.RawMessage // once it is initialized
	// logLevel is the least severe level that it does not log, for hosts of the stateless protocol.
	logLevel atomic.Int32
	listing  atomic.Int32              // of its tools: notListing, isListing or listChanged
	pinged   atomic.Pointer[time.Time] // when it last answered a ping; nil: it has not been pinged
}

// States of the list of a child's tools.
const (
	notListing  = iota
	isListing   // the child is asked for it
	listChanged // the same, but it has changed since
)

// run starts the child of a supervisor, and reads its messages until the child has ended.
func (sup *supervisor) run(ctx context.Context) (*running, error) {
	p := &running{sup: sup}
	p.logLevel.Store(int32(len(mcp.Levels)))
	s := sup.host.server
	start := s.Start
	if sup.child.Builtin {
		start = sup.host.serveBuiltin(sup.browser, sup.audience)
	}
	var err error
	p.Process, err = child.Start(ctx, start, sup.child, endpointOf(sup.browser), p, s.Stderr, s.Limits.Child)
	if err != nil {
		return nil, err
	}
	sup.host.work.Go(p.Run) // whose end waits for this start
	return p, nil
}

func endpointOf(b source.Browser) child.Endpoint {
	return child.Endpoint{ID: b.ID, HTTPURL: b.HTTPURL, WSURL: b.WSURL, Port: b.Port, Type: b.Type,
		Headless: b.Headless, Profile: b.Profile, Windows: b.Windows}
}

// can reports whether the child has a capability.
func (p *running) can(names ...string) bool { return jsonrpc.Get(p.capabilities, names...) != nil }

// logs lowers the level that the child logs, if necessary. Of allLevels, the host has
// told it by itself.
func (p *running) logs(level int) {
	if level == mcp.AllLevels || !p.can("logging") {
		return
	}
	for {
		was := p.logLevel.Load()
		if int32(level) >= was {
			return
		}
		if p.logLevel.CompareAndSwap(was, int32(level)) {
			p.Tell("logging/setLevel", jsonrpc.Set(nil, "level", jsonrpc.Quote(mcp.Levels[level])))
			return
		}
	}
}

// ping has the child answer a ping.
func (p *running) ping(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, err := p.Call(ctx, "ping", nil)
	switch {
	case errors.As(err, new(*jsonrpc.Error)): // which is an answer
		return nil
	case err != nil && p.Gone() != nil:
		return liveness.ErrNotChecked
	}
	return err
}

// replaceEvery is how often to check whether a replaced process has calls left.
const replaceEvery = time.Second

// replace gives a child's next calls a new process, if several hosts share the
// child, it may ask them, and all its calls await input (the hosts may never answer)
// or are cancelled: it would be unclear which host a question is for. The old process
// runs until its calls have ended.
func (sup *supervisor) replace(mayAsk bool) {
	h := sup.host
	if !h.table.Shared {
		return
	}
	p, _ := sup.proc.Last()
	if p == nil || !mayAsk && !h.server.catalog.Asks(sup.child) || p.Gone() != nil {
		return
	}
	var calls, awaiting int
	var cancelled bool
	h.read(func(t *table) {
		calls, cancelled = p.OpenCalls()
		awaiting = t.WaitFor(p)
	})
	if calls != awaiting || calls == 0 && !cancelled || !h.children.replace(p, h.server.Limits.Replaced) {
		return
	}
	sup.proc.Forget(p)
	h.do(func() {
		for left := 1; left > 0; left, _ = p.OpenCalls() {
			select {
			case <-time.After(replaceEvery):
				continue
			case <-p.Done():
			case <-h.ctx.Done():
			}
			break
		}
		p.Stop(nil)
		h.children.finish(p)
	})
}
