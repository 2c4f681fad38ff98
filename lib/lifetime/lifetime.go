// Package lifetime tells a program when to end: a signal came, or the owner that
// it is bound to is gone.
package lifetime

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"btools/lib/proc"
)

// Reasons of an end that was asked for.
var (
	Stopped   = errors.New("it was told to stop")
	OwnerGone = errors.New("its owner is gone")
)

// Interrupted is the cause of an end by a signal.
type Interrupted struct{ Signal syscall.Signal }

func (i *Interrupted) Error() string { return Stopped.Error() }

// Is makes it a Stopped.
func (i *Interrupted) Is(target error) bool { return target == Stopped }

// Burst is how long the signals after the first one count as the same: a
// parent's death is signalled once for each of its threads that is the parent
// for a moment while they die, one after the other.
const Burst = 200 * time.Millisecond

// Signals has the first INT, TERM or HUP stop with the cause Interrupted, and
// closes the channel at the second. A HUP that nohup has ignored stays so.
func Signals(stop context.CancelCauseFunc) <-chan struct{} {
	now := make(chan struct{})
	sig := make(chan os.Signal, 4)
	signal.Notify(sig, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(sig, syscall.SIGHUP)
	}
	go func() {
		s := <-sig
		stop(&Interrupted{s.(syscall.Signal)})
		first := time.Now()
		for range sig {
			if time.Since(first) > Burst {
				break
			}
		}
		close(now)
		for range sig {
		}
	}()
	return now
}

// After calls f once the time has passed, the machine's sleep included, and
// returns what calls it off.
func After(d time.Duration, f func()) (stop func()) {
	const look = 10 * time.Second // timers stand still while the machine sleeps
	end := proc.Uptime() + d
	off := make(chan struct{})
	go func() {
		for {
			left := end - proc.Uptime()
			if left <= 0 {
				f()
				return
			}
			select {
			case <-off:
				return
			case <-time.After(min(left, look)):
			}
		}
	}()
	return sync.OnceFunc(func() { close(off) })
}

// Owner is somebody whose end is ours. The zero value is nobody.
type Owner struct {
	PID *proc.Identity `json:"pid,omitempty"`
	FD  *os.File       `json:"-"` // end of file there is the owner's end
}

// Watch stops with the cause OwnerGone when the owner is gone.
func (o Owner) Watch(ctx context.Context, stop context.CancelCauseFunc) {
	if o.PID != nil {
		go func() {
			if o.PID.Wait(ctx) == nil {
				stop(OwnerGone)
			}
		}()
	}
	if o.FD != nil {
		go func() {
			io.Copy(io.Discard, o.FD)
			stop(OwnerGone)
		}()
	}
}
