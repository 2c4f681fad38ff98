package proc

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

// A service waits for the owner of each lease: that may be thousands, and Go
// ends a program that has 10000 threads.
func TestManyWaits(t *testing.T) {
	threads := func() int {
		dir, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(dir)
	}
	descriptors := func() int {
		dir, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(dir)
	}
	owner := exec.Command("sleep", "1000")
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := Of(owner.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	const waits = 200
	threadsBefore, before := threads(), descriptors()
	ended, cancelled := make(chan error, waits), make(chan error, waits)
	ctx, cancel := context.WithCancel(t.Context())
	for range waits / 2 {
		go func() { ended <- id.Wait(t.Context()) }()
		go func() { cancelled <- id.Wait(ctx) }()
	}
	for end := time.Now().Add(time.Minute); descriptors() < before+waits; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors, %d before", descriptors(), before)
		}
	}
	if n := threads(); n > threadsBefore+waits/4 {
		t.Errorf("%d waits have %d threads, %d before", waits, n, threadsBefore)
	}
	// One is the poller's. Those that begin have another for a moment.
	for end := time.Now().Add(time.Minute); descriptors() > before+waits+4; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d waits have %d descriptors, %d before", waits, descriptors(), before)
		}
	}
	cancel()
	for range waits / 2 {
		if err := <-cancelled; err != context.Canceled {
			t.Error(err)
		}
	}
	owner.Process.Kill()
	owner.Wait()
	for range waits / 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if id.Wait(t.Context()) != nil || id.Alive() {
		t.Error("it still lives")
	}
}
