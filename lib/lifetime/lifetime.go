// Package lifetime ends a context when a signal arrives or the program's owner has
// exited.
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

// Catch returns the INT, TERM and HUP that come from now on. A HUP that nohup
// has ignored stays so.
func Catch() chan os.Signal {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	return signals
}

// Signals has the first INT, TERM or HUP stop with the cause Interrupted, and
// closes the channel at the second.
func Signals(stop context.CancelCauseFunc) <-chan struct{} { return Listen(stop).Now() }

// Context returns a context that the first INT, TERM or HUP ends; now is closed at the second. The caller must call
// stop.
func Context() (ctx context.Context, stop context.CancelCauseFunc, now <-chan struct{}) {
	ctx, stop = context.WithCancelCause(context.Background())
	return ctx, stop, Signals(stop)
}

// Listener does what Signals does, and can leave the signals to others for a while.
type Listener struct {
	stop    context.CancelCauseFunc
	now     chan struct{}
	signals chan os.Signal
	told    chan struct{} // closed when all that came has been told
	first   time.Time
	again   bool // a second has come
}

// Listen returns a Listener that listens.
func Listen(stop context.CancelCauseFunc) *Listener {
	l := &Listener{stop: stop, now: make(chan struct{})}
	l.Resume()
	return l
}

// Now is closed at the second signal.
func (l *Listener) Now() <-chan struct{} { return l.now }

// Resume listens again after Pause.
func (l *Listener) Resume() {
	l.signals, l.told = Catch(), make(chan struct{})
	go func() {
		defer close(l.told)
		for s := range l.signals {
			switch {
			case l.first.IsZero():
				l.first = time.Now()
				l.stop(&Interrupted{s.(syscall.Signal)})
			case !l.again && time.Since(l.first) > Burst:
				l.again = true
				close(l.now)
			}
		}
	}()
}

// Pause leaves the signals from now on to those who have called Catch. What
// came before has stopped its context when Pause returns.
func (l *Listener) Pause() {
	signal.Stop(l.signals)
	close(l.signals)
	<-l.told
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
