package virtual

import (
	"syscall"
	"testing"
	"time"

	"btools/lib/virtual/chrometest"
)

// A session that is being created when the browser is closed fails.
func TestCloseWhileASessionBegins(t *testing.T) {
	t.Parallel()
	b, process := openProcess(t, chrometest.StartShell)
	for range maxStarting {
		b.startSlots <- struct{}{}
	}
	failed := make(chan error, 1)
	go func() {
		_, err := b.NewSession(t.Context(), Options{})
		failed <- err
	}()
	for begins := false; !begins; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		begins = len(b.sessions) == 1
		b.mu.Unlock()
	}
	process.Signal(syscall.SIGSTOP)
	defer process.Signal(syscall.SIGCONT)
	<-b.startSlots
	b.Close()
	if err := <-failed; err == nil {
		t.Error("a closed browser has a new session")
	}
}
