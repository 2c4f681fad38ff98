package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"btools/lib/control"
	"btools/lib/states"
)

// Conn is a connection to the program that resolves the names of states, such as a
// *control.Client. An import or export needs it for itself.
type Conn interface {
	Call(ctx context.Context, method string, params, result any) error
}

// Local returns a Conn to the states of this user where no other program runs the
// sessions. It has to be closed.
func Local(store *states.Store) *LocalConn {
	ctx, end := context.WithCancel(control.WithPeer(context.Background(), &control.Peer{UID: -1}))
	return connect(NewServer(store, nil), ctx, end)
}

func connect(s *Server, ctx context.Context, end context.CancelFunc) *LocalConn {
	c := &LocalConn{ctx: ctx, end: end}
	s.Register(&c.methods)
	return c
}

// LocalConn is a Conn whose other end is in this process.
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
	answer, err := c.methods.Serve(c.ctx, method, b)
	switch later := answer.(type) {
	case control.Later:
		answer, err = later()
	case control.Begun:
		answer, err = later.Later()
	}
	if err != nil {
		return err
	}
	if b, err = json.Marshal(answer); err != nil {
		return err
	}
	return json.Unmarshal(b, result)
}

// List lists the states.
func List(ctx context.Context, c Conn) (answer Listed, err error) {
	err = c.Call(ctx, "state_list", request{}, &answer)
	return answer, err
}

// Show describes a state.
func Show(ctx context.Context, c Conn, name string) (answer Saved, err error) {
	err = c.Call(ctx, "state_show", request{Name: name}, &answer)
	return answer, err
}

// Delete deletes a state, and describes what it was unless it was damaged.
func Delete(ctx context.Context, c Conn, name string) (answer Saved, err error) {
	err = c.Call(ctx, "state_delete", request{Name: name}, &answer)
	return answer, err
}

// Import saves a storageState of Playwright under a name.
func Import(ctx context.Context, c Conn, name string, from io.Reader) (answer Saved, err error) {
	b := make([]byte, partSize)
	for {
		n, err := io.ReadFull(from, b)
		more := err == nil
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return answer, &ReadError{err}
		}
		err = c.Call(ctx, "state_import", request{Name: name, Data: b[:n], More: more}, &answer)
		if err != nil || !more {
			return answer, err
		}
	}
}

// ReadError is the error of Import if it cannot read the storageState.
type ReadError struct{ error }

// Unwrap returns the error of the read.
func (e *ReadError) Unwrap() error { return e.error }

// Export writes a state as Playwright reads it.
func Export(ctx context.Context, c Conn, name string, to io.Writer) error {
	for r, p := (request{Name: name}), (part{More: true}); p.More; r.Next = true {
		p = part{}
		if err := c.Call(ctx, "state_export", r, &p); err != nil {
			return err
		}
		if _, err := to.Write(p.Data); err != nil {
			return fmt.Errorf("cannot write the state: %w", err)
		}
	}
	return nil
}
