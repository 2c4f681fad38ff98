package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/wait"
)

// flight is a request of the host that is being answered.
type flight struct {
	id      json.RawMessage
	age     int // its number in the session
	method  string
	token   json.RawMessage // of its progress; nil: none is wanted
	p       *process        // that answers it; nil: none yet
	n       int64           // its ID there
	place   *place
	turn    *turn              // nil: it has none, as it is not for a child or is relayed at once
	cancel  context.CancelFunc // of what is done for it
	late    *time.Timer        // ends it; nil: nothing does
	done    bool
	dialect dialect
	caps    json.RawMessage // what the host can be asked; nil: what it has said in its handshake
	level   int             // of the log messages that it wants, see levels
	// filter is what it wants to be told, if it is subscriptions/listen and is
	// acknowledged.
	filter json.RawMessage
	input
}

// ask is a request of a child that the host is to answer.
type ask struct {
	p       *process
	id      json.RawMessage
	token   json.RawMessage // of its progress, which the host knows by our ID; nil: none is wanted
	request json.RawMessage // method and parameters, for a host of the stateless protocol
}

// flightKey is the flight's place in the context of what is done for it.
type flightKey struct{}

// finish answers a request, once; what was held for it is let go. A nil
// message is no answer.
func (s *Session) finish(f *flight, message []byte) {
	s.mu.Lock()
	if f.done {
		s.mu.Unlock()
		return
	}
	f.done = true
	if f.late != nil {
		f.late.Stop()
	}
	s.endTurnLocked(f)
	id, place := f.current(), f.place
	parked := f.parked
	switch {
	case !parked:
		delete(s.flights, string(id))
	case message != nil:
		f.answer = message // until the host comes again
	default:
		s.unparkLocked(f)
	}
	s.mu.Unlock()
	f.cancel()
	if !parked {
		if message != nil && string(id) != string(f.id) {
			m, _ := jsonrpc.Parse(message)
			message = m.WithID(id)
		}
		s.send(id, true, message)
	}
	if place != nil && place.release != nil {
		s.c.releasing.Go(place.release)
	}
}

// result answers a request with a result of our own.
func (s *Session) result(f *flight, result json.RawMessage) {
	s.finish(f, jsonrpc.Response(f.id, f.dialect.result(f.method, result)))
}

func (s *Session) fail(f *flight, err error) {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		e = jsonrpc.Errorf(jsonrpc.InternalError, "%v", err)
	}
	s.finish(f, jsonrpc.Failure(f.id, e))
}

// fault answers the call of a tool with an error that is for the agent to
// read.
func (s *Session) fault(f *flight, err error) {
	if f.method != "tools/call" {
		s.fail(f, err)
		return
	}
	s.result(f, faultResult(err))
}

func faultResult(err error) json.RawMessage {
	return json.RawMessage(`{"content":[{"type":"text","text":` + string(quote(err.Error())) + `}],"isError":true}`)
}

// forward relays a request to a child, and its answer to the host.
func (s *Session) forward(p *process, m *jsonrpc.Message, f *flight) {
	m = f.dialect.toChild(p, f, m)
	s.mu.Lock()
	if f.done {
		s.mu.Unlock()
		return
	}
	if f.place != nil && f.place.died != nil && wait.Closed(f.place.died) {
		s.mu.Unlock()
		s.fault(f, errBrowserDied)
		return
	}
	f.p, f.n = p, p.newID()
	// Whoever cancels it does so after this.
	err := p.relay(f.n, m, func(got *jsonrpc.Message, err error) { s.answerWith(f, got, err) })
	s.endTurnLocked(f)
	s.boundLocked(f)
	s.mu.Unlock()
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
	if f.place != nil && f.place.died != nil && len(got.Raw) < maxFault && string(jsonrpc.Get(got.Result, "isError")) == "true" {
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
		return f.dialect.failure(f.method, got).WithID(f.id)
	}
	result := f.dialect.result(f.method, s.remarked(got.Result, f.place))
	if len(result) == 0 || &result[0] == &got.Result[0] {
		return got.WithID(f.id) // every byte as it came
	}
	return jsonrpc.Response(f.id, result)
}
