package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"btools/lib/fleet/book"
	"btools/lib/fleet/supply"
	"btools/lib/settings"
	"btools/lib/virtual"
	"btools/lib/wait"
)

const (
	openTimeout   = 30 * time.Second // to connect to a Chrome that was launched
	makeTimeout   = 30 * time.Second // to make a session in advance
	unusedTimeout = 5 * time.Second  // to close the pages of one that nobody had
	exitGrace     = time.Second      // until the end of Chrome is noticed
)

// ErrGone is why there is no session on a Chrome: another one is needed.
var ErrGone = errors.New("the browser has ended")

// Drained is why a Chrome ends whose last session has ended while it was draining.
var Drained = errors.New("its last lease has ended")

// Chrome is a Chrome that a fleet shares, on which sessions are made in advance.
type Chrome struct {
	*supply.Chrome
	fleet   *Fleet
	options virtual.Options // of its sessions
	work    sync.WaitGroup
	fault   func(error)

	mu       sync.Mutex // nothing blocks while it is held
	stock    book.Stock[*virtual.Session]
	made     wait.Broadcast // a session was made, or could not be
	spares   int            // number of sessions to keep in advance
	users    int            // sessions of entries, and openings that wait for one
	draining bool
}

// SharedSpec completes the Spec of a Chrome that a fleet shares.
func SharedSpec(s supply.Spec) supply.Spec {
	s.Bound, s.Within, s.Grace = true, openTimeout, exitGrace
	s.Late = fmt.Errorf("no answer within %v", openTimeout)
	return s
}

// Share shares a Chrome that was launched, on which sessions with these settings are made in advance. fault is called
// when a session could not be ended, so that Chrome must be replaced. The caller calls Finish.
func (f *Fleet) Share(of *supply.Chrome, set settings.Settings, fault func(error)) *Chrome {
	c := &Chrome{Chrome: of, fleet: f, options: virtual.Options{Settings: set, Keep: f.Saves}, fault: fault}
	c.stock.IsDead = isOver
	return c
}

func isOver(s *virtual.Session) bool { return wait.Closed(s.Done()) }

// IsLive reports whether Chrome is running; a nil Chrome is not.
func (c *Chrome) IsLive() bool { return c != nil && !c.IsEnding() }

// Finish waits until Chrome is gone, and deletes what is left of its sessions.
func (c *Chrome) Finish() {
	<-c.Gone()
	c.mu.Lock() // after this, nobody who saw it live starts more work
	c.mu.Unlock()
	c.work.Wait()
	c.SetSpares(0)
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
	for _, s := range c.stock.SetTarget(c.spares) {
		c.endUnusedLocked(s)
	}
	c.fillLocked()
}

// Reserve notes that one of the sessions in advance is about to be taken, and is not replaced then.
func (c *Chrome) Reserve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spares > 0 {
		c.spares--
		c.stock.Lower()
	}
}

// RetrySpares resumes making spare sessions after a failure.
func (c *Chrome) RetrySpares() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stock.Retry()
	c.fillLocked()
}

// Drain makes no more sessions; Chrome ends when the last one has ended.
func (c *Chrome) Drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	c.setSparesLocked(0)
	c.checkDrainedLocked()
}

func (c *Chrome) checkDrainedLocked() {
	if c.draining && c.users == 0 {
		c.End(Drained)
	}
}

// Spares returns the number of sessions that are there in advance.
func (c *Chrome) Spares() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stock.Len()
}

// Admit counts a session, which keeps a Chrome that is draining; false: the Chrome is ending, or draining. The caller
// calls Ended with the error of the session's end.
func (c *Chrome) Admit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining || c.IsEnding() {
		return false
	}
	c.users++
	c.NoteUse()
	return true
}

// Ended ends what Admit began. A Chrome with a session that could not be ended has a fault.
func (c *Chrome) Ended(err error) {
	c.report(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	c.checkDrainedLocked()
}

// Take takes a session that was made in advance, or waits until another one is made. The error is ErrGone, the
// context's cause, or says why there is no session.
func (c *Chrome) Take(ctx context.Context) (*virtual.Session, error) {
	if !c.Chrome.Enter() { // one that waits for its session needs the browser, too
		return nil, ErrGone
	}
	defer c.Chrome.Leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.stock.Wait(); ; {
		if s, err, ok := c.stock.Take(); ok {
			c.fillLocked()
			return s, err
		}
		c.fillLocked()
		made := c.made.Next()
		c.mu.Unlock()
		err := ErrGone
		select {
		case <-made:
			err = nil
		case <-c.Done():
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		c.mu.Lock()
		if err != nil {
			c.stock.Leave()
			c.setSparesLocked(c.spares)
			return nil, err
		}
	}
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
	ctx, cancel := context.WithTimeoutCause(c.Context(), makeTimeout, fmt.Errorf("no session within %v", makeTimeout))
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
	if c.fleet.Downloads {
		files, err := c.fleet.NewFiles(o.DownloadLimit)
		if err != nil {
			return nil, err
		}
		o.Files = files
	}
	s, err := c.NewSession(ctx, o)
	if err != nil && o.Files != nil {
		o.Files.Close() // what cannot be deleted goes with the program
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
		ctx, cancel := context.WithTimeout(c.Context(), unusedTimeout)
		defer cancel()
		c.report(s.End(ctx))
		c.closeFiles(s)
	})
}

// report reports that a session could not be ended, if that is so.
func (c *Chrome) report(err error) {
	if err != nil && !c.IsEnding() {
		c.fault(fmt.Errorf("cannot end a session: its pages are still there after %v", endTimeout))
	}
}
