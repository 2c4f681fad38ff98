// Package register lists a running program in the state file, opens its control
// socket, and restores either if it is deleted.
package register

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/state"
)

// Look is how often it is looked whether the entry and the socket are there.
const Look = 10 * time.Second

// dropBound is how long the removal of the entry may take.
const dropBound = 2 * time.Second

// Service is the presence of one program. Set its fields, then Open, Serve
// and Close it.
type Service struct {
	Store *state.Store
	// Path is that of the control socket.
	Path string
	// Listener is the socket if somebody else has made it, who keeps it, too.
	Listener net.Listener
	// Inherited is the socket if an earlier process of this service had it: Open leaves it to Serve to list
	// the program.
	Inherited net.Listener
	// Shared says that other programs of this kind open the same path: then it
	// is opened before it is listed. One of this process alone is listed first,
	// so that it is swept if the process is killed in between.
	Shared bool
	// Entry returns the program's entry in the state file.
	Entry func() state.Service
	// Linger is how long connections may last after Close: who has asked reads the answer, and leaves.
	Linger time.Duration
	Log    *slog.Logger

	ctx     context.Context // of the answers
	end     context.CancelFunc
	restore chan struct{}
	running sync.WaitGroup // but for
	serving sync.WaitGroup // connections
	handle  control.Handler

	mu       sync.Mutex
	listener net.Listener
	closed   bool
}

// Open opens the socket and lists the program. On an error nothing is left.
func (s *Service) Open(ctx context.Context) error {
	s.ctx, s.end = context.WithCancel(context.Background())
	s.restore = make(chan struct{}, 1)
	if s.listener = s.Listener; s.Inherited != nil {
		s.listener = s.Inherited
		s.Restore() // lists it
		return nil
	}
	steps := []func(context.Context) error{s.list, s.listen}
	if s.Shared {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			s.Close()
			return err
		}
	}
	return nil
}

// list lists the program if it is not.
func (s *Service) list(ctx context.Context) error {
	if f, err := s.Store.Read(); err == nil && f.Lists(s.Entry()) {
		return nil
	}
	return state.Explain(s.Store.Update(ctx, func(f *state.File) error {
		f.Set(s.Entry())
		return nil
	}))
}

// listen opens the socket if it is not there.
func (s *Service) listen(ctx context.Context) error {
	s.mu.Lock()
	path, kept, open := s.Path, s.Listener != nil, s.listener != nil
	s.mu.Unlock()
	if kept {
		return nil
	}
	if _, err := os.Lstat(path); err == nil && open {
		return nil
	}
	if open { // the directory may be gone as well
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
	}
	l, err := control.Listen(ctx, path)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.Path != path {
		l.Close()
		return nil
	}
	if s.listener != nil {
		s.listener.Close() // the path is the new one's
	}
	s.listener = l
	s.serveLocked()
	return nil
}

// Serve has requests answered until Close.
func (s *Service) Serve(handle control.Handler) {
	s.mu.Lock()
	s.handle = handle
	s.serveLocked()
	s.mu.Unlock()
	s.running.Go(func() {
		look := time.NewTicker(Look)
		defer look.Stop()
		for said := ""; ; {
			select {
			case <-s.ctx.Done():
				return
			case <-look.C:
			case <-s.restore:
			}
			now := ""
			if err := errors.Join(s.list(s.ctx), s.listen(s.ctx)); err != nil {
				now = "other programs do not find this one: " + err.Error()
			}
			if now != said && now != "" && s.ctx.Err() == nil {
				s.Log.Warn(now)
			}
			said = now
		}
	})
}

func (s *Service) serveLocked() {
	if s.handle != nil {
		l := s.listener
		s.serving.Go(func() { control.Serve(s.ctx, l, s.handle) })
	}
}

// Socket returns the listener of the control socket.
func (s *Service) Socket() net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener
}

// Move opens a socket at another path, which is the program's from now on. Leave, which it returns, closes the
// old one, whose path is another process's then; its connections go on.
func (s *Service) Move(ctx context.Context, path string) (leave func(), err error) {
	l, err := control.Listen(ctx, path)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.listener
	s.Path, s.Listener, s.listener = path, nil, l
	s.serveLocked()
	return func() { control.Leave(old) }, nil
}

// Restore has it looked now whether all is there.
func (s *Service) Restore() {
	select {
	case s.restore <- struct{}{}:
	default:
	}
}

// Close takes the socket and the entry away, and returns when nobody is being
// answered any more.
func (s *Service) Close() error {
	s.mu.Lock()
	s.closed = true
	if s.listener != nil {
		s.listener.Close()
	}
	s.mu.Unlock()
	late := time.AfterFunc(s.Linger, s.end)
	s.serving.Wait()
	late.Stop()
	s.end()
	s.running.Wait()
	return s.Store.UpdateWithin(dropBound, func(f *state.File) error {
		f.Unset(s.Entry())
		return nil
	})
}
