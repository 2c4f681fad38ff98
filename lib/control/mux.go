package control

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Mux answers each method of a program by a function of its own.
type Mux struct {
	Program string // as errors name it

	names    []string
	handlers map[string]Handler
}

// Handle registers a function for a method, in the place of an earlier one; the parameters are decoded into P.
func Handle[P, A any](m *Mux, method Method[P, A], f func(context.Context, P) (any, error)) {
	if m.handlers == nil {
		m.handlers = map[string]Handler{}
	}
	if m.handlers[string(method)] == nil {
		m.names = append(m.names, string(method))
	}
	m.handlers[string(method)] = func(ctx context.Context, _ string, params json.RawMessage) (any, error) {
		var p P
		if len(params) > 0 {
			if err := json.Unmarshal(params, &p); err != nil {
				return nil, Errorf(BadRequest, "invalid parameters: %v", err)
			}
		}
		return f(ctx, p)
	}
}

// HandleLater registers a function as Handle does. The next requests of a connection are read while it runs.
func HandleLater[P, A, R any](m *Mux, method Method[P, A], f func(context.Context, P) (R, error)) {
	Handle(m, method, func(ctx context.Context, p P) (any, error) {
		return Later(func() (any, error) { return f(ctx, p) }), nil
	})
}

// Methods returns the names of the methods.
func (m *Mux) Methods() []string { return m.names }

// Serve is the Handler of all the methods. The error of an unknown one has a hint, as the program that asks is of
// another version.
func (m *Mux) Serve(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if f := m.handlers[method]; f != nil {
		return f(ctx, method, params)
	}
	e := Errorf(UnknownMethod, "%s has no method %q: it has %s", m.Program, method, strings.Join(m.names, ", "))
	e.Hint = fmt.Sprintf("restart the older version of btools: %s (pid %d) or the program that asks", m.Program,
		os.Getpid())
	if p := PeerOf(ctx); p != nil && p.PID != 0 {
		e.Hint += fmt.Sprintf(" (pid %d)", p.PID)
	}
	return nil, e
}
