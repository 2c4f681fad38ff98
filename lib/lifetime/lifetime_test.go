//go:build unix

package lifetime

import (
	"context"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// A signal that comes while a Listener pauses has stopped its context or is on
// the channel of whoever listens next, and none is lost.
func TestPause(t *testing.T) {
	for range 200 {
		ctx, stop := context.WithCancelCause(context.Background())
		l := Listen(stop)
		sent := make(chan struct{})
		go func() {
			syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
			close(sent)
		}()
		next := Catch()
		l.Pause()
		if ctx.Err() == nil {
			<-sent
			select {
			case <-next:
			case <-time.After(10 * time.Second):
				t.Fatal("the signal is lost")
			}
			if ctx.Err() != nil {
				t.Fatal("a Listener that pauses has heard a signal")
			}
		}
		l.Resume()
		syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
		<-ctx.Done()
		signal.Stop(next)
	}
}
