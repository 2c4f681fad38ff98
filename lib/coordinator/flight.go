package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"btools/lib/coordinator/pending"
	"btools/lib/jsonrpc"
	"btools/lib/wait"
)

// flight is a request of the host that is being answered.
type flight struct {
	pending.Request[*process, *flight]
	place    *place
	turn     *turn                      // nil: it has none, as it is not for a child or is relayed at once
	cancel   context.CancelFunc         // of what is done for it
	late     atomic.Pointer[time.Timer] // ends it; nil: nothing does
	expiry   atomic.Pointer[time.Timer] // ends it while it awaits input
	dialect  dialect
	audience audience
}

type (
	table   = pending.Table[*process, *flight]
	request = pending.Request[*process, *flight]
	effect  = pending.Effect[*process, *flight]
	ask     = pending.ServerRequest[*process]
)

// flightKey is the flight's place in the context of what is done for it.
type flightKey struct{}

// finish answers a request, once; what was held for it is let go. A nil
// message is no answer.
func (s *Session) finish(f *flight, message []byte) {
	s.apply(func(t *table) []effect { return t.Finish(&f.Request, message) })
}

// result answers a request with a result of our own.
func (s *Session) result(f *flight, result json.RawMessage) {
	s.finish(f, jsonrpc.Response(f.ID, f.dialect.result(f.Method, result)))
}

func (s *Session) fail(f *flight, err error) { s.finish(f, failureOf(f, err)) }

func failureOf(f *flight, err error) []byte {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		e = jsonrpc.Errorf(jsonrpc.InternalError, "%v", err)
	}
	return jsonrpc.Failure(f.ID, e)
}

// fault answers the call of a tool with an error that is for the agent to
// read.
func (s *Session) fault(f *flight, err error) { s.finish(f, faultOf(f, err)) }

// faultOf is the answer to a request that has failed.
func faultOf(f *flight, err error) []byte {
	if f.Method == "tools/call" {
		return jsonrpc.Response(f.ID, f.dialect.result(f.Method, faultResult(err)))
	}
	return failureOf(f, err)
}

func faultResult(err error) json.RawMessage {
	return json.RawMessage(`{"content":[{"type":"text","text":` + string(quote(err.Error())) + `}],"isError":true}`)
}

// forward relays a request to a child, and its answer to the host.
func (s *Session) forward(p *process, m *jsonrpc.Message, f *flight) {
	m = f.dialect.toChild(p, f, m)
	if f.place != nil && f.place.died != nil && wait.Closed(f.place.died) {
		s.fault(f, errBrowserDied)
		return
	}
	n, ok := p.newID(), false
	if s.read(func(t *table) { ok = t.Relay(&f.Request, p, n) }); !ok {
		return
	}
	s.bound(f)
	err := p.relay(n, m, func(got *jsonrpc.Message, err error) { s.answerWith(f, got, err) })
	s.endTurn(f.turn)
	s.apply(func(t *table) []effect { return t.Relayed(&f.Request) })
	if err != nil {
		s.answerWith(f, nil, err)
	}
}

// answerWith answers a request with what its child has answered.
func (s *Session) answerWith(f *flight, got *jsonrpc.Message, err error) {
	if err != nil {
		s.fault(f, err)
		return
	}
	if f.place != nil && f.place.died != nil && len(got.Raw) < maxFault &&
		string(jsonrpc.Get(got.Result, "isError")) == "true" {
		// It may be the end of the browser, which the child has noticed
		// before us: then the next call must not go there too.
		s.do(func() { // or the session's end answers it
			select {
			case <-f.place.died:
			case <-time.After(noticeDelay):
			}
			s.finish(f, s.answerOf(f, got))
		})
		return
	}
	s.finish(f, s.answerOf(f, got))
}

const (
	maxFault    = 64 << 10 // bytes of a result that tells of a fault
	noticeDelay = 30 * time.Millisecond
)

// answerOf is a child's answer as the host gets it.
func (s *Session) answerOf(f *flight, got *jsonrpc.Message) []byte {
	if got.Result == nil {
		return f.dialect.failure(f.Method, got).WithID(f.ID)
	}
	result := f.dialect.result(f.Method, s.remarked(got.Result, f.place))
	if len(result) == 0 || &result[0] == &got.Result[0] {
		return got.WithID(f.ID) // every byte as it came
	}
	return jsonrpc.Response(f.ID, result)
}
