package coordinator

import (
	"context"
	"encoding/json"
	"strconv"

	"btools/lib/jsonrpc"
)

// audience are the hosts that share the children of a session: the host that
// has begun it by a handshake, or, of the stateless protocol, all hosts that
// can be asked the same. A child speaks to one audience.
type audience string

const (
	// ofHandshake is the host that has begun the session by a handshake.
	ofHandshake audience = ""
	// askNothing are the hosts of the stateless protocol that can be asked
	// nothing; others are named by their capabilities.
	askNothing audience = "{}"
)

// audienceOf is that of the request that something is done for.
func audienceOf(ctx context.Context) audience {
	if req, ok := ctx.Value(requestKey{}).(*request); ok {
		return req.audience
	}
	return ofHandshake
}

// askable is what children can ask an audience.
func (to audience) askable(s *Session) string {
	if to != ofHandshake {
		return string(to)
	}
	return string(askable(jsonrpc.Get(s.hostParams(), "capabilities")))
}

// hears reports whether an audience hears what belongs to no request.
func (to audience) hears(s *Session) bool { return to == ofHandshake && s.hostParams() != nil }

// logLevel are the parameters of logging/setLevel for a child; nil: it is told
// none, or with each request.
func (to audience) logLevel(s *Session) *json.RawMessage {
	if to != ofHandshake {
		return nil
	}
	return s.level.Load()
}

// ask asks an audience what a child asks.
func (to audience) ask(s *Session, p *process, m *jsonrpc.Message) {
	need, ok := needs[m.Method]
	switch {
	case to == ofHandshake:
		s.forwardToHost(p, m)
	case ok && jsonrpc.Get(json.RawMessage(to), need) != nil:
		s.requireInput(p, m)
	default:
		p.in.Write(jsonrpc.Failure(m.ID, errCannot(m)), false)
	}
}

// childParams are the parameters of a child's initialize: the host's, as the
// child is to offer it what it offers us.
func (to audience) childParams(s *Session) json.RawMessage {
	params := s.hostParams()
	if to != ofHandshake {
		params = jsonrpc.Set(nil, "capabilities", json.RawMessage(to))
	}
	if v := jsonrpc.GetString(params, "protocolVersion"); v == "" || isNewer(v) {
		params = jsonrpc.Set(params, "protocolVersion", json.RawMessage(strconv.Quote(legacy)))
	}
	if jsonrpc.Get(params, "capabilities") == nil {
		params = jsonrpc.Set(params, "capabilities", json.RawMessage("{}"))
	}
	if jsonrpc.Get(params, "clientInfo") == nil {
		params = jsonrpc.Set(params, "clientInfo",
			json.RawMessage(`{"name":"bmcp","version":`+strconv.Quote(s.c.Release)+`}`))
	}
	return params
}
