package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"btools/lib/exit"
	"btools/lib/lifetime"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/state"
)

// A supervisor in a process of its own is told what to launch, and let go, on
// its standard input, and reports on its standard output; a line of JSON
// each. End of file on its input before it is let go means that its owner is
// gone: it stops. So a caller that is killed at any moment leaves nothing.

type order struct {
	Spec   *Spec `json:"spec,omitempty"`
	Detach bool  `json:"detach,omitempty"`
}

type report struct {
	Record *record.Record `json:"record,omitempty"`
	Error  string         `json:"error,omitempty"`
	Code   int            `json:"code,omitempty"`
	Hint   string         `json:"hint,omitempty"`
	Left   string         `json:"left,omitempty"` // what could not be cleaned up
}

// Handle is the owner's hold on a supervisor.
type Handle struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	orders   *json.Encoder
	ready    chan *record.Record
	detached bool
	ended    chan struct{} // closed when the supervisor is gone
	failed   error         // why the browser ended, valid once ended is closed
	left     error         // what could not be cleaned up, likewise
}

// Start starts a supervisor in the background, which waits to be told what to
// launch: it comes up while its owner still finds that out. Its messages go
// to stderr, by a pipe: nobody who reads the owner's own waits for the
// supervisor's end. Bind, if not nil, is the descriptor at whose end it stops.
func Start(store *state.Store, bind *os.File, stderr io.Writer) (*Handle, error) {
	exe, err := proc.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, "supervise")
	cmd.Args[0] = "blaunch"
	cmd.Dir = "/"
	cmd.SysProcAttr = proc.Detached()
	cmd.Stderr = stderr
	cmd.Env = append(os.Environ(), "BTOOLS_STATE="+store.Path())
	if bind != nil {
		cmd.ExtraFiles = []*os.File{bind}
		cmd.Args = append(cmd.Args, "--bind-fd", "3")
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the supervisor: %w", err)
	}
	h := &Handle{cmd: cmd, in: in, orders: json.NewEncoder(in), ready: make(chan *record.Record, 1),
		ended: make(chan struct{})}
	go func() {
		defer close(h.ended)
		reports := json.NewDecoder(out)
		for {
			var r report
			if err := reports.Decode(&r); err != nil {
				break
			}
			if r.Record != nil {
				h.ready <- r.Record
			}
			if r.Error != "" {
				h.failed = &exit.Error{Code: r.Code, Err: errors.New(r.Error), Hint: r.Hint}
			}
			if r.Left != "" {
				h.left = errors.New(r.Left)
			}
		}
		if err := cmd.Wait(); err != nil && h.failed == nil {
			h.failed = fmt.Errorf("the supervisor of the browser ended: %w", err)
			// It can't have tidied up: do it in its place.
			h.left = store.Update(context.Background(), func(*state.File) error { return nil })
		}
	}()
	return h, nil
}

// Launch returns once the browser's endpoint answers, or with the context's
// cause. After an error there is still Stop to call.
func (h *Handle) Launch(ctx context.Context, spec *Spec) (*record.Record, error) {
	if err := h.orders.Encode(order{Spec: spec}); err != nil {
		h.in.Close()
		<-h.ended
		return nil, errors.Join(h.failed, fmt.Errorf("cannot talk to the supervisor: %w", err))
	}
	select {
	case rec := <-h.ready:
		return rec, nil
	case <-h.ended:
		select {
		case rec := <-h.ready:
			return rec, nil
		default:
		}
		if h.failed == nil {
			h.failed = errors.New("the browser's supervisor ended and gave no reason")
		}
		return nil, h.failed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Detach lets the browser live on when this process ends.
func (h *Handle) Detach() error {
	if err := h.orders.Encode(order{Detach: true}); err != nil {
		<-h.ended
		return errors.Join(errors.New("the browser ended"), h.failed)
	}
	h.detached = true
	return nil
}

// Stop has the supervisor stop the browser, and returns when both are gone;
// what is left to wait of a graceful stop is cut short when now is closed.
// Failed tells how the browser ended if it was not by being told to, left what
// could not be cleaned up. A browser that was let go is not stopped.
func (h *Handle) Stop(now <-chan struct{}) (failed, left error) {
	if h.detached {
		return nil, nil
	}
	h.in.Close()
	select {
	case <-h.ended:
	case <-now:
		h.cmd.Process.Signal(syscall.SIGTERM) // its second word to stop
		<-h.ended
	}
	return h.failed, h.left
}

// Why tells how the browser ended, once Ended is closed.
func (h *Handle) Why() error {
	if h.failed == nil {
		return errors.New("it was stopped")
	}
	return h.failed
}

// Ended is closed when browser and supervisor are gone.
func (h *Handle) Ended() <-chan struct{} { return h.ended }

// Supervise is the other side of Start: the supervisor's process. Owner is
// the one of the descriptor that Start was given. It returns the exit code.
func Supervise(stdin, stdout *os.File, owner lifetime.Owner, store *state.Store,
	logger func(level, format string) *slog.Logger) int {
	// Its owner may be gone, and the pipes with it, while it still tidies up.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	orders := json.NewDecoder(bufio.NewReader(stdin))
	var o order
	if err := orders.Decode(&o); err != nil || o.Spec == nil {
		return 0 // its owner was gone before it said what for
	}
	ctx, stop, now := lifetime.Context()
	defer stop(nil)
	out := json.NewEncoder(stdout)
	go func() {
		var o order
		for orders.Decode(&o) == nil {
			if o.Detach {
				return
			}
		}
		stop(lifetime.OwnerGone)
	}()
	owner.PID = o.Spec.Owner.PID
	owner.Watch(ctx, stop)
	s := &Supervisor{Spec: o.Spec, Store: store, Log: logger(o.Spec.LogLevel, o.Spec.LogFormat), Now: now,
		Ready: func(r *record.Record) error {
			if err := out.Encode(report{Record: r}); err != nil {
				return lifetime.OwnerGone
			}
			return nil
		}}
	failed, left := s.Run(ctx)
	var r report
	var lost *notSavedError
	var died *diedError
	if failed != nil && (ctx.Err() == nil || errors.As(failed, &lost) || errors.As(failed, &died)) {
		// Else its owner told it to stop, and knows.
		r.Error, r.Code = failed.Error(), exit.Failed
		var e *exit.Error
		if errors.As(failed, &e) {
			r.Code, r.Hint = e.Code, e.Hint
		}
	}
	if left != nil {
		r.Left = left.Error()
	}
	if r != (report{}) {
		out.Encode(r)
	}
	return 0
}

// StopInstance ends the instance whose entry it is: it tells the supervisor,
// waits, and does the supervisor's work if that does not get it done.
func StopInstance(store *state.Store, e state.Instance, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout+killBound+time.Second)
	defer cancel()
	if !e.Supervisor.Local() {
		return fmt.Errorf("cannot stop %s: its supervisor runs in another container (pid %d there)", e.ID,
			e.Supervisor.PID)
	}
	if e.Supervisor.Signal(syscall.SIGTERM) == nil {
		if err := e.Supervisor.Wait(ctx); err != nil {
			e.Supervisor.Signal(syscall.SIGKILL)
			e.Supervisor.Wait(context.Background())
		}
	}
	// An update sweeps what it may have left.
	return store.Update(context.WithoutCancel(ctx), func(*state.File) error { return nil })
}
