// Package exit defines the exit codes and an error that carries one. Package cli
// prints it.
package exit

import "fmt"

// Exit codes, the table of btools(7).
const (
	Failed      = 1  // it failed
	Usage       = 64 // wrong usage
	Data        = 65 // bad input data
	Unavailable = 69 // no such browser, no healthy instance
	TryAgain    = 75 // timed out, port taken, profile in use
	Config      = 78 // bad configuration
	CannotRun   = 126
	NotFound    = 127
	Signalled   = 128 // plus the signal's number
)

// Error is an error with its exit code and a hint on what to do.
type Error struct {
	Code int
	Err  error
	Hint string
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error without a hint.
func Errorf(code int, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// Status is the error that ends a program with a code and prints nothing.
type Status int

func (s Status) Error() string { return fmt.Sprintf("exit %d", int(s)) }
