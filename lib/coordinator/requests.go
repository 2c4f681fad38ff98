package coordinator

import (
	"encoding/json"
	"sync"
	"time"

	"btools/lib/coordinator/pending"
	"btools/lib/jsonrpc"
)

// requests are the pending requests of a session, and its goroutines.
type requests struct {
	mu    sync.Mutex
	table table
	work  sync.WaitGroup // that the session's end waits for
}

// apply changes the pending requests and executes the effects.
func (s *Session) apply(change func(*table) []effect) {
	s.requests.mu.Lock()
	effects := change(&s.requests.table)
	s.requests.mu.Unlock()
	for _, e := range effects {
		s.execute(e)
	}
}

// read reads the pending requests, or changes them without effects.
func (s *Session) read(look func(*table)) {
	s.requests.mu.Lock()
	defer s.requests.mu.Unlock()
	look(&s.requests.table)
}

// do runs a function in a goroutine that the session's end waits for. It reports
// false after the end.
func (s *Session) do(f func()) (open bool) {
	s.requests.mu.Lock()
	defer s.requests.mu.Unlock()
	if s.requests.table.Closed() {
		return false
	}
	s.requests.work.Go(f)
	return true
}

// execute executes an effect of apply.
func (s *Session) execute(e effect) {
	switch e.Kind {
	case pending.Stop:
		req := e.Request.Value
		if t := req.late.Load(); t != nil {
			t.Stop()
		}
		s.endTurn(req.turn)
		req.cancel()
	case pending.Answer:
		message := e.Message
		if message != nil && string(e.ID) != string(e.Request.ID) {
			m, _ := jsonrpc.Parse(message)
			message = m.WithID(e.ID)
		}
		s.reply(e.Request.Value, e.ID, message)
	case pending.Release:
		s.c.releasing.Go(e.Lease.Release)
	case pending.Settle:
		time.AfterFunc(s.c.Limits.Settle, func() {
			s.do(func() { s.apply(func(t *table) []effect { return t.Settle(e.Request) }) })
		})
	case pending.RequireInput:
		req := e.Request.Value
		req.expiry.Store(time.AfterFunc(s.c.Limits.AwaitInput, func() {
			s.do(func() { s.apply(func(t *table) []effect { return t.Expire(e.Request, e.Round) }) })
		}))
		if req.task() != nil {
			req.task().ask(e.Key, e.Questions)
			return
		}
		s.send(e.ID, true, jsonrpc.Response(e.ID, req.env.Era.InputRequired(req.Method, e.Key, e.Questions)))
	case pending.Resume:
		req := e.Request.Value
		if t := req.expiry.Load(); t != nil {
			t.Stop()
		}
		if req.task() != nil {
			req.task().resume()
		}
	case pending.Cancel:
		e.Child.Cancel(e.Number, e.Reason)
		if id := e.Request.Value.childTask.Load(); id != nil {
			e.Child.Tell("tasks/cancel", jsonrpc.Set(nil, "taskId", jsonrpc.Quote(*id)))
		}
	case pending.Reply:
		e.Child.Send(jsonrpc.Response(e.ID, e.Message))
	case pending.Refuse:
		e.Child.Send(jsonrpc.Failure(e.ID, e.Err))
	}
}

// reply sends the answer to a request to the host, or to the task whose call it is.
func (s *Session) reply(req *request, id json.RawMessage, message []byte) {
	if req.task() != nil {
		req.task().answered(message)
		return
	}
	s.send(id, true, message)
}
