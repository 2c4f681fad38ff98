package coordinator

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"btools/lib/launcher"
	"btools/lib/wait"
)

// service is a program of this project that runs for us: it is started when
// it is needed, and again when it has ended.
type service struct {
	ctx  context.Context
	stop context.CancelFunc
	run  func(context.Context) (*launcher.Browser, error)

	mu       sync.Mutex
	held     *launcher.Browser // nil: it has not been started
	err      error             // of the last start
	starting chan struct{}     // closed when the start is over; nil: none is under way
}

func newService() *service {
	v := &service{}
	v.ctx, v.stop = context.WithCancel(context.Background())
	return v
}

// up returns the program when it runs.
func (v *service) up(ctx context.Context) (*launcher.Browser, error) {
	v.mu.Lock()
	if v.ctx.Err() != nil {
		v.mu.Unlock()
		return nil, errors.New("bmcp is stopping")
	}
	if v.starting == nil && v.held != nil && !wait.Closed(v.held.Ended()) {
		defer v.mu.Unlock()
		return v.held, nil
	}
	if v.starting == nil {
		v.starting = make(chan struct{})
		go func() {
			held, err := v.run(v.ctx)
			v.mu.Lock()
			v.held, v.err = held, err
			close(v.starting)
			v.starting = nil
			v.mu.Unlock()
		}()
	}
	starting := v.starting
	v.mu.Unlock()
	select {
	case <-starting:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held == nil {
		return nil, v.err
	}
	return v.held, nil
}

// running is the program if it runs, else nil.
func (v *service) running() *launcher.Browser {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.starting != nil || v.held == nil || wait.Closed(v.held.Ended()) {
		return nil
	}
	return v.held
}

// close stops the program.
func (v *service) close() {
	v.mu.Lock()
	v.stop()
	starting := v.starting
	v.mu.Unlock()
	if starting != nil {
		<-starting
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held != nil {
		v.held.Stop()
	}
}

// startService runs a program that prints a record and stays.
func startService(ctx context.Context, log io.Writer, name string, args ...string) (*launcher.Browser, error) {
	path, err := launcher.Sibling(name)
	if err != nil {
		return nil, err
	}
	argv := slices.Concat([]string{path}, args, []string{"--output=json"}, launcher.BindArgs())
	return launcher.Launch(ctx, launcher.Spec{Argv: argv, Timeout: 5 * time.Minute, Grace: 30 * time.Second, Stderr: log, Service: true})
}
