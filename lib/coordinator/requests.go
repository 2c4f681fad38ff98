package coordinator

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"btools/lib/agent/source"
	"btools/lib/coordinator/pending"
	"btools/lib/jsonrpc"
	"btools/lib/mcp/front"
)

// requests are the pending requests of a host, and its goroutines.
type requests struct {
	server *Server
	send   front.Send
	ctx    context.Context
	end    context.CancelFunc

	mu    sync.Mutex
	table table
	work  sync.WaitGroup // that the host's end waits for
}

// apply changes the pending requests and executes the effects.
func (r *requests) apply(change func(*table) []effect) {
	r.mu.Lock()
	effects := change(&r.table)
	r.mu.Unlock()
	for _, e := range effects {
		r.execute(e)
	}
}

// read reads the pending requests, or changes them without effects.
func (r *requests) read(look func(*table)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	look(&r.table)
}

// do runs a function in a goroutine that the host's end waits for. It reports
// false after the end.
func (r *requests) do(f func()) (open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table.Closed() {
		return false
	}
	r.work.Go(f)
	return true
}

// Cancel implements front.Host.
func (r *requests) Cancel(id json.RawMessage, why string) {
	r.apply(func(t *table) []effect { return t.Cancel(id, why) })
}

// Open implements front.Host.
func (r *requests) Open() (n int) {
	r.read(func(t *table) { n = t.Len() })
	return n
}

// Mute implements front.Host: what children have asked the host fails, and what they will.
func (r *requests) Mute() {
	var asks []serverRequest
	r.read(func(t *table) { asks = t.Mute() })
	for _, a := range asks {
		a.Child.Send(jsonrpc.Failure(a.ID, pending.ErrMuted))
	}
}

// Busy implements source.Owner.
func (r *requests) Busy(match func(*source.Browser) bool) (busy bool) {
	r.read(func(t *table) {
		busy = t.Any(func(one *pendingRequest) bool {
			p, _ := one.Child()
			return p != nil && match(&p.sup.browser)
		})
	})
	return busy
}

// watch fails the calls on a browser when the browser dies.
func (r *requests) watch(died <-chan struct{}) {
	select {
	case <-died:
	case <-r.ctx.Done():
	}
	r.apply(func(t *table) (effects []effect) {
		for _, one := range t.Lost(died) {
			effects = append(effects, t.End(one, one.Value.faultOf(source.ErrBrowserDied), "the browser has ended")...)
		}
		return effects
	})
}

// execute executes an effect of apply.
func (r *requests) execute(e effect) {
	switch e.Kind {
	case pending.Stop:
		req := e.Request.Value
		if t := req.callTimer.Load(); t != nil {
			t.Stop()
		}
		req.endTurn()
		req.cancel()
	case pending.Answer:
		message := e.Message
		if message != nil && string(e.ID) != string(e.Request.ID) {
			m, _ := jsonrpc.Parse(message)
			message = m.WithID(e.ID)
		}
		e.Request.Value.reply(e.ID, message)
	case pending.Release:
		r.server.releasing.Go(e.Lease.Release)
	case pending.Settle:
		time.AfterFunc(r.server.Limits.Settle, func() {
			r.do(func() { r.apply(func(t *table) []effect { return t.Settle(e.Request) }) })
		})
	case pending.RequireInput:
		req := e.Request.Value
		req.inputTimer.Store(time.AfterFunc(r.server.Limits.AwaitInput, func() {
			r.do(func() { r.apply(func(t *table) []effect { return t.Expire(e.Request, e.Round) }) })
		}))
		if req.task() != nil {
			req.task().ask(e.Key, e.Questions)
			return
		}
		r.send(e.ID, true, jsonrpc.Response(e.ID, req.env.Era.InputRequired(req.Method, e.Key, e.Questions)))
	case pending.Resume:
		req := e.Request.Value
		if t := req.inputTimer.Load(); t != nil {
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
func (req *request) reply(id json.RawMessage, message []byte) {
	if t := req.task(); t != nil {
		t.answered(message)
		return
	}
	req.host.send(id, true, message)
}
