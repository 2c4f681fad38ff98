package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/wait"
)

// kid is a child of a session, for one browser: it is started when it is
// needed, and again when it has ended.
type kid struct {
	session  *Session
	child    *Child
	browser  Browser
	audience audience

	proc wait.Starter[*process]

	mu   sync.Mutex
	subs map[string]int // subscriptions to its resources, by URI
}

// newKid is a child that has not been started, and that will have these
// subscriptions.
func newKid(s *Session, child *Child, b Browser, to audience, subs map[string]int) *kid {
	k := &kid{session: s, child: child, browser: b, audience: to, subs: subs}
	k.proc.Start, k.proc.Gone = k.start, (*process).gone
	limits := s.c.Limits
	k.proc.Backoff = wait.Backoff{First: limits.FirstDelay, Max: limits.MaxDelay, Steady: limits.Steady}
	return k
}

// running is the child's process if it is up, else nil.
func (k *kid) running() *process { return k.proc.Running() }

// slow tells of children whose start takes long.
func (s *Session) slow() (notes []string) {
	for _, k := range s.children.list() {
		if took := k.proc.Starting(); took > s.c.Limits.Slow {
			notes = append(notes, fmt.Sprintf("child %s has not answered for %v", k.child.Name,
				took.Round(time.Second)))
		}
	}
	return notes
}

// get returns the child's process, started if need be.
func (k *kid) get(ctx context.Context) (*process, error) {
	k.session.replace(k)
	return k.proc.Get(ctx)
}

// start starts the child and makes it ready for calls.
func (k *kid) start() (*process, error) {
	most := k.session.c.Limits.Start
	ctx, cancel := context.WithTimeoutCause(k.session.ctx, most,
		fmt.Errorf("child %s did not answer within %v", k.child.Name, most))
	defer cancel()
	p, err := k.begin(ctx)
	if err != nil && !k.proc.Refuses() && k.session.ctx.Err() == nil {
		k.session.c.failed(k.child, err)
	}
	return p, err
}

func (k *kid) begin(ctx context.Context) (*process, error) {
	s := k.session
	p, err := s.c.startProcess(ctx, k.child, k.browser, k.audience, s)
	if err != nil {
		return nil, fmt.Errorf("cannot start child %s: %w", k.child.Name, err)
	}
	s.requests.work.Go(p.run) // whose end waits for this start
	result, err := p.call(ctx, "initialize", k.audience.childParams(s))
	if err != nil {
		p.stop()
		var e *jsonrpc.Error
		if errors.As(err, &e) {
			err = fmt.Errorf("child %s does not initialize: %s", k.child.Name, e.Message)
		}
		return nil, err
	}
	s.c.greet(k.child, result)
	select { // what it asks the host must come after the host's own greeting
	case <-s.greeted:
	case <-p.ended:
		return nil, p.gone()
	case <-s.ctx.Done():
		p.stop()
		return nil, context.Cause(s.ctx)
	}
	p.notify("notifications/initialized", nil)
	p.can = slices.Clone(jsonrpc.Get(result, "capabilities"))
	if level := k.audience.logLevel(s); level != nil && jsonrpc.Get(p.can, "logging") != nil {
		p.tell("logging/setLevel", *level)
	}
	s.do(func() { s.watchHealth(p) })
	k.mu.Lock()
	for uri := range k.subs { // those of the process before
		p.tell("resources/subscribe", uriParams(uri))
	}
	k.mu.Unlock()
	if jsonrpc.Get(result, "capabilities", "tools") == nil {
		s.listTools(k.child, k.audience, nil)
	} else {
		s.relist(p)
	}
	return p, nil
}

func (k *kid) stop() {
	if p := k.proc.Close(k.session.why()); p != nil { // the session's end ends a start
		p.stop()
	}
}

// subscribe notes that one subscription more or less is to a resource, and
// tells the child of the first and of the last.
func (k *kid) subscribe(uri string, more int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.subs[uri]
	now := max(was+more, 0)
	k.noteLocked(uri, now)
	p := k.running()
	if (was == 0) == (now == 0) || p == nil {
		return // what is started is told then
	}
	method := "resources/subscribe"
	if now == 0 {
		method = "resources/unsubscribe"
	}
	p.tell(method, uriParams(uri))
}

// subscriptions are those that it has, or would have.
func (k *kid) subscriptions() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.subs)
}

func (k *kid) noteLocked(uri string, subscriptions int) {
	if k.subs == nil {
		k.subs = map[string]int{}
	}
	k.subs[uri] = subscriptions
	if subscriptions == 0 {
		delete(k.subs, uri)
	}
}

// note notes what a host has asked of a resource by itself, for the process
// that comes after this one.
func (k *kid) note(m *jsonrpc.Message) {
	uri := jsonrpc.GetString(m.Params, "uri")
	k.mu.Lock()
	defer k.mu.Unlock()
	switch m.Method {
	case "resources/subscribe":
		k.noteLocked(uri, max(k.subs[uri], 1))
	case "resources/unsubscribe":
		k.noteLocked(uri, 0)
	}
}

func uriParams(uri string) json.RawMessage { return jsonrpc.Set(nil, "uri", quote(uri)) }
