package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"btools/lib/agent/source"
	"btools/lib/coordinator/pending"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/wait"
)

// request is a request of the host that is being answered.
type request struct {
	pending.Request[*process, *request]
	host   *Session
	m      *jsonrpc.Message
	env    mcp.Envelope
	lease  *source.Lease
	turn   *turn                      // nil: no child answers it
	cancel context.CancelFunc         // ends its handling
	late   atomic.Pointer[time.Timer] // ends it when its time is over
	expiry atomic.Pointer[time.Timer] // ends it while it awaits input
	execs  atomic.Pointer[task]       // whose call it is; nil: it is the host's own
	// insists says that the child is to make a task of the call, whose result is
	// kept for ttl.
	insists bool
	ttl     time.Duration
	// childTask is the ID of the task that its child has made of the call; nil: none.
	childTask atomic.Pointer[string]
}

type (
	table          = pending.Table[*process, *request]
	pendingRequest = pending.Request[*process, *request]
	effect         = pending.Effect[*process, *request]
	serverRequest  = pending.ServerRequest[*process]
)

// task is the task whose call the request is, nil if it is the host's own.
func (r *request) task() *task { return r.execs.Load() }

// finish answers a request, once, and releases what it holds. A nil message is no
// answer.
func (s *Session) finish(req *request, message []byte) {
	s.apply(func(t *table) []effect { return t.Finish(&req.Request, message) })
}

// result answers a request with a result of bmcp's own.
func (s *Session) result(req *request, result json.RawMessage) {
	s.finish(req, jsonrpc.Response(req.ID, req.env.Era.Result(req.Method, result)))
}

func (s *Session) fail(req *request, err error) { s.finish(req, failureOf(req, err)) }

func failureOf(req *request, err error) []byte {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		e = jsonrpc.Errorf(jsonrpc.InternalError, "%v", err)
	}
	return jsonrpc.Failure(req.ID, e)
}

// fault answers a tool call with an error for the agent to read.
func (s *Session) fault(req *request, err error) { s.finish(req, faultOf(req, err)) }

// faultOf is the answer to a request that has failed.
func faultOf(req *request, err error) []byte {
	if req.task() != nil && errors.Is(err, source.ErrBrowserDied) {
		err = errDisconnected
	}
	if req.Method == "tools/call" {
		return jsonrpc.Response(req.ID, req.env.Era.Result(req.Method, faultResult(err)))
	}
	return failureOf(req, err)
}

func faultResult(err error) json.RawMessage {
	text := string(jsonrpc.Quote(err.Error()))
	return json.RawMessage(`{"content":[{"type":"text","text":` + text + `}],"isError":true}`)
}

// forward relays a request to a child, and its answer to the host.
func (s *Session) forward(p *process, m *jsonrpc.Message, req *request) {
	p.logs(req.Level)
	m = asChildTask(req, req.env.Era.ToChild(m))
	if req.lease != nil && req.lease.Died != nil && wait.Closed(req.lease.Died) {
		s.fault(req, source.ErrBrowserDied)
		return
	}
	n, ok := p.newID(), false
	if s.read(func(t *table) { ok = t.Relay(&req.Request, p, n) }); !ok {
		return
	}
	s.bound(req)
	err := p.relay(n, m, func(got *jsonrpc.Message, err error) {
		if id := childTaskOf(req, got); id != "" {
			s.adoptTask(p, req, id)
			return
		}
		s.answerWith(req, got, err)
	})
	s.endTurn(req.turn)
	s.apply(func(t *table) []effect { return t.Relayed(&req.Request) })
	if err != nil {
		s.answerWith(req, nil, err)
	}
}

// answerWith answers a request with the answer of its child.
func (s *Session) answerWith(req *request, got *jsonrpc.Message, err error) {
	if err != nil {
		s.fault(req, err)
		return
	}
	if s.isLarge(req, got) {
		s.do(func() { s.answerBounded(req, s.bounded(req, got)) })
		return
	}
	s.answerBounded(req, got)
}

// answerBounded answers a request with an answer of its child that is not too
// large.
func (s *Session) answerBounded(req *request, got *jsonrpc.Message) {
	if req.lease != nil && req.Method == "tools/call" && req.lease.HTTPURL != "" {
		s.do(func() { // or the session's end answers it
			req.lease.LearnRestored(s.ctx)
			s.answerWithDownloads(req, got)
		})
		return
	}
	s.answerCalled(req, got)
}

// answerCalled answers a request with the answer of its child, once it is known
// that its browser has not just ended.
func (s *Session) answerCalled(req *request, got *jsonrpc.Message) {
	if req.lease != nil && req.lease.Died != nil && len(got.Raw) < maxFault &&
		string(jsonrpc.Get(got.Result, "isError")) == "true" {
		// It may be the end of the browser, which the child has noticed
		// before us: then the next call must not go there too.
		s.do(func() { // or the session's end answers it
			select {
			case <-req.lease.Died:
			case <-time.After(noticeDelay):
			}
			s.finish(req, s.answerOf(req, got))
		})
		return
	}
	s.finish(req, s.answerOf(req, got))
}

const (
	maxFault    = 64 << 10 // bytes of a result that tells of a fault
	noticeDelay = 30 * time.Millisecond
)

// answerOf is a child's answer as the host gets it.
func (s *Session) answerOf(req *request, got *jsonrpc.Message) []byte {
	if got.Result == nil {
		return req.env.Era.Failure(req.Method, got).WithID(req.ID)
	}
	result := req.env.Era.Result(req.Method, s.remarked(got.Result, req.lease))
	if len(result) == 0 || &result[0] == &got.Result[0] {
		return got.WithID(req.ID) // every byte as it came
	}
	return jsonrpc.Response(req.ID, result)
}
