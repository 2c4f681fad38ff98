package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/logins"
)

// Local returns a connection to the states of this user where no other program runs the
// sessions. It has to be closed.
func Local(store *logins.Store) *LocalConn {
	ctx, end := context.WithCancel(control.WithPeer(context.Background(), &control.Peer{UID: -1}))
	return connect(NewServer(store, nil), ctx, end)
}

func connect(s *Server, ctx context.Context, end context.CancelFunc) *LocalConn {
	c := &LocalConn{ctx: ctx, end: end}
	s.Register(&c.methods)
	return c
}

// LocalConn is a connection whose other end is in this process.
type LocalConn struct {
	methods control.Mux
	ctx     context.Context
	end     context.CancelFunc
}

// Close ends the connection.
func (c *LocalConn) Close() { c.end() }

// Call makes a request. After the context's end the connection is of no use.
func (c *LocalConn) Call(ctx context.Context, method string, params, result any) error {
	defer context.AfterFunc(ctx, c.end)()
	b, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer, err := control.Finish(c.methods.Serve(c.ctx, method, b))
	if err != nil {
		return err
	}
	if b, err = json.Marshal(answer); err != nil {
		return err
	}
	return json.Unmarshal(b, result)
}

// Import saves a storageState of Playwright under a name. It needs the connection for itself.
func Import(ctx context.Context, c control.Caller, name string, from io.Reader) (answer api.States, err error) {
	b := make([]byte, partSize)
	for {
		n, err := io.ReadFull(from, b)
		more := err == nil
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return answer, &ReadError{err}
		}
		answer, err = api.StatePut.Ask(ctx, c, api.StateRequest{Name: name, Data: b[:n], More: more})
		if err != nil || !more {
			return answer, err
		}
	}
}

// ReadError is the error of Import if it cannot read the storageState.
type ReadError struct{ error }

// Unwrap returns the error of the read.
func (e *ReadError) Unwrap() error { return e.error }

// Export writes a state as Playwright reads it. It needs the connection for itself.
func Export(ctx context.Context, c control.Caller, name string, to io.Writer) error {
	for r, more := (api.StateRequest{Name: name, Export: true}), true; more; r.Next = true {
		part, err := api.StateGet.Ask(ctx, c, r)
		if err != nil {
			return err
		}
		if _, err := to.Write(part.Data); err != nil {
			return fmt.Errorf("cannot write the state: %w", err)
		}
		more = part.More
	}
	return nil
}
