package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/state"
)

// socketVariable names the control socket for all programs that --socket does not tell.
const socketVariable = "BTOOLS_POOL_SOCKET"

// PoolSocket returns the path of the control socket that a flag or the environment names; "":
// neither does.
func PoolSocket(flag string, getenv func(string) string) string {
	return cmp.Or(flag, getenv(socketVariable))
}

// systemSocket is where the system's bpool.socket listens. Tests set it.
var systemSocket = "/run/bpool.sock"

// Pool is the bpool service that a program uses, and a Caller that makes each request on a connection of its
// own.
type Pool struct {
	Store  *state.Store
	Socket string // "": that of the only service that is running
	Log    *slog.Logger
}

// Call makes a request.
func (p Pool) Call(ctx context.Context, method string, params, result any) error {
	defer Patient{Log: p.Log}.notice()()
	c, err := p.Dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return explain(ctx, "the service", c.Call(ctx, method, params, result))
}

// Dial connects to the service that listens on the socket, or to the only
// one that is running. A service that belongs to another program is found only
// by its socket.
func (p Pool) Dial(ctx context.Context) (*control.Client, error) {
	store, path := p.Store, p.Socket
	missing := &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("no bpool service listens on %s", path),
		Hint: "start one with bpool serve, or systemctl --user start bpool.socket"}
	if path == systemSocket {
		missing.Hint = "root starts the system's with systemctl start bpool.socket; its users are in the group " +
			systemGroup
	}
	if path == "" {
		f, err := store.Read()
		if err != nil {
			return nil, state.Explain(err)
		}
		shared, private := RunningPools(ctx, f)
		switch len(shared) {
		case 0:
			// systemd may listen for a service that it has not started yet.
			path = store.SocketPath("bpool")
			missing.Err = fmt.Errorf("no bpool service runs (looked in %s)", store.Path())
			if _, err := os.Stat(systemSocket); err == nil {
				missing.Hint = fmt.Sprintf("the system's listens on %s: use --socket %[1]s, or set %s=%[1]s",
					systemSocket, socketVariable)
			} else if len(private) > 0 {
				missing.Hint = fmt.Sprintf("the one with pid %d belongs to the program that runs it; "+
					"use --socket %s to connect to it",
					private[0].Process.PID, private[0].Control)
			}
		case 1:
			path = shared[0].Control
			missing.Err = fmt.Errorf("the bpool service with pid %d does not listen on %s", shared[0].Process.PID, path)
		default:
			return nil, &exit.Error{Code: exit.Usage,
				Err: fmt.Errorf("several bpool services run, name one by --socket: %s and %s",
					shared[0].Control, shared[1].Control)}
		}
	}
	c, err := control.Dial(ctx, path)
	if IsGone(err) {
		return nil, missing
	}
	if errors.Is(err, fs.ErrPermission) && path == systemSocket {
		err = &exit.Error{Code: exit.Failed, Err: err, Hint: "its users are in the group " + systemGroup +
			", as root: usermod -aG " + systemGroup + " NAME; it counts from the next login on"}
	}
	return c, err
}

// systemGroup is the group of the system's socket, which btools.sysusers makes.
const systemGroup = "btools"

// StartWait is how long a lease waits for a service that starts just now, such as in a
// script after bpool serve &, or after an update.
const StartWait = 2 * time.Second

// Await connects as Dial does, and waits at most this time for a service that is starting.
func (p Pool) Await(ctx context.Context, most time.Duration) (*control.Client, error) {
	for end := time.Now().Add(most); ; {
		c, err := p.Dial(ctx)
		var missing *exit.Error
		if !errors.As(err, &missing) || missing.Code != exit.Unavailable || !time.Now().Before(end) {
			return c, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// RunningPools returns the services in the state file that are running and grant leases: shared ones,
// and private ones that belong to a program.
func RunningPools(ctx context.Context, f *state.File) (shared, private []state.PoolService) {
	for _, p := range f.Pools {
		switch {
		case p.Former != "" || !isRunning(ctx, p):
		case p.Private:
			private = append(private, p)
		case !slices.ContainsFunc(shared, func(other state.PoolService) bool { return other.Control == p.Control }):
			shared = append(shared, p)
		}
	}
	return shared, private
}

// isRunning reports whether a service in the state file is running. If it
// belongs to another PID namespace, only its socket can tell.
func isRunning(ctx context.Context, p state.PoolService) bool {
	if p.Process.Local() {
		return p.Process.Alive()
	}
	c, err := control.Dial(ctx, p.Control)
	if err != nil {
		return false
	}
	c.Close()
	return true
}
