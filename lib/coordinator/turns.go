package coordinator

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"btools/lib/jsonrpc"
)

// Requests reach a child in the order in which the host has sent them: a host
// that sends several at once, such as a navigation and then a click, means them
// in that order. What each has to wait for first, such as a browser or the
// child's start, they wait for side by side.

// turn is the place of a request among those that may be for the same process.
// It ends when the request is relayed, or is not to be.
type turn struct {
	group  string          // of requests that may be for the same process; "": its tool is not known yet
	tool   string          // that is called
	args   json.RawMessage // of the call
	to     audience
	kid    *kid          // that it is for; nil: not known yet
	moved  chan struct{} // closed when that is known, or the turn is over
	over   bool
	asks   *asking    // for a browser; nil: it does not wait for one
	got    chan taken // the browser, or why there is none
	served bool       // that has been given
}

// asking is a request for a browser that is under way.
type asking struct {
	by     *turn // nil: nobody any more
	cancel context.CancelFunc
}

// taken is a browser for a call, or why there is none.
type taken struct {
	at  *place
	err error
}

// group names the calls that may be for the same process as this one.
func (r *route) group(args json.RawMessage) string {
	group := "call\x00" + r.child.Name
	if w, _ := r.which(args); w != (which{}) { // an error is told later
		group += "\x00" + w.pool + "\x00" + w.instance + "\x00" + w.session
	}
	return group
}

// turns are the turns of a session.
type turns struct {
	group func(*turn) string // of a call, "" if its tool is not known
	mu    sync.Mutex
	all   []*turn // of requests that are not relayed yet, in the order of their arrival
}

// newTurn is the turn of a request, nil if no child is to answer it.
func (s *Session) newTurn(m *jsonrpc.Message) *turn {
	t := &turn{}
	switch m.Method {
	case "tools/call":
		t.tool, t.args = jsonrpc.GetString(m.Params, "name"), jsonrpc.Get(m.Params, "arguments")
		if s.c.isOwn(t.tool) {
			return nil
		}
	case "prompts/get", "completion/complete":
		t.group = "prompts"
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		t.group = "resource\x00" + jsonrpc.GetString(m.Params, "uri")
	default:
		return nil
	}
	return t
}

// add gives a turn its place, unless it is over. It is called in the order of
// arrival. To is the audience of the request.
func (all *turns) add(t *turn, to audience) {
	if t == nil {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if t.over {
		return
	}
	t.to, t.moved, t.got = to, make(chan struct{}), make(chan taken, 1)
	all.all = append(all.all, t)
}

// groupLocked is a turn's group, as far as its tool is known by now.
func (all *turns) groupLocked(t *turn) string {
	if t.group == "" {
		t.group = all.group(t)
	}
	return t.group
}

// beforeLocked is a turn that comes before another one for this process, or may
// do so, nil if there is none: the last one that came before t, or of all for a
// nil t. What that one waits for in its turn, t does not wait for: else each
// end would wake all that wait.
func (all *turns) beforeLocked(t *turn, group string, k *kid) *turn {
	at := len(all.all)
	if t != nil {
		at = slices.Index(all.all, t)
	}
	for i := at - 1; i >= 0; i-- {
		other := all.all[i]
		if k != nil && other.kid == k || other.kid == nil && group != "" && all.groupLocked(other) == group {
			return other
		}
	}
	return nil
}

// isFirst reports whether a call can be relayed at once.
func (all *turns) isFirst(group string, k *kid) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.beforeLocked(nil, group, k) == nil
}

// placed notes which child the request of the context is for.
func (s *Session) placed(ctx context.Context, k *kid) {
	if f, _ := ctx.Value(flightKey{}).(*flight); f != nil && f.turn != nil {
		s.turns.placed(f.turn, k)
	}
}

func (all *turns) placed(t *turn, k *kid) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if t.kid == nil && !t.over {
		t.kid = k
		t.moveLocked()
	}
}

func (t *turn) moveLocked() {
	close(t.moved)
	t.moved = make(chan struct{})
}

// wait waits until the requests before a turn's are relayed, or are not to be.
// It reports whether there still is somebody who waits for the answer.
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

// before is closed when the turn before another one has moved; nil: there is
// none.
func (all *turns) before(t *turn) <-chan struct{} {
	all.mu.Lock()
	defer all.mu.Unlock()
	if before := all.beforeLocked(t, all.groupLocked(t), t.kid); before != nil {
		return before.moved
	}
	return nil
}

// endTurn lets those that come after a request go on.
func (s *Session) endTurn(t *turn) {
	if t == nil {
		return
	}
	if at := s.turns.end(t); at != nil {
		s.c.releasing.Go(at.release)
	}
}

// end ends a turn. It returns the browser that it has been given and that
// nobody fetches any more.
func (all *turns) end(t *turn) *place {
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
	if q := t.asks; q != nil {
		t.asks, q.by = nil, nil
		q.cancel()
	}
	select {
	case got := <-t.got:
		return got.at
	default:
		return nil
	}
}

// takeInTurn is take, but that calls of one group get browsers in the order of
// their arrival: the first one that is given is the first call's, whichever has
// asked for it.
func (s *Session) takeInTurn(ctx context.Context, t *turn, w which) (*place, error) {
	if t == nil {
		return s.browsers.take(ctx, w)
	}
	asks, cancel := context.WithCancel(s.ctx)
	q := &asking{by: t, cancel: cancel}
	s.turns.ask(t, q)
	s.do(func() {
		defer cancel()
		for s.turns.wanted(q) {
			at, err := s.browsers.take(asks, w)
			if !s.turns.hand(q, taken{at, err}) && at != nil {
				at.release()
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

// ask notes that a browser is asked for, unless the turn has been given one.
func (all *turns) ask(t *turn, q *asking) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if t.served {
		q.by = nil
	} else {
		t.asks = q
	}
}

// wanted reports whether anybody waits for what comes of a request.
func (all *turns) wanted(q *asking) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return q.by != nil
}

// hand hands on what has come of a request, and reports whether anybody takes
// it. A browser is for the first call of the group that has none yet. The
// request of that one is then for the call that has made this one; if it has
// made none yet, this one is made again.
func (all *turns) hand(q *asking, got taken) bool {
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
			if theirs := first.asks; theirs != nil {
				theirs.by, to.asks = to, theirs
				first.asks, q.by = nil, nil
			}
			return true
		}
	}
	to.served, to.asks, q.by = true, nil, nil
	to.got <- got
	return true
}
