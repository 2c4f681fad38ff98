package source

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"btools/lib/control"
)

// program is a control socket that answers each request with the number of requests so far, or with an error.
type program struct {
	mu    sync.Mutex
	asked int
	err   error
	stop  func()
}

func startProgram(t *testing.T, socket string) *program {
	t.Helper()
	l, err := control.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		control.Serve(ctx, l, p.answer)
	}()
	p.stop = sync.OnceFunc(func() {
		cancel()
		l.Close()
		<-served
	})
	t.Cleanup(p.stop)
	return p
}

func (p *program) answer(context.Context, string, json.RawMessage) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return p.asked, p.err
}

func (p *program) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// A request is repeated if the service has ended meanwhile, and not if it has answered with an error. Connections
// serve one request after the other.
func TestServiceThatEnds(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	p, dials, lost := startProgram(t, socket), 0, 0
	s := &service{lost: func() { lost++ }}
	s.init(func(ctx context.Context) (*control.Client, error) {
		dials++
		return control.Dial(ctx, socket)
	})
	asks := func(want int) {
		t.Helper()
		var n int
		if err := s.Call(t.Context(), "x", nil, &n); err != nil || n != want {
			t.Errorf("answer %d, %v; want %d", n, err, want)
		}
	}
	asks(1)
	asks(2)
	bad := control.Errorf(control.BadRequest, "no")
	p.fail(bad)
	if err := s.Call(t.Context(), "x", nil, nil); !errors.As(err, new(*control.Error)) {
		t.Errorf("a request with an error: %v", err)
	}
	if dials != 1 || lost != 0 {
		t.Errorf("%d connections for 3 requests, %d times lost", dials, lost)
	}
	p.stop()
	startProgram(t, socket)
	asks(1)
	if dials != 2 || lost != 1 {
		t.Errorf("%d connections after the end of the service, %d times lost", dials, lost)
	}
	s.close()
	if err := s.Call(t.Context(), "x", nil, nil); err != errStopping {
		t.Errorf("a request after close: %v", err)
	}
}

// A service that stops is asked until another one has taken its place, as often as that takes.
func TestServiceThatStops(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	p, dials := startProgram(t, socket), 0
	p.fail(control.Errorf(control.Stopping, "it stops"))
	s := &service{}
	s.init(func(ctx context.Context) (*control.Client, error) {
		if dials++; dials == 4 {
			p.fail(nil)
		}
		return control.Dial(ctx, socket)
	})
	defer s.close()
	if err := s.Call(t.Context(), "x", nil, nil); err != nil || dials != 4 {
		t.Errorf("%v after %d connections", err, dials)
	}
}
