// Package remote is states over the control protocol. The program that runs the
// sessions resolves their names in its own directory, in which each user at the other
// end of its control socket has their own. Of no client does it open a path.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/logins"
	"btools/lib/record"
)

// partSize is the number of bytes in a part of a state: as base64 it fits into a line.
const partSize = control.MaxLine / 2

// maxHeld is the number of bytes that all imports and exports may have in memory.
const maxHeld = 1 << 30

// saved returns the answer about a state.
func saved(i logins.Info, lost []string) api.States {
	return api.States{States: []*record.Record{recordOf(i)}, Lost: lost}
}

func recordOf(i logins.Info) *record.Record {
	r := record.New()
	r.MustSet("state", i)
	return r
}

// Server answers the requests for states of a program that runs sessions.
type Server struct {
	store *logins.Store
	err   error // why there is none
	bound int   // of held

	mu     sync.Mutex
	moving map[*control.Peer]*transfer // of each connection at most one
	held   int                         // the bytes of these, and of imports that are being saved
}

// transfer is an import or export that has begun. It ends with its connection.
type transfer struct {
	name   string
	export bool
	data   []byte // what has come of it, or what is left of it
	forget func() bool
}

// NewServer returns the server of the states of this program's user; err says why
// there is no place for any.
func NewServer(store *logins.Store, err error) *Server {
	return &Server{store: store, err: err, bound: maxHeld, moving: map[*control.Peer]*transfer{}}
}

// Own returns the states of this program's user; nil: there is no place for any.
func (s *Server) Own() *logins.Store {
	if s.err != nil {
		return nil
	}
	return s.store
}

// of returns the states of the user who makes a request.
func (s *Server) of(ctx context.Context) (*logins.Store, error) {
	if s.err != nil {
		return nil, s.err
	}
	p := control.PeerOf(ctx)
	if p == nil {
		return nil, errors.New("it is not known whose states are meant")
	}
	if p.Token != nil { // its leases start with states of the service
		return s.store, nil
	}
	return s.store.For(p.UID), nil
}

// Save answers state_save. Read returns the state, and what could not be read.
func (s *Server) Save(ctx context.Context, r api.StateRequest, read func() (*logins.State, []string, error),
) (any, error) {
	store, err := s.Named(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	exists := control.Errorf(control.StateExists, "there is a state %q already", r.Name)
	return control.Later(func() (any, error) {
		if r.Create && store.Has(r.Name) { // to read the state may take minutes
			return nil, exists
		}
		state, lost, err := read()
		if err != nil {
			return nil, err
		}
		if r.Create {
			err = store.Create(ctx, r.Name, state)
		} else {
			err = store.Save(ctx, r.Name, state)
		}
		if r.Create && errors.Is(err, fs.ErrExist) {
			return nil, exists
		}
		return saved(state.Describe(r.Name), lost), err
	}), nil
}

// Named returns the states of the user who asks for one of this name.
func (s *Server) Named(ctx context.Context, name string) (*logins.Store, error) {
	if err := logins.CheckName(name); err != nil {
		return nil, err
	}
	return s.of(ctx)
}

// Register has the server answer the methods for states. A program that runs sessions answers
// state_save itself, by Save.
func (s *Server) Register(m *control.Mux) {
	control.Handle(m, api.StateList, func(ctx context.Context, _ api.StateRequest) (any, error) {
		store, err := s.of(ctx)
		if err != nil {
			return nil, err
		}
		return control.Later(func() (any, error) { return list(ctx, store) }), nil
	})
	one := func(method control.Method[api.StateRequest, api.States],
		f func(context.Context, *logins.Store, api.StateRequest) (any, error)) {
		control.Handle(m, method, func(ctx context.Context, r api.StateRequest) (any, error) {
			store, err := s.Named(ctx, r.Name)
			if err != nil {
				return nil, err
			}
			return f(ctx, store, r)
		})
	}
	one(api.StateGet, func(ctx context.Context, store *logins.Store, r api.StateRequest) (any, error) {
		if r.Next {
			return s.next(ctx, r.Name)
		}
		return control.Later(func() (any, error) {
			if r.Export {
				return s.export(ctx, store, r.Name)
			}
			return describe(store, r.Name)
		}), nil
	})
	one(api.StatePut, s.receive)
	one(api.StateDelete, func(ctx context.Context, store *logins.Store, r api.StateRequest) (any, error) {
		return control.Later(func() (any, error) {
			was, _ := describe(store, r.Name) // a damaged one can be deleted
			return was, store.Delete(ctx, r.Name)
		}), nil
	})
}

func list(ctx context.Context, store *logins.Store) (answer api.States, err error) {
	all, bad, err := store.List(ctx)
	for _, i := range all {
		answer.States = append(answer.States, recordOf(i))
	}
	for _, err := range bad {
		answer.Bad = append(answer.Bad, err.Error())
	}
	return answer, err
}

func describe(store *logins.Store, name string) (api.States, error) {
	i, err := store.Describe(name)
	if err != nil {
		return api.States{}, err
	}
	return saved(i, nil), nil
}

// begin begins a transfer of a connection, in the place of what it has begun before.
// The lock is held.
func (s *Server) begin(ctx context.Context, name string, export bool) *transfer {
	p := control.PeerOf(ctx)
	if old := s.moving[p]; old != nil {
		s.end(p, old)
	}
	t := &transfer{name: name, export: export}
	t.forget = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.moving[p] == t {
			s.end(p, t)
		}
	})
	s.moving[p] = t
	return t
}

// end ends a transfer; the lock is held.
func (s *Server) end(p *control.Peer, t *transfer) {
	t.forget()
	delete(s.moving, p)
	s.held -= len(t.data)
}

// hold adds bytes to a transfer, or ends it if there are too many; the lock is held.
func (s *Server) hold(p *control.Peer, t *transfer, b []byte) error {
	var err error
	switch {
	case len(t.data)+len(b) > s.bound:
		err = exit.Errorf(exit.Data, "the state %q has more than %d MiB", t.name, s.bound>>20)
	case s.held+len(b) > s.bound:
		err = exit.Errorf(exit.TryAgain, "other states are being imported or exported: with %q they would have more "+
			"than %d MiB", t.name, s.bound>>20)
	}
	if err != nil {
		s.end(p, t)
		return err
	}
	s.held += len(b)
	t.data = append(t.data, b...)
	return nil
}

// receive takes the next part of an import. After the last one the state is parsed and
// saved as a whole.
func (s *Server) receive(ctx context.Context, store *logins.Store, r api.StateRequest) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := control.PeerOf(ctx)
	t := s.moving[p]
	if t == nil || t.export || t.name != r.Name {
		t = s.begin(ctx, r.Name, false)
	}
	if err := s.hold(p, t, r.Data); err != nil || r.More {
		return api.States{}, err
	}
	t.forget()
	delete(s.moving, p) // it is held until it is saved
	free := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held -= len(t.data)
	}
	return control.Begun{Cancel: free, Later: func() (any, error) {
		defer free()
		return save(ctx, store, r.Name, t.data)
	}}, nil
}

// save saves what was imported.
func save(ctx context.Context, store *logins.Store, name string, b []byte) (any, error) {
	state, dropped, err := logins.Parse(b)
	if err != nil {
		return nil, exit.Errorf(exit.Data, "cannot import the state %q: %v", name, err)
	}
	if ctx.Err() != nil { // the client has gone
		return nil, fmt.Errorf("cannot import the state %q: %w", name, context.Cause(ctx))
	}
	if err := store.Save(ctx, name, state); err != nil {
		return nil, err
	}
	answer, err := describe(store, name)
	answer.Lost = dropped
	return answer, err
}

// export begins an export and returns its first part.
func (s *Server) export(ctx context.Context, store *logins.Store, name string) (any, error) {
	state, err := store.Load(name)
	if err != nil {
		return nil, err
	}
	b := state.Export()
	s.mu.Lock()
	err = s.hold(control.PeerOf(ctx), s.begin(ctx, name, true), b)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.next(ctx, name)
}

// next returns the next part of an export.
func (s *Server) next(ctx context.Context, name string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := control.PeerOf(ctx)
	t := s.moving[p]
	if t == nil || !t.export || t.name != name {
		return nil, control.Errorf(control.BadRequest, "no export of %q has begun on this connection", name)
	}
	n := min(partSize, len(t.data))
	next := api.States{Data: t.data[:n], More: len(t.data) > n}
	t.data = t.data[n:]
	s.held -= n
	if !next.More {
		s.end(p, t)
	}
	return next, nil
}
