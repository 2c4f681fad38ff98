package cli

import (
	"errors"
	"io/fs"
	"syscall"

	"btools/lib/private"
	"btools/lib/record"
	"btools/lib/state"
)

// Schema lists the members that records can have, for --field.
func Schema(also map[string]any) map[string]any {
	s := map[string]any{"v": nil, "port": nil, "browser": record.Browser{}, "instance": record.Instance{},
		"proxy": record.Proxy{}, "lease": record.Lease{}}
	for k, v := range also {
		s[k] = v
	}
	return s
}

// State opens the shared state file of this context; what it mends is told
// as a warning.
func (c *Context) State() *state.Store {
	s := state.Open(c.Getenv)
	s.Warn = func(msg string) { c.Log.Warn(msg) }
	return s
}

// StateError gives an error of the state file its exit code and hint.
func StateError(err error) error {
	switch {
	case errors.Is(err, state.ErrNewer):
		return &Error{Code: Config, Err: err}
	case errors.Is(err, private.ErrOwner), errors.Is(err, private.ErrShared), errors.Is(err, private.ErrKind):
		return &Error{Code: Config, Err: err,
			Hint: "set BTOOLS_STATE to a file in a directory of your own, which nobody else can write to"}
	case errors.Is(err, state.ErrPath):
		return &Error{Code: Usage, Err: err, Hint: "set BTOOLS_STATE or TMPDIR to another path"}
	case errors.Is(err, private.ErrLocked):
		return &Error{Code: TryAgain, Err: err, Hint: "a program that hangs or is stopped holds it; fuser tells which"}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EROFS):
		return &Error{Code: Failed, Err: err,
			Hint: "set TMPDIR to a directory that can be written, or BTOOLS_STATE to a file in one"}
	}
	return err
}
