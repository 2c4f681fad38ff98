package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/agent/source"
	"btools/lib/coordinator/pending"
	"btools/lib/exit"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/child"
	"btools/lib/mcp/front"
	"btools/lib/results"
	"btools/lib/tools"
	"btools/lib/wait"
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

// request is a request of the host that is being answered.
type request struct {
	pending.Request[*running, *request]
	host       *Host
	m          *jsonrpc.Message
	env        mcp.Envelope
	lease      *source.Lease
	turn       *turn                      // nil: no child answers it
	cancel     context.CancelFunc         // ends its handling
	callTimer  atomic.Pointer[time.Timer] // ends it when its time is over
	inputTimer atomic.Pointer[time.Timer] // ends it while it awaits input
	execs      atomic.Pointer[taskCall]   // whose call it is; nil: it is the host's own
	// insists says that the child is to make a task of the call, whose result is
	// kept for ttl.
	insists bool
	ttl     time.Duration
	// childTask is the ID of the task that its child has made of the call; nil: none.
	childTask atomic.Pointer[string]
}

type (
	table          = pending.Table[*running, *request]
	pendingRequest = pending.Request[*running, *request]
	effect         = pending.Effect[*running, *request]
	serverRequest  = pending.ServerRequest[*running]
)

// task is the task whose call the request is, nil if it is the host's own.
func (req *request) task() *taskCall { return req.execs.Load() }

// mayAsk reports whether the request is the call of a task whose child may ask the host.
func (req *request) mayAsk() bool { return isOfChild(req.task()) }

// isOfChild reports whether something is done for a task that is the call of a child's
// tool, which may ask its host.
func isOfChild(t *taskCall) bool { return t != nil && !t.own }

// finish answers the request, once, and releases what it holds. A nil message is no
// answer.
func (req *request) finish(message []byte) {
	req.host.apply(func(t *table) []effect { return t.Finish(&req.Request, message) })
}

// result answers the request with a result of bmcp's own.
func (req *request) result(result json.RawMessage) {
	req.finish(jsonrpc.Response(req.ID, req.env.Era.Result(req.Method, result)))
}

func (req *request) fail(err error) { req.finish(req.failureOf(err)) }

func (req *request) failureOf(err error) []byte {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		e = jsonrpc.Errorf(jsonrpc.InternalError, "%v", err)
	}
	return jsonrpc.Failure(req.ID, e)
}

// fault answers a tool call with an error for the agent to read.
func (req *request) fault(err error) { req.finish(req.faultOf(err)) }

// faultOf is the answer to a request that has failed.
func (req *request) faultOf(err error) []byte {
	if req.task() != nil && errors.Is(err, source.ErrBrowserDied) {
		err = errDisconnected
	}
	if req.Method == "tools/call" {
		result := faultResult(err)
		if _, ok := results.FormOf(req.m.Params); ok {
			result = withExit(result, err)
		}
		return jsonrpc.Response(req.ID, req.env.Era.Result(req.Method, result))
	}
	return req.failureOf(err)
}

// withExit returns the result of a call that has failed with the exit code of the error, if that has one.
func withExit(result json.RawMessage, err error) json.RawMessage {
	e, ok := errors.AsType[*exit.Error](err)
	if !ok || e.Code == exit.Failed {
		return result
	}
	return jsonrpc.Set(result, "_meta", jsonrpc.Set(nil, results.MetaExit, json.RawMessage(strconv.Itoa(e.Code))))
}

// faultResult returns the result of a tool that has failed, in the form that tools of browsers have.
func faultResult(err error) json.RawMessage {
	text := string(jsonrpc.Quote("### Error\n" + err.Error()))
	return json.RawMessage(`{"content":[{"type":"text","text":` + text + `}],"isError":true}`)
}

// forward relays the request to a child, as this message, and the child's answer to the
// host.
func (req *request) forward(p *running, m *jsonrpc.Message) {
	h := req.host
	p.logs(req.Level)
	m = asChildTask(req, req.env.Era.ToChild(m))
	if req.task() != nil && p.sup.child.Builtin {
		meta := jsonrpc.Set(jsonrpc.Get(m.Params, "_meta"), tools.MetaAsTask, json.RawMessage("true"))
		m = m.WithParams(jsonrpc.Set(m.Params, "_meta", meta))
	}
	if req.lease != nil && req.lease.Died != nil && wait.Closed(req.lease.Died) {
		req.fault(source.ErrBrowserDied)
		return
	}
	n, ok := p.NewID(), false
	if h.read(func(t *table) { ok = t.Relay(&req.Request, p, n) }); !ok {
		return
	}
	req.bound()
	err := p.Relay(n, m, func(got *jsonrpc.Message, err error) {
		if id := childTaskOf(req, got); id != "" {
			req.adoptTask(p, id)
			return
		}
		req.answer(got, err)
	})
	req.endTurn()
	h.apply(func(t *table) []effect { return t.Relayed(&req.Request) })
	if err != nil {
		req.answer(nil, err)
	}
}

// errLate is the error of a tool that has not answered in time.
func errLate(child *child.Spec, b source.Browser) error {
	return fmt.Errorf("child %s did not answer the call within %v (TIMEOUT of pool %s): it was cancelled", child.Name,
		b.CallTimeout, b.Pool)
}

// bound limits the time of a call, to TIMEOUT of the pool.
func (req *request) bound() {
	if req.lease == nil || req.lease.CallTimeout <= 0 || req.Method != "tools/call" {
		return
	}
	req.callTimer.Store(time.AfterFunc(req.lease.CallTimeout, func() { req.host.do(req.expire) }))
	over := false
	if req.host.read(func(t *table) { over = t.IsOver(&req.Request) }); over {
		req.callTimer.Load().Stop()
	}
}

// expire ends a call whose time is over. If its child waits for the host, the call
// gets as long again.
func (req *request) expire() {
	p, _ := req.Child()
	late := req.faultOf(errLate(p.sup.child, req.lease.Browser))
	req.host.apply(func(t *table) []effect {
		over, again := t.Late(&req.Request)
		if again {
			req.callTimer.Load().Reset(req.lease.CallTimeout)
		}
		if !over {
			return nil
		}
		return t.End(&req.Request, late, "it took too long")
	})
}

// callTool calls a tool for bmcp, within the time limit of the lease.
func (p *running) callTool(ctx context.Context, params []byte, at *source.Lease) ([]byte, error) {
	if at != nil && at.CallTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, at.CallTimeout, errLate(p.sup.child, at.Browser))
		defer cancel()
	}
	return p.Call(ctx, "tools/call", params)
}
