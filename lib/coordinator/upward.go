package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/wait"
)

// fromChild handles what a child says of its own accord, in the order in which
// it says it.
func (s *Session) fromChild(p *process, m *jsonrpc.Message) {
	if m.IsRequest() {
		s.asked(p, m)
		return
	}
	switch m.Method {
	case "notifications/cancelled":
		id := string(jsonrpc.Get(m.Params, "requestId"))
		s.mu.Lock()
		for _, all := range []map[string]*flight{s.flights, s.parked} {
			for _, f := range all {
				for key, a := range f.asked {
					if a.p == p && string(a.id) == id {
						delete(f.asked, key)
					}
				}
			}
		}
		for n, a := range s.asks {
			if a.p == p && string(a.id) == id {
				delete(s.asks, n)
				s.mu.Unlock()
				s.send(nil, false, jsonrpc.Request(nil, m.Method, jsonrpc.Set(m.Params, "requestId", strconv.AppendInt(nil, n, 10))))
				return
			}
		}
		s.mu.Unlock()
	case "notifications/tools/list_changed":
		s.relist(p)
	case "notifications/progress":
		token := jsonrpc.Get(m.Params, "progressToken")
		s.pass(p, m, false, func(f *flight) bool { return string(f.token) == string(token) })
	case "notifications/message":
		level := slices.Index(levels, jsonrpc.GetString(m.Params, "level"))
		s.pass(p, m, true, func(f *flight) bool { return level >= f.level })
	default:
		s.subscribers(m.Method, m.Params, func(*flight) bool { return true })
		s.pass(p, m, true, func(f *flight) bool { return f.dialect.hears() })
	}
}

// pass gives the host a notification as one of the request that it belongs to.
// A host of the stateless protocol gets no others. Guessed says that it does
// not name its request.
func (s *Session) pass(p *process, m *jsonrpc.Message, guessed bool, belongs func(*flight) bool) {
	if !wait.Closed(s.greeted) {
		return
	}
	var to json.RawMessage
	s.mu.Lock()
	f := s.oldestLocked(p, belongs)
	if guessed && f != nil && !s.isHisLocked(p, f) {
		f = nil
	}
	send := f != nil || s.params != nil && p.caps == nil
	if f != nil {
		to = f.current()
		if m.Method == "notifications/progress" && f.now != nil {
			send = f.again != nil
			m = withParams(m, jsonrpc.Set(m.Params, "progressToken", f.again))
		}
	}
	s.mu.Unlock()
	if send {
		s.send(to, false, m.Raw)
	}
}

// oldestLocked is the oldest request that a process is answering and that is
// such a one, nil if there is none. One whose host is to be asked something is
// taken only if there is no other: its child waits.
func (s *Session) oldestLocked(p *process, such func(*flight) bool) (oldest *flight) {
	rank := func(f *flight) int {
		switch {
		case len(f.asked) == 0:
			return 0
		case !f.parked:
			return 1
		}
		return 2
	}
	for _, all := range []map[string]*flight{s.flights, s.parked} {
		for _, f := range all {
			if f.done || f.p != p || !such(f) {
				continue
			}
			if oldest == nil || rank(f) < rank(oldest) || rank(f) == rank(oldest) && f.age < oldest.age {
				oldest = f
			}
		}
	}
	return oldest
}

// isHisLocked reports whether what a child says, which names no request, is for
// the host of this one: it is if all hosts of the session are one, or if the
// child can't mean another request.
func (s *Session) isHisLocked(p *process, f *flight) bool { return !s.shared || p.alone(f.n) }

// relist has a child asked for its tools; if it is being asked, again.
func (s *Session) relist(p *process) {
	s.mu.Lock()
	_, asking := s.dirty[p]
	s.dirty[p] = asking
	s.mu.Unlock()
	if !asking {
		s.do(func() { s.refresh(p) })
	}
}

// refresh asks a child for its tools, again as long as it says meanwhile that
// they have changed.
func (s *Session) refresh(p *process) {
	for {
		s.mu.Lock()
		s.dirty[p] = false
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(s.ctx, startTimeout)
		tools, err := pages(ctx, p, "tools/list", "tools")
		cancel()
		if err == nil {
			s.listTools(p.child, p.caps, tools)
		} else if s.ctx.Err() == nil {
			s.c.failed(p.child, err)
		}
		s.mu.Lock()
		again := s.dirty[p] && s.ctx.Err() == nil && p.gone() == nil
		if !again {
			delete(s.dirty, p)
		}
		s.mu.Unlock()
		if !again {
			return
		}
		time.Sleep(20 * time.Millisecond) // many changes are one
	}
}

// maxQuestions is how many questions of a child its host has to answer at once
// at most: a host may never do so.
const maxQuestions = 64

var errQuestions = jsonrpc.Errorf(jsonrpc.InternalError, "the host has not answered %d questions of this child yet", maxQuestions)

// needs are the capabilities that a host must have for what a child asks it.
var needs = map[string]string{"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}

// asked passes a child's request to the host, if that has said that it can
// answer it.
func (s *Session) asked(p *process, m *jsonrpc.Message) {
	if m.Method == "ping" {
		p.in.Write(jsonrpc.Response(m.ID, json.RawMessage("{}")), false)
		return
	}
	need, ok := needs[m.Method]
	if p.caps != nil && ok && jsonrpc.Get(p.caps, need) != nil {
		s.askLater(p, m)
		return
	}
	s.mu.Lock()
	if s.mute && p.caps == nil {
		s.mu.Unlock()
		p.in.Write(jsonrpc.Failure(m.ID, errSilent), false)
		return
	}
	can := jsonrpc.Get(s.params, "capabilities")
	if p.caps != nil || s.closed || can == nil || ok && jsonrpc.Get(can, need) == nil {
		s.mu.Unlock()
		p.in.Write(jsonrpc.Failure(m.ID, jsonrpc.Errorf(jsonrpc.MethodNotFound, "the host has no %s", m.Method)), false)
		return
	}
	open := 0
	for _, a := range s.asks {
		if a.p == p {
			open++
		}
	}
	if open >= maxQuestions {
		s.mu.Unlock()
		p.in.Write(jsonrpc.Failure(m.ID, errQuestions), false)
		return
	}
	s.lastAsk++
	n := s.lastAsk
	meta := jsonrpc.Get(m.Params, "_meta")
	token := slices.Clone(jsonrpc.Get(meta, "progressToken"))
	s.asks[n] = ask{p: p, id: slices.Clone(m.ID), token: token}
	var to json.RawMessage
	if f := s.oldestLocked(p, func(*flight) bool { return true }); f != nil {
		to = f.id
	}
	s.mu.Unlock()
	own := strconv.AppendInt(nil, n, 10)
	if token != nil { // those of several children may be the same
		m = withParams(m, jsonrpc.Set(m.Params, "_meta", jsonrpc.Set(meta, "progressToken", own)))
	}
	s.send(to, false, m.WithID(own))
}

// childEnded takes back what a child has asked, and has it started again when
// it is needed.
func (s *Session) childEnded(p *process) {
	s.mu.Lock()
	var open []int64
	for n, a := range s.asks {
		if a.p == p {
			open = append(open, n)
			delete(s.asks, n)
		}
	}
	kids := slices.Collect(maps.Values(s.kids))
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return
	}
	for _, n := range open {
		s.send(nil, false, jsonrpc.Request(nil, "notifications/cancelled", json.RawMessage(`{"requestId":`+strconv.FormatInt(n, 10)+`,"reason":"the child has ended"}`)))
	}
	for _, k := range kids {
		k.proc.Ended(p)
	}
	s.c.Log.Warn(p.gone().Error())
}

// watch has the calls on a browser fail when it dies.
func (s *Session) watch(died <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if died == nil || s.watched[died] || s.closed {
		return
	}
	s.watched[died] = true
	s.work.Go(func() {
		select {
		case <-died:
		case <-s.ctx.Done():
		}
		s.mu.Lock()
		delete(s.watched, died)
		var lost []*flight
		for _, all := range []map[string]*flight{s.flights, s.parked} {
			for _, f := range all {
				if f.place != nil && f.place.died == died && f.p != nil {
					lost = append(lost, f)
				}
			}
		}
		s.mu.Unlock()
		for _, f := range lost { // whose place and child stay from now on
			s.fault(f, errBrowserDied)
			f.p.forget(f.n, "the browser has ended")
		}
	})
}

var errBrowserDied = errors.New("the browser ended during this call: the next call gets a new one")
