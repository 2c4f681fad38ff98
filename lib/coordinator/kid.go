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
)

const (
	startTimeout = 5 * time.Minute // npx may have to fetch it first
	steadyAfter  = time.Minute     // a child that lives so long does not crash repeatedly
	firstDelay   = time.Second     // after the second crash
	maxDelay     = 30 * time.Second
)

// kid is a child of a session, for one browser: it is started when it is
// needed, and again when it has ended.
type kid struct {
	session *Session
	child   *Child
	browser Browser
	caps    json.RawMessage // what a host of the stateless protocol can be asked; nil: it is of one before

	mu       sync.Mutex
	p        *process
	starting chan struct{}  // closed when the start is over; nil: none is under way
	err      error          // of the last start
	subs     map[string]int // subscriptions to its resources, by URI
	closed   bool           // it is not started any more
	crashes  int
	began    time.Time // of the last start
	next     time.Time // no start before
}

// running is the child's process if it is up, else nil.
func (k *kid) running() *process {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.p == nil || k.p.gone() != nil || k.starting != nil {
		return nil
	}
	return k.p
}

// slowAfter is how long a start may take until the status speaks of it.
const slowAfter = 5 * time.Second

// slow tells of children whose start takes long.
func (s *Session) slow() (notes []string) {
	s.mu.Lock()
	kids := slices.Collect(maps.Values(s.kids))
	s.mu.Unlock()
	for _, k := range kids {
		k.mu.Lock()
		if took := time.Since(k.began); k.starting != nil && took > slowAfter {
			notes = append(notes, fmt.Sprintf("child %s has not answered for %v", k.child.Name, took.Round(time.Second)))
		}
		k.mu.Unlock()
	}
	return notes
}

// get returns the child's process, started if need be.
func (k *kid) get(ctx context.Context) (*process, error) {
	k.session.replace(k)
	k.mu.Lock()
	for {
		if k.starting == nil && k.p != nil && k.p.gone() == nil {
			defer k.mu.Unlock()
			return k.p, nil
		}
		if k.closed {
			defer k.mu.Unlock()
			return nil, k.session.why()
		}
		if k.starting == nil {
			if wait := time.Until(k.next); wait > 0 {
				defer k.mu.Unlock()
				return nil, fmt.Errorf("%w; it is started again in %v at the earliest", k.err, wait.Round(100*time.Millisecond))
			}
			k.starting = make(chan struct{})
			k.began = time.Now()
			go k.start()
		}
		starting := k.starting
		k.mu.Unlock()
		select {
		case <-starting:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		k.mu.Lock()
		if k.starting == nil && k.err != nil {
			defer k.mu.Unlock()
			return nil, k.err
		}
	}
}

// start starts the child and makes it ready for calls.
func (k *kid) start() {
	ctx, cancel := context.WithTimeoutCause(k.session.ctx, startTimeout, fmt.Errorf("child %s did not answer within %v", k.child.Name, startTimeout))
	defer cancel()
	p, err := k.begin(ctx)
	k.mu.Lock()
	wanted := !k.closed
	k.mu.Unlock()
	if err != nil && wanted && k.session.ctx.Err() == nil {
		k.session.c.failed(k.child, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && k.closed {
		err = k.session.why()
	}
	k.p, k.err = p, err
	if err == nil && p.gone() != nil { // before it was known as ours
		err = p.gone()
		k.err = err
	}
	if err != nil {
		k.p = nil
		k.crashedLocked()
	}
	close(k.starting)
	k.starting = nil
}

func (k *kid) begin(ctx context.Context) (*process, error) {
	s := k.session
	p, err := s.c.startProcess(ctx, k.child, k.browser, k.caps, s)
	if err != nil {
		return nil, fmt.Errorf("cannot start child %s: %w", k.child.Name, err)
	}
	result, err := p.call(ctx, "initialize", s.childParams(k.caps))
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
	if level := s.logLevel(); level != nil && k.caps == nil && jsonrpc.Get(p.can, "logging") != nil {
		p.tell("logging/setLevel", level)
	}
	s.do(func() { s.watchHealth(p) })
	k.mu.Lock()
	for uri := range k.subs { // those of the process before
		p.tell("resources/subscribe", uriParams(uri))
	}
	k.mu.Unlock()
	if jsonrpc.Get(result, "capabilities", "tools") == nil {
		s.listTools(k.child, k.caps, nil)
	} else {
		s.relist(p)
	}
	return p, nil
}

// crashedLocked has the next start wait if the child crashes again and again.
func (k *kid) crashedLocked() {
	if time.Since(k.began) > steadyAfter {
		k.crashes = 0
	}
	if k.crashes++; k.crashes > 1 {
		k.next = time.Now().Add(min(firstDelay<<min(k.crashes-2, 10), maxDelay))
	}
}

// ended notes that the child's process has ended by itself.
func (k *kid) ended(p *process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.p == p {
		k.err = p.gone()
		k.crashedLocked()
	}
}

func (k *kid) stop() {
	k.mu.Lock()
	k.closed = true
	p, starting := k.p, k.starting
	k.mu.Unlock()
	if starting != nil {
		<-starting // the session's end has ended it
		k.mu.Lock()
		p = k.p
		k.mu.Unlock()
	}
	if p != nil {
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
	if (was == 0) == (now == 0) || k.p == nil || k.starting != nil {
		return // what is started is told then
	}
	method := "resources/subscribe"
	if now == 0 {
		method = "resources/unsubscribe"
	}
	k.p.tell(method, uriParams(uri))
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
