package shell

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"sync"

	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/jsonrpc"
	"btools/lib/mcp/child"
	"btools/lib/mcp/front"
)

// Server is a server of MCP for sessions: one Here, or one At a URL.
type Server interface {
	// connect connects the host of a session.
	connect(h *host) (peer, error)
	Close()
}

type hosts interface {
	NewNamed(name string, send front.Send) front.Host
	Close()
}

// Here returns a server within this process, with the browsers of sessions.
func Here(s hosts) Server { return here{s} }

type here struct{ hosts }

func (s here) connect(h *host) (peer, error) {
	n := &near{told: h.hears, open: map[string]chan<- *jsonrpc.Message{}}
	n.server = s.NewNamed(h.name, n.receive)
	return n, nil
}

// near is a server within this process.
type near struct {
	server front.Host
	told   func(*jsonrpc.Message)

	mu   sync.Mutex
	last int // the number of the latest request
	open map[string]chan<- *jsonrpc.Message
}

func (n *near) send(raw []byte) { n.server.Handle(jsonrpc.Parse(raw)) }
func (n *near) close()          { n.server.Close() }
func (n *near) isHere() bool    { return true }

// receive takes a message of the server.
func (n *near) receive(to json.RawMessage, last bool, raw []byte) {
	m, err := jsonrpc.Parse(raw)
	switch {
	case err != nil:
	case m.IsResponse():
		n.mu.Lock()
		defer n.mu.Unlock()
		if answer := n.open[string(m.ID)]; answer != nil {
			delete(n.open, string(m.ID))
			answer <- m
		}
	default:
		n.told(m)
	}
}

func (n *near) call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	answer := make(chan *jsonrpc.Message, 1)
	n.mu.Lock()
	n.last++
	id := strconv.Itoa(n.last)
	n.open[id] = answer
	n.mu.Unlock()
	n.send(jsonrpc.Request(json.RawMessage(id), method, params))
	select {
	case m := <-answer:
		return m.Result, jsonrpc.ErrorOf(m)
	case <-ctx.Done():
	}
	n.mu.Lock()
	delete(n.open, id)
	n.mu.Unlock()
	n.send(jsonrpc.Request(nil, "notifications/cancelled", json.RawMessage(`{"requestId":`+id+`}`)))
	return nil, context.Cause(ctx)
}

// At returns a server at a URL, at which each of our sessions is one of its own.
func At(spec *child.Spec) Server { return at{spec} }

type at struct{ *child.Spec }

func (s at) Close() {}

func (s at) connect(h *host) (peer, error) {
	p, err := child.Start(context.Background(), new(child.Programs).Start, s.Spec, child.Endpoint{}, h, io.Discard,
		child.DefaultLimits)
	if err != nil { // the token cannot be read
		return nil, &exit.Error{Code: exit.Config, Err: err}
	}
	go p.Run()
	return far{p}, nil
}

// far is a server at a URL.
type far struct{ *child.Process }

func (f far) call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	return f.Call(ctx, method, params)
}

func (f far) send(raw []byte) { f.Send(raw) }
func (f far) close()          { f.Stop(nil) }
func (f far) isHere() bool    { return false }

// FromChild takes a message of a server at a URL.
func (h *host) FromChild(m *jsonrpc.Message) { h.hears(m) }

// Ended says that a server at a URL cannot be used any more.
func (h *host) Ended(why error) {
	e := control.Errorf(control.Unavailable, "%v", why)
	if remote, ok := errors.AsType[*child.RemoteError](why); ok {
		e.Message = remote.Text
		if remote.Denied {
			e.Code, e.Hint = control.BadConfig, "--token-file names the file with its token, and bmcp auth URL logs in"
		}
	}
	h.lost(e)
}
