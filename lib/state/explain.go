package state

import (
	"errors"
	"io/fs"
	"syscall"

	"btools/lib/exit"
	"btools/lib/private"
)

// Explain gives an error of the state file its exit code and hint.
func Explain(err error) error {
	switch {
	case errors.Is(err, ErrNewer):
		return &exit.Error{Code: exit.Config, Err: err}
	case errors.Is(err, private.ErrOwner), errors.Is(err, private.ErrShared), errors.Is(err, private.ErrKind):
		return &exit.Error{Code: exit.Config, Err: err,
			Hint: "set BTOOLS_STATE to a file in a directory of your own, which nobody else can write to"}
	case errors.Is(err, ErrPath):
		return &exit.Error{Code: exit.Usage, Err: err, Hint: "set BTOOLS_STATE or TMPDIR to another path"}
	case errors.Is(err, private.ErrLocked):
		return &exit.Error{Code: exit.TryAgain, Err: err,
			Hint: "a program that hangs or is stopped holds it; fuser tells which"}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EROFS):
		return &exit.Error{Code: exit.Failed, Err: err,
			Hint: "set TMPDIR to a directory that can be written, or BTOOLS_STATE to a file in one"}
	}
	return err
}
