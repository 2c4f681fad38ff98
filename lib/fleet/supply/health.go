package supply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"btools/lib/liveness"
	"btools/lib/record"
)

// Health says how often a browser's health is checked, never if Interval is 0, and how
// long the browser may take to answer. One that does not answer is stopped, unless it is
// Foreign.
type Health struct {
	Interval, Timeout time.Duration
	// Checked, if not nil, is called after the launch and after each check that the browser has not failed.
	Checked func(*Chrome)

	ping func(ctx context.Context, within time.Duration) error // asks in place of Ping; set by tests
}

// ErrNotAsked is the answer of a Ping that asks nothing.
var ErrNotAsked = fmt.Errorf("%w: nothing is connected to it", liveness.ErrNotChecked)

// HangError is why a browser is ended that does not answer.
type HangError struct{ Err error }

func (e *HangError) Error() string { return "it did not answer: " + e.Err.Error() }
func (e *HangError) Unwrap() error { return e.Err }

// LastCheck returns the time of the last health check, zero if there has been none, and its error; "": the browser was
// well.
func (c *Chrome) LastCheck() (at record.Time, err string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checks.at, c.checks.err
}

// checks are the health checks of a browser, whose lock guards the result.
type checks struct {
	at  record.Time // time of the last one; zero: none yet
	err string      // error of it; "": the browser was well
}

// run checks the health of a browser again and again until it is ending.
func (k *checks) run(c *Chrome) {
	if c.Health.Interval <= 0 {
		return
	}
	for k.passed(c); ; {
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(c.Health.Interval):
			k.check(c)
		}
	}
}

// passed tells that a browser has not failed a check.
func (k *checks) passed(c *Chrome) {
	if c.Health.Checked != nil {
		c.Health.Checked(c)
	}
}

// check checks the health of a browser once. It ends a browser of our own that does not answer.
func (k *checks) check(c *Chrome) {
	began := time.Now()
	err := liveness.Check(c.ctx, c.Health.Timeout, liveness.Load, c.Ping)
	switch {
	case c.ctx.Err() != nil:
		return
	case errors.Is(err, ErrNotAsked):
		return
	case errors.Is(err, liveness.ErrNotChecked): // the check failed, not the browser
		c.Log.Warn(err.Error())
		k.passed(c)
		return
	case err != nil && c.isActiveSince(began): // it is busy with its sessions, which would all be lost
		k.passed(c)
		return
	}
	if err != nil && hasLeft(c) {
		return
	}
	c.mu.Lock()
	was := k.err
	k.at, k.err = record.Now(), ""
	if err != nil {
		k.err = err.Error()
	}
	c.mu.Unlock()
	switch {
	case err == nil:
		k.passed(c)
	case !c.Foreign:
		c.Log.Warn("the browser does not answer: stopping it", "why", err)
		c.End(&HangError{err})
	case was == "":
		c.Log.Warn("the browser does not answer; this proxy does not own it and leaves it running", "why", err)
	}
}

// Ping asks the browser for an answer: by its pipe, by its only connection, or by another one.
func (c *Chrome) Ping(ctx context.Context, within time.Duration) error {
	switch {
	case c.Health.ping != nil:
		return c.Health.ping(ctx, within)
	case c.One != nil:
		return inTime(ctx, within, c.One.ping)
	case c.mux != nil:
		return inTime(ctx, within, c.mux.Check)
	}
	return Ping(ctx, c.Browser.Instance, within)
}

// hasLeft reports whether a browser of a person, which has failed a check, has just left.
func hasLeft(c *Chrome) bool {
	if c.Browser.Instance.Source != record.FromExtension {
		return false
	}
	select {
	case <-c.Done():
		return true
	case <-time.After(c.Grace):
		return false
	}
}

// isActiveSince reports whether the browser has sent anything to a session since then.
func (c *Chrome) isActiveSince(then time.Time) bool {
	s := c.sessions.Running()
	return s != nil && s.LastActivity().After(then)
}
