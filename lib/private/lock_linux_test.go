package private

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Those that wait for a lock get it in the order in which they came, without those
// that have given up.
func TestLockIsFair(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := LockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := held.Stat()
	if err != nil {
		t.Fatal(err)
	}
	waiting := func() (n int) {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			t.Skip(err)
		}
		file := fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)
		for line := range strings.Lines(string(locks)) {
			if strings.Contains(line, "->") && strings.Contains(line, file) {
				n++
			}
		}
		return n
	}
	const n, gone = 12, 5
	enough := errors.New("enough")
	order, errs := make(chan int, n), make(chan error, n)
	for i := range n {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			f, err := LockFile(ctx, path)
			if err == nil {
				order <- i
				f.Close()
			}
			errs <- err
		}()
		for waiting() != i+1 {
			if t.Context().Err() != nil {
				t.FailNow()
			}
			time.Sleep(time.Millisecond)
		}
		if i == gone {
			cancel(enough)
			if err := <-errs; !errors.Is(err, enough) {
				t.Errorf("one that gave up: %v, want %v", err, enough)
			}
		}
		defer cancel(nil)
	}
	held.Close()
	var got, want []int
	for i := range n {
		if i == gone {
			continue
		}
		if err := <-errs; err != nil {
			t.Error(err)
		}
		got, want = append(got, <-order), append(want, i)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the lock was given in the order %v, want %v", got, want)
	}
}
