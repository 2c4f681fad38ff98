package supply

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"btools/lib/exit"
	"btools/lib/spell"
	"btools/lib/wait"
)

// A browser that ends is replaced at once the first time, then after a delay
// that doubles each time, until a browser has been stable for a while. While a
// request waits for a browser that was launched and then ended, the delay is at
// most MinRetryDelay. Only launches that fail are retried with the full delay.
const (
	MinRetryDelay = time.Second
	maxRetryDelay = time.Minute
	stableAfter   = 5 * time.Minute
)

// Never is the next try of a browser that is not launched again.
var Never = time.Unix(1<<40, 0)

// Retry says when a browser that has failed is launched again. It is pure: no lock, no clock, no I/O.
type Retry struct {
	Off bool // whether it is not launched again

	At       time.Time // time of the next launch
	OnDemand time.Time // time of the next launch while a request waits
	// Definite says that no request waits for it: the last launch failed for a reason that does not pass by itself.
	Definite bool

	backoff wait.Backoff
}

// Failed schedules the next launch after a browser that was launched has ended, or after the error of a launch. ran is
// for how long the launch and the browser have lasted. It describes the schedule for people.
func (r *Retry) Failed(now time.Time, ran time.Duration, launch error) string {
	r.backoff.First, r.backoff.Max, r.backoff.Steady = MinRetryDelay, maxRetryDelay, stableAfter
	r.Definite = IsDefinite(launch)
	least := time.Duration(0)
	if launch != nil {
		least = MinRetryDelay
	}
	delay := r.backoff.Next(ran, least)
	r.At, r.OnDemand = now.Add(delay), now.Add(delay)
	switch {
	case r.Off:
		r.At, r.OnDemand = Never, Never
		return "it will not be replaced (RESTART=never)"
	case delay == 0:
		return "a new browser replaces it; its pages are lost"
	case launch == nil:
		r.OnDemand = now.Add(min(delay, MinRetryDelay))
	}
	return fmt.Sprintf("another one is launched in %v", delay)
}

// Reset forgets the failures so far.
func (r *Retry) Reset() { r.backoff.Reset() }

// IsDefinite reports whether a launch has failed for a reason that does not pass by itself:
// there is no such browser or no display, or an option is wrong.
func IsDefinite(err error) bool {
	e, ok := errors.AsType[*exit.Error](err)
	return ok && (e.Code == exit.Unavailable || e.Code == exit.Usage || e.Code == exit.Config)
}

// Cause is why a browser was replaced, as metrics count it.
type Cause string

// The causes of restarts.
const (
	Crash    Cause = "crash" // it ended by itself
	Hang     Cause = "hang"  // it, or a session of it, did not answer
	TooHeavy Cause = "memory"
	Used     Cause = "uses" // or ISOLATED
	Old      Cause = "age"
	Asked    Cause = "asked" // by bpool restart, or the person whose browser it was
)

// Causes are all of them.
var Causes = []Cause{Crash, Hang, TooHeavy, Used, Old, Asked}

// Grounds are why a browser is to be replaced, with words that follow "the browser".
type Grounds struct {
	Cause Cause
	Text  string
}

// None are the grounds of a browser that stays.
var None Grounds

// Wear says when a browser is worn out. A limit of 0 is none.
type Wear struct {
	Once      bool // one use is enough
	MaxUses   int
	MaxAge    time.Duration
	MaxMemory int64 // in bytes
}

// Of returns why a browser of this age with so many uses is to be replaced, or none.
func (w Wear) Of(uses int, age time.Duration) Grounds {
	switch {
	case uses == 0:
	case w.Once:
		return Grounds{Used, "has had a lease (ISOLATED=true)"}
	case w.MaxUses > 0 && uses >= w.MaxUses:
		return Grounds{Used, fmt.Sprintf("has had %s (MAX_USES=%d)", spell.Count(uses, "lease"), w.MaxUses)}
	case w.MaxAge > 0 && age >= w.MaxAge:
		return Grounds{Old, fmt.Sprintf("is %v old (MAX_AGE=%v)", age.Round(time.Millisecond), w.MaxAge)}
	}
	return None
}

// OfMemory returns why a browser with this memory in bytes is to be replaced, or none.
func (w Wear) OfMemory(n int64) Grounds {
	if n <= cmp.Or(w.MaxMemory, n) {
		return None
	}
	return Grounds{TooHeavy, fmt.Sprintf("has %d MiB of memory (MAX_MEMORY=%dMiB)", n>>20, w.MaxMemory>>20)}
}
