package calls

import (
	"context"
	"errors"
	"io"

	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/jsonrpc"
	"btools/lib/mcp/child"
	"btools/lib/mcp/front"
)

// Server is a server of MCP for sessions: one Here, or one At a URL.
type Server interface {
	// begin connects the host of a session.
	begin(h *host) error
	Close()
}

type hosts interface {
	front.Hosts
	Close()
}

// Here is a server within this process, with the browsers of sessions.
func Here(s hosts) Server { return here{s} }

type here struct{ hosts }

func (s here) begin(h *host) error {
	h.server = s.New(h.receive, false)
	return nil
}

// At is a server at a URL, at which each of our sessions is one of its own.
func At(spec *child.Spec) Server { return at{spec} }

type at struct{ *child.Spec }

func (s at) Close() {}

func (s at) begin(h *host) (err error) {
	h.far, err = child.Start(context.Background(), new(child.Programs).Start, s.Spec, child.Endpoint{}, h, io.Discard,
		child.DefaultLimits)
	if err != nil { // the token cannot be read
		return &exit.Error{Code: exit.Config, Err: err}
	}
	go h.far.Run()
	return nil
}

// FromChild takes a message of a server at a URL.
func (h *host) FromChild(m *jsonrpc.Message) { h.receive(nil, false, m.Raw) }

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
