package source

import (
	"context"
	"errors"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/proc"
	"btools/lib/sibling"
	"btools/lib/state"
	"btools/lib/wait"
)

// service is the program whose control API gives browsers: a sibling that is started when it is needed and again after
// it has ended, or a service that runs already.
type service struct {
	own  *wait.Starter[*process]                        // nil: it is somebody else's
	find func(context.Context) (*control.Client, error) // connects to it
	ctx  context.Context                                // until close
	stop context.CancelFunc
	work sync.WaitGroup // what close waits for
	lost func()         // called when the service has ended; nil: nobody is told

	mu      sync.Mutex // taken for no longer than a field is changed
	free    []*control.Client
	watched map[int]<-chan struct{} // by process; closed when it has ended
}

// process is a sibling that runs, and where it listens.
type process struct {
	*sibling.Browser
	socket string
}

// init connects to a service as find does.
func (s *service) init(find func(context.Context) (*control.Client, error)) {
	s.find, s.watched = find, map[int]<-chan struct{}{}
	s.ctx, s.stop = context.WithCancel(context.Background())
}

// initOwn connects to a sibling, which run starts when it is needed.
func (s *service) initOwn(store *state.Store, run func(context.Context) (*process, error)) {
	s.init(func(ctx context.Context) (*control.Client, error) {
		p, err := s.own.Get(ctx)
		if err != nil {
			return nil, err
		}
		return control.Dial(ctx, p.socket)
	})
	s.own = &wait.Starter[*process]{
		Start: func() (*process, error) {
			p, err := run(s.ctx)
			if err == nil {
				s.work.Go(func() { // after a kill, its browsers' supervisors may be gone too, and nobody else cleans up
					<-p.Ended()
					store.Update(context.WithoutCancel(s.ctx), func(*state.File) error { return nil })
				})
			}
			return p, err
		},
		Gone: func(p *process) error {
			if wait.Closed(p.Ended()) {
				return errors.New("it has ended")
			}
			return nil
		},
	}
}

// errStopping means that this program is stopping.
var errStopping = errors.New("bmcp is stopping")

func (s *service) close() {
	if s.own != nil {
		s.own.Refuse(errStopping)
	}
	s.mu.Lock()
	s.stop()
	for _, c := range s.free {
		c.Close()
	}
	s.mu.Unlock()
	if s.own != nil {
		if p := s.own.Close(errStopping); p != nil {
			p.Stop()
		}
	}
	s.work.Wait()
}

// do runs f in a goroutine that close waits for. It does nothing after close.
func (s *service) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.work.Go(f)
	}
}

// dial returns a connection to the service, which it starts if that is ours and does not run.
func (s *service) dial(ctx context.Context) (*control.Client, error) {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return nil, errStopping
	}
	if n := len(s.free); n > 0 {
		defer s.mu.Unlock()
		c := s.free[n-1]
		s.free = s.free[:n-1]
		return c, nil
	}
	s.mu.Unlock()
	return s.find(ctx)
}

// call makes one request, and repeats it if the service has ended meanwhile, or is about to. It returns the
// connection.
func (s *service) call(ctx context.Context, method string, params, result any) (*control.Client, error) {
	for try := 0; ; try++ {
		c, err := s.dial(ctx)
		if err == nil {
			if err = c.Call(ctx, method, params, result); err == nil {
				return c, nil
			}
			var e *control.Error
			if errors.As(err, &e) {
				if e.Code != control.Stopping || s.own != nil {
					s.put(c)
					return nil, err
				}
				c.Close()
				s.settle(ctx) // which may go on with the leases that it has
				select {      // the next one is another one's, with tries of its own
				case <-time.After(stoppingDelay):
					try = -1
					continue
				case <-ctx.Done():
					return nil, err
				}
			}
			c.Close()
		}
		if ctx.Err() != nil || try == 2 {
			return nil, err
		}
		s.settle(ctx)
	}
}

// stoppingDelay is how often a service that stops is asked whether it is another one by now.
const stoppingDelay = 250 * time.Millisecond

// settle closes the connections to a service that has gone, and gives our own time to end.
func (s *service) settle(ctx context.Context) {
	s.mu.Lock()
	for _, c := range s.free {
		c.Close()
	}
	s.free = nil
	s.mu.Unlock()
	if s.lost != nil {
		s.lost()
	}
	if s.own == nil {
		return
	}
	if p := s.own.Running(); p != nil {
		select {
		case <-p.Ended():
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// put keeps a connection for the next request.
func (s *service) put(c *control.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || len(s.free) >= 64 {
		c.Close()
		return
	}
	s.free = append(s.free, c)
}

// Call makes a request as call does, and keeps the connection.
func (s *service) Call(ctx context.Context, method string, params, result any) error {
	c, err := s.call(ctx, method, params, result)
	if err == nil {
		s.put(c)
	}
	return err
}

// watch returns a channel that is closed when a process has ended; nil after close.
func (s *service) watch(pid int) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, died := range s.watched {
		if wait.Closed(died) {
			delete(s.watched, other)
		}
	}
	if at := s.watched[pid]; at != nil || s.ctx.Err() != nil {
		return at
	}
	died := make(chan struct{})
	s.watched[pid] = died
	id, err := proc.Of(pid)
	if err != nil {
		close(died)
		return died
	}
	s.work.Go(func() {
		if id.Wait(s.ctx) == nil {
			close(died)
		}
	})
	return died
}

// noticed is how long a program may take to notice the end of its browser, which bmcp has seen already.
const noticed = 5 * time.Second

// again calls try until it returns true, at most for a while.
func again(ctx context.Context, most time.Duration, try func() bool) {
	for end := time.Now().Add(most); !try() && time.Now().Before(end); {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}
