//go:build unix

package port

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"btools/lib/private"
	"btools/lib/record"
	"btools/lib/state"
)

func newStore(t *testing.T) *state.Store {
	path := t.TempDir() + "/state/state.json"
	s := state.Open(func(string) string { return path })
	if err := s.Update(t.Context(), func(*state.File) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return s
}

// Ports are looked for while another program holds the state's lock.
func TestTakeLooksWithoutTheLock(t *testing.T) {
	s := newStore(t)
	held, err := private.LockFile(t.Context(), filepath.Join(filepath.Dir(s.Path()), "state.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := l.Addr().(*net.TCPAddr).Port
	if _, err := Take(t.Context(), s, Request{N: 1, Low: p, Hi: p}); !errors.Is(err, ErrExhausted) {
		t.Errorf("the only port is in use: %v, want %v", err, ErrExhausted)
	}
}

// Each of many takers at once gets other ports, even of a range that all search in
// the same order.
func TestTakeTogether(t *testing.T) {
	s := newStore(t)
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := map[int]bool{}
	for i := range 8 {
		wg.Go(func() {
			r := Request{N: 3, Reserve: time.Minute}
			if i%2 == 0 {
				r.Low, r.Hi = 20000, 29999
			}
			got, err := Take(context.Background(), s, r)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range got {
				if seen[p] {
					t.Errorf("port %d was handed out twice", p)
				}
				seen[p] = true
			}
		})
	}
	wg.Wait()
	if len(seen) != 24 {
		t.Errorf("%d ports, want 24", len(seen))
	}
}

// A port that was reserved while the clock was wrong is free again.
func TestTakeFarReservation(t *testing.T) {
	s := newStore(t)
	got, err := Take(t.Context(), s, Request{N: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := Request{N: 1, Low: got[0], Hi: got[0], Reserve: state.MaxReserve}
	for _, c := range []struct {
		until time.Duration
		want  error
	}{{state.MaxReserve + time.Minute, nil}, {state.MaxReserve, ErrExhausted}, {time.Minute, ErrExhausted}} {
		if err := s.Update(t.Context(), func(f *state.File) error {
			f.Ports = []state.Port{{Host: "127.0.0.1", Port: r.Low, Until: record.Time{Time: time.Now().Add(c.until)}}}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := Take(t.Context(), s, r); !errors.Is(err, c.want) {
			t.Errorf("a port that is reserved for %v: %v, want %v", c.until, err, c.want)
		}
	}
}

// A process that may not open as many files is told so.
func TestTakeManyFiles(t *testing.T) {
	s := newStore(t)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := was
	few.Cur = 64
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)
	if _, err := Take(t.Context(), s, Request{N: 100}); !errors.Is(err, ErrDescriptors) {
		t.Errorf("100 ports of 64 files: %v, want %v", err, ErrDescriptors)
	}
	if got, err := Take(t.Context(), s, Request{N: 5}); err != nil || len(got) != 5 {
		t.Errorf("5 ports after that: %v, %v", got, err)
	}
}
