package coordinator

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"btools/lib/agent/source"
	"btools/lib/mcp"
)

// Requests reach a child in the order in which the host has sent them: a host that
// sends several at once, such as a navigation and then a click, means them in that
// order. They wait in parallel for what each needs first, such as a browser or the
// child's start.

// turn is the position of a request among those that may be for the same process.
// It ends when the request is relayed, or will not be.
type turn struct {
	group       string          // of requests that may be for the same process; "": its tool is not known yet
	tool        string          // that is called
	args        json.RawMessage // of the call
	to          mcp.Audience
	supervisor  *supervisor   // of its child; nil: not known yet
	moved       chan struct{} // closed when the child is known, or the turn is over
	over        bool
	acquisition *acquisition // of its browser; nil: it does not wait for one
	got         chan taken   // the browser, or why there is none
	served      bool         // it has got its browser
}

// acquisition is a request for a browser that is under way.
type acquisition struct {
	by     *turn // nil: nobody waits for it
	cancel context.CancelFunc
}

// taken is a browser for a call, or why there is none.
type taken struct {
	at  *source.Lease
	err error
}

// groupOf names the calls that may be for the same process as one of a child for this
// browser.
func groupOf(child *Child, w source.BrowserRef) string {
	group := "call\x00" + child.Name
	if w != (source.BrowserRef{}) {
		group += "\x00" + w.Pool + "\x00" + w.Instance + "\x00" + w.Session
	}
	return group
}

// turns are the turns of a session.
type turns struct {
	group func(*turn) string // of a call, "" if its tool is not known
	mu    sync.Mutex
	all   []*turn // of requests that are not relayed yet, in the order of their arrival
}

// newTurn returns the turn of a request, nil if no child answers it.
func (s *Session) newTurn(req *request) *turn {
	t := &turn{}
	switch req.Method {
	case "tools/call":
		t.tool, t.args = req.env.Name, req.env.Args
		if s.c.isOwn(t.tool) {
			return nil
		}
	case "prompts/get", "completion/complete":
		t.group = "prompts"
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		t.group = "resource\x00" + req.env.URI
	default:
		return nil
	}
	return t
}

// add queues a turn, unless it is over. It is called in the order of arrival. To
// is the audience of the request, sup the supervisor of a call that has its browser.
func (all *turns) add(t *turn, to mcp.Audience, sup *supervisor) {
	if t == nil {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if t.over {
		return
	}
	t.to, t.moved, t.got = to, make(chan struct{}), make(chan taken, 1)
	t.supervisor, t.served = sup, sup != nil
	all.all = append(all.all, t)
}

// groupLocked returns the group of a turn, "" while its tool is unknown.
func (all *turns) groupLocked(t *turn) string {
	if t.group == "" {
		t.group = all.group(t)
	}
	return t.group
}

// beforeLocked returns the last turn before t (before the end of the queue if t is
// nil) that is, or may be, for the same process; nil if there is none. t waits for
// that turn only, which itself waits for the ones before: otherwise each end would
// wake all who wait.
func (all *turns) beforeLocked(t *turn, group string, sup *supervisor) *turn {
	at := len(all.all)
	if t != nil {
		at = slices.Index(all.all, t)
	}
	for i := at - 1; i >= 0; i-- {
		other := all.all[i]
		if sup != nil && other.supervisor == sup || other.supervisor == nil && group != "" &&
			all.groupLocked(other) == group {
			return other
		}
	}
	return nil
}

// isFirst reports whether a call can be relayed at once.
func (all *turns) isFirst(group string, sup *supervisor) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.beforeLocked(nil, group, sup) == nil
}

// assign notes which child a turn is for.
func (all *turns) assign(t *turn, sup *supervisor) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if t.supervisor == nil && !t.over {
		t.supervisor = sup
		t.moveLocked()
	}
}

func (t *turn) moveLocked() {
	close(t.moved)
	t.moved = make(chan struct{})
}

// wait waits until all requests before this turn are relayed, or will not be. It
// reports whether the host still waits for the answer.
func (all *turns) wait(ctx context.Context, t *turn) bool {
	for t != nil {
		moved := all.before(t)
		if moved == nil {
			break
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// before returns a channel that is closed when the turn before another one has
// moved; nil if there is none.
func (all *turns) before(t *turn) <-chan struct{} {
	all.mu.Lock()
	defer all.mu.Unlock()
	if before := all.beforeLocked(t, all.groupLocked(t), t.supervisor); before != nil {
		return before.moved
	}
	return nil
}

// endTurn ends a turn, so that later requests can proceed.
func (s *Session) endTurn(t *turn) {
	if t == nil {
		return
	}
	if at := s.turns.end(t); at != nil {
		s.c.releasing.Go(at.Release)
	}
}

// end ends a turn. It returns the lease that was granted to the turn and that
// nobody has fetched.
func (all *turns) end(t *turn) *source.Lease {
	all.mu.Lock()
	defer all.mu.Unlock()
	if t.over {
		return nil
	}
	t.over, t.served = true, true
	i := slices.Index(all.all, t)
	if i < 0 {
		return nil
	}
	all.all = slices.Delete(all.all, i, i+1)
	t.moveLocked()
	if q := t.acquisition; q != nil {
		t.acquisition, q.by = nil, nil
		q.cancel()
	}
	select {
	case got := <-t.got:
		return got.at
	default:
		return nil
	}
}

// takeInTurn is take, but the calls of a group get browsers in the order of their
// arrival: the first lease goes to the first call, whichever call requested it.
func (s *Session) takeInTurn(ctx context.Context, req *request, w source.BrowserRef) (*source.Lease, error) {
	t := req.turn
	if t == nil {
		return s.browsers.Take(ctx, w)
	}
	defer req.tellWaiting(ctx, w)()
	asks, cancel := context.WithCancel(s.ctx)
	q := &acquisition{by: t, cancel: cancel}
	s.turns.ask(t, q)
	s.do(func() {
		defer cancel()
		for s.turns.wanted(q) {
			at, err := s.browsers.Take(asks, w)
			if !s.turns.hand(q, taken{at, err}) && at != nil {
				at.Release()
			}
		}
	})
	select {
	case got := <-t.got:
		return got.at, got.err
	case <-ctx.Done(): // its turn is over
		return nil, context.Cause(ctx)
	}
}

// ask notes that a browser is being requested for a turn, unless the turn has been
// served.
func (all *turns) ask(t *turn, q *acquisition) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if t.served {
		q.by = nil
	} else {
		t.acquisition = q
	}
}

// wanted reports whether anybody waits for the result of an acquisition.
func (all *turns) wanted(q *acquisition) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return q.by != nil
}

// hand delivers the result of an acquisition and reports whether anybody took it.
// A lease goes to the first call of the group that has none. The acquisition of
// that call then serves the call whose lease it got; if it had started none, this
// acquisition is repeated.
func (all *turns) hand(q *acquisition, got taken) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	to := q.by
	if to == nil {
		return false
	}
	if got.err == nil {
		group := all.groupLocked(to)
		i := slices.IndexFunc(all.all, func(t *turn) bool { return !t.served && all.groupLocked(t) == group })
		if i >= 0 && all.all[i] != to {
			first := all.all[i]
			first.served = true
			first.got <- got
			if theirs := first.acquisition; theirs != nil {
				theirs.by, to.acquisition = to, theirs
				first.acquisition, q.by = nil, nil
			}
			return true
		}
	}
	to.served, to.acquisition, q.by = true, nil, nil
	to.got <- got
	return true
}
