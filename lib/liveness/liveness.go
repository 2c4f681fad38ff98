// Package liveness is the rule by which a process that does not answer hangs: it
// has failed to answer twice in a row, each time for as long as the machine's
// load allows. How a process is asked, and what is done with one that hangs, is
// the caller's.
package liveness

import (
	"context"
	"errors"
	"time"
)

// ErrNotChecked means that a process could not be asked, for a reason that says
// nothing of it.
var ErrNotChecked = errors.New("cannot check the browser's health")

// failuresInARow are those after which a process hangs.
const failuresInARow = 2

// Check asks a process until it answers or hangs: then the error is the last one.
// It takes twice the timeout at most on a quiet machine, and Longest on any.
// An ask that fails at once is repeated when the timeout has passed. Ask gets the
// time that the answer may take; its ErrNotChecked is returned at once.
func Check(ctx context.Context, timeout time.Duration, load func() Pressure,
	ask func(ctx context.Context, within time.Duration) error) error {
	for failures := 1; ; failures++ {
		again := time.Now().Add(timeout)
		err := ask(ctx, Bound(timeout, load()))
		if err == nil || errors.Is(err, ErrNotChecked) || failures == failuresInARow || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Until(again)):
		}
	}
}

// Pressure is for how much of the last 10 s some process of the machine has waited
// for a processor or for memory, in percent.
type Pressure struct{ CPU, Memory float64 }

// How much more time a machine under pressure has: from quiet on, up to most.
// The pressure for a processor is at 100 with a few processes for each already, so
// most has to do for dozens. Of memory, a part of that is as bad.
const (
	quietCPU, fullCPU       = 25, 100
	quietMemory, fullMemory = 5, 50
	most                    = 10
)

// year is the longest timeout that grows: a Duration has room for few hundred.
const year = 8766 * time.Hour

// Bound is how long an answer may take on a machine under pressure, of one that may
// take the timeout on a quiet machine: 1 to 10 times as long.
func Bound(timeout time.Duration, p Pressure) time.Duration {
	grow := func(p, quiet, full float64) float64 { return min(1, max(0, p-quiet)/(full-quiet)) }
	more := max(grow(p.CPU, quietCPU, fullCPU), grow(p.Memory, quietMemory, fullMemory))
	return timeout + time.Duration(more*float64(most-1)*float64(min(timeout, year)))
}

// Longest is how long a Check takes at most, with a timeout of a year at most.
func Longest(timeout time.Duration) time.Duration { return failuresInARow * most * min(timeout, year) }
