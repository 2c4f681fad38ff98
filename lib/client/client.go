// Package client finds the programs of this machine that have a control socket, by one rule for all their
// clients, and gives the errors of requests to them their exit codes.
package client

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"syscall"
	"time"

	"btools/lib/control"
	"btools/lib/exit"
)

// Patient is a Caller that logs after a while what it waits for.
type Patient struct {
	control.Caller
	Log *slog.Logger
}

// Call makes a request.
func (p Patient) Call(ctx context.Context, method string, params, result any) error {
	defer p.notice()()
	return explain(ctx, "the program", p.Caller.Call(ctx, method, params, result))
}

// notice logs that an answer is waited for, unless the function that it returns is called before.
func (p Patient) notice() func() bool {
	return time.AfterFunc(time.Second, func() { p.Log.Info("waiting for the answer") }).Stop
}

// explain gives the error of a connection its exit code, and says whose control socket is gone. An error of the
// context stays as it is.
func explain(ctx context.Context, who string, err error) error {
	switch {
	case err == nil, ctx.Err() != nil, errors.As(err, new(*exit.Error)): // which an answer is, and a hang
		return err
	case IsGone(err):
		return exit.Errorf(exit.Unavailable, "%s has no control socket: %w", who, err)
	}
	return &exit.Error{Code: exit.TryAgain, Err: err}
}

// IsGone reports whether an error is that nobody listens on a socket.
func IsGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}
