package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"btools/lib/agent/source"
	"btools/lib/coordinator/pending"
	"btools/lib/exit"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/results"
	"btools/lib/wait"
)

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
