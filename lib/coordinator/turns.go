package coordinator

import (
	"context"
	"encoding/json"
	"slices"

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
	caps   json.RawMessage
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

// takeTurn gives a request that a child is to answer its turn. It is called in
// the order of arrival.
func (s *Session) takeTurn(m *jsonrpc.Message, f *flight) {
	t := &turn{caps: f.caps, moved: make(chan struct{}), got: make(chan taken, 1)}
	switch m.Method {
	case "tools/call":
		t.tool, t.args = jsonrpc.GetString(m.Params, "name"), jsonrpc.Get(m.Params, "arguments")
		if s.c.isOwn(t.tool) {
			return
		}
	case "prompts/get", "completion/complete":
		t.group = "prompts"
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		t.group = "resource\x00" + jsonrpc.GetString(m.Params, "uri")
	default:
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests.IsOver(&f.Request) {
		return
	}
	f.turn = t
	s.turns = append(s.turns, t)
}

// groupLocked is a turn's group, as far as its tool is known by now.
func (s *Session) groupLocked(t *turn) string {
	if t.group == "" {
		if r, ok := s.toolsLocked(s.listLocked(t.caps)).routes[t.tool]; ok {
			t.group = r.group(t.args)
		}
	}
	return t.group
}

// beforeLocked is a turn that comes before another one for this process, or may
// do so, nil if there is none: the last one that came before t, or of all for a
// nil t. What that one waits for in its turn, t does not wait for: else each
// end would wake all that wait.
func (s *Session) beforeLocked(t *turn, group string, k *kid) *turn {
	at := len(s.turns)
	if t != nil {
		at = slices.Index(s.turns, t)
	}
	for i := at - 1; i >= 0; i-- {
		other := s.turns[i]
		if k != nil && other.kid == k || other.kid == nil && group != "" && s.groupLocked(other) == group {
			return other
		}
	}
	return nil
}

// isFirst reports whether a call can be relayed at once.
func (s *Session) isFirst(group string, k *kid) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beforeLocked(nil, group, k) == nil
}

// placed notes which child the request of the context is for.
func (s *Session) placed(ctx context.Context, k *kid) {
	f, _ := ctx.Value(flightKey{}).(*flight)
	if f == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := f.turn; t != nil && t.kid == nil && !t.over {
		t.kid = k
		t.moveLocked()
	}
}

func (t *turn) moveLocked() {
	close(t.moved)
	t.moved = make(chan struct{})
}

// itsTurn waits until the requests before this one are relayed, or are not to
// be. It reports whether there still is somebody who waits for the answer.
func (s *Session) itsTurn(ctx context.Context, f *flight) bool {
	for f.turn != nil {
		s.mu.Lock()
		before := s.beforeLocked(f.turn, s.groupLocked(f.turn), f.turn.kid)
		if before == nil {
			s.mu.Unlock()
			break
		}
		moved := before.moved
		s.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// endTurn lets those that come after a request go on.
func (s *Session) endTurn(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := f.turn
	if t == nil || t.over {
		return
	}
	t.over, t.served = true, true
	if i := slices.Index(s.turns, t); i >= 0 {
		s.turns = slices.Delete(s.turns, i, i+1)
	}
	t.moveLocked()
	if q := t.asks; q != nil {
		t.asks, q.by = nil, nil
		q.cancel()
	}
	select {
	case got := <-t.got: // nobody fetches it any more
		if got.at != nil {
			s.c.releasing.Go(got.at.release)
		}
	default:
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
	s.mu.Lock()
	if t.served {
		q.by = nil
	} else {
		t.asks = q
	}
	s.mu.Unlock()
	s.do(func() {
		defer cancel()
		for s.wanted(q) {
			at, err := s.browsers.take(asks, w)
			if !s.hand(q, taken{at, err}) && at != nil {
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

// wanted reports whether anybody waits for what comes of a request.
func (s *Session) wanted(q *asking) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return q.by != nil
}

// hand hands on what has come of a request, and reports whether anybody takes
// it. A browser is for the first call of the group that has none yet. The
// request of that one is then for the call that has made this one; if it has
// made none yet, this one is made again.
func (s *Session) hand(q *asking, got taken) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := q.by
	if to == nil {
		return false
	}
	if got.err == nil {
		group := s.groupLocked(to)
		i := slices.IndexFunc(s.turns, func(t *turn) bool { return !t.served && s.groupLocked(t) == group })
		if i >= 0 && s.turns[i] != to {
			first := s.turns[i]
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
