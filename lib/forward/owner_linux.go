package forward

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"btools/lib/proc"
	"btools/lib/sockets"
)

// owner is the browser that may connect.
type owner struct {
	browser func(context.Context) (int, error)

	mu   sync.Mutex
	pid  int           // of the browser, once it is known
	last proc.Identity // the process that connected last: Chrome's network service
}

// ownerTimeout is how long a connection may wait until the browser is known.
const ownerTimeout = 10 * time.Second

// check returns an error unless a process of the browser has opened the
// connection.
func (o *owner) check(ctx context.Context, c net.Conn) error {
	s, err := sockets.Of(c)
	if err != nil {
		return fmt.Errorf("cannot tell who has connected: %w", err)
	}
	if s.UID != uint32(os.Getuid()) {
		return fmt.Errorf("it belongs to user %d", s.UID)
	}
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pid == 0 {
		pid, err := o.browser(ctx)
		if err != nil {
			return fmt.Errorf("cannot tell which processes are the browser's: %w", err)
		}
		if o.pid = pid; pid == 0 {
			return nil
		}
	}
	if holds, _ := s.HeldBy(o.last.PID); holds && o.last.Alive() {
		return nil
	}
	unknown := false
	for _, pid := range proc.Tree(o.pid) {
		id, err := proc.Of(pid)
		if err != nil {
			continue
		}
		holds, err := s.HeldBy(pid)
		if holds {
			o.last = id
			return nil
		}
		unknown = unknown || errors.Is(err, fs.ErrPermission)
	}
	if unknown { // Chrome's sandbox may hide a process even from its own user
		return nil
	}
	return errors.New("it belongs to a process that is not the browser's")
}
