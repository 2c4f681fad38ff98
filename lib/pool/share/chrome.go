// Package share lets the leases of several instances share one Chrome. Each
// lease has a seat, on which it opens sessions that are fresh and that no later lease
// gets. Spare sessions are made in advance.
package share

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"btools/lib/downloads"
	"btools/lib/fleet/book"
	"btools/lib/fleet/supply"
	"btools/lib/virtual"
	"btools/lib/wait"
)

const (
	openTimeout    = 30 * time.Second // to connect to a Chrome that was launched
	sessionTimeout = 30 * time.Second // to create a session
	endTimeout     = 5 * time.Second  // to close the pages of a spare session
	exitGrace      = time.Second      // until the end of Chrome is noticed
)

// ErrGone is why there is no session on a seat: another Chrome is needed.
var ErrGone = errors.New("the browser has ended")

// Drained is why a Chrome ends whose last seat was released while it was draining.
var Drained = errors.New("its last lease has ended")

// Chrome is a Chrome that is shared.
type Chrome struct {
	*supply.Chrome

	options virtual.Options // of its sessions
	// openFiles, if not nil, opens the downloads of a session.
	openFiles func() (*downloads.Files, error)
	work      sync.WaitGroup
	faults    chan error
	closing   sync.Once

	mu       sync.Mutex // nothing blocks while it is held
	stock    book.Stock[*virtual.Session]
	made     wait.Broadcast // a session was made, or could not be
	spares   int            // how many there are to be
	ahead    int            // how many more, for seats on which none has been opened
	seats    int            // taken ones
	draining bool
}

// Start starts to launch a Chrome, whose sessions have these options, and the downloads
// that openFiles opens, unless it is nil. The caller waits for Ready, and calls Close.
func Start(s supply.Spec, o virtual.Options, openFiles func() (*downloads.Files, error)) *Chrome {
	s.Bound, s.Within, s.Grace = true, openTimeout, exitGrace
	s.Late = fmt.Errorf("no answer within %v", openTimeout)
	c := &Chrome{options: o, openFiles: openFiles, faults: make(chan error, 1)}
	c.stock.IsDead = isOver
	c.Chrome = supply.Start(s)
	return c
}

func isOver(s *virtual.Session) bool { return wait.Closed(s.Done()) }

// IsLive reports whether Chrome is running; a nil Chrome is not.
func (c *Chrome) IsLive() bool { return c != nil && !c.IsEnding() }

// Faults reports sessions that could not be ended, so that Chrome must be
// replaced.
func (c *Chrome) Faults() <-chan error { return c.faults }

// Close ends all sessions, stops Chrome, and waits for its end.
func (c *Chrome) Close() {
	c.closing.Do(func() {
		c.End(ErrGone)
		<-c.Gone()
		c.mu.Lock() // after this, nobody who saw it live starts more work
		c.mu.Unlock()
		c.work.Wait()
		c.SetSpares(0)
	})
}

// SetSpares sets the number of spare sessions to keep ready.
func (c *Chrome) SetSpares(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setSparesLocked(n)
}

func (c *Chrome) setSparesLocked(n int) {
	if c.spares = n; c.draining {
		c.spares = 0
	}
	for _, s := range c.stock.SetTarget(c.spares + c.ahead) {
		c.endUnusedLocked(s)
	}
	c.fillLocked()
}

// RetrySpares resumes making spare sessions after a failure.
func (c *Chrome) RetrySpares() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stock.Retry()
	c.fillLocked()
}

// Drain makes no more spare sessions; Chrome ends when the last seat is released.
func (c *Chrome) Drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	c.setSparesLocked(0)
	c.checkDrainedLocked()
}

func (c *Chrome) checkDrainedLocked() {
	if c.draining && c.seats == 0 {
		c.End(Drained)
	}
}

// Count returns the numbers of leased and of spare sessions.
func (c *Chrome) Count() (seats, spares int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seats, c.stock.Len()
}

// fillLocked starts to make the sessions that requests and spares need.
func (c *Chrome) fillLocked() {
	if c.IsEnding() {
		return
	}
	for range c.stock.Start() {
		c.work.Go(c.makeSession)
	}
}

func (c *Chrome) makeSession() {
	ctx, cancel := context.WithTimeoutCause(c.Context(), sessionTimeout, fmt.Errorf("no session within %v", sessionTimeout))
	defer cancel()
	s, err := c.newSession(ctx)
	if err != nil {
		select { // usually because Chrome has ended, which is noticed soon
		case <-c.Done():
		case <-time.After(exitGrace):
		}
	}
	c.mu.Lock()
	if err != nil {
		c.stock.Failed(fmt.Errorf("cannot make a session: %w", err))
	} else if c.stock.Made(s) {
		c.endUnusedLocked(s)
	}
	c.made.Wake()
	c.fillLocked()
	c.mu.Unlock()
	if err != nil && !c.IsEnding() {
		c.Log.Warn("cannot make a session: " + err.Error())
	}
}

// newSession creates a session with a directory for its downloads.
func (c *Chrome) newSession(ctx context.Context) (*virtual.Session, error) {
	o := c.options
	if c.openFiles == nil {
		return c.NewSession(ctx, o)
	}
	files, err := c.openFiles()
	if err != nil {
		return nil, err
	}
	o.Files = files
	s, err := c.NewSession(ctx, o)
	if err != nil {
		files.Close() // what cannot be deleted goes with the program
	}
	return s, err
}

// closeFiles deletes the downloads of a session that was never used.
func (c *Chrome) closeFiles(s *virtual.Session) {
	if files := s.Downloads(); files != nil {
		if err := files.Close(); err != nil {
			c.Log.Warn("cannot delete the downloads of a session: " + err.Error()) // they go with the program
		}
	}
}

// endUnusedLocked ends a session that was never used.
func (c *Chrome) endUnusedLocked(s *virtual.Session) {
	if c.IsEnding() {
		c.closeFiles(s)
		return
	}
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.Context(), endTimeout)
		defer cancel()
		c.end(ctx, s)
		c.closeFiles(s)
	})
}

// end ends a session and waits until its pages are closed.
func (c *Chrome) end(ctx context.Context, s *virtual.Session) error {
	err := s.End(ctx)
	if err != nil && !c.IsEnding() {
		select {
		case c.faults <- fmt.Errorf("cannot end a session: its pages are still there after %v", endTimeout):
		default:
		}
	}
	return err
}
