package shell

import (
	"context"
	"fmt"
	"slices"
	"time"

	"btools/lib/control"
	"btools/lib/proc"
)

// Two programs that call one session that neither has named, as two shells of xargs -P do, would have each other's tab
// in silence. The second is refused; after a pause it may take over.

const (
	// pause is how long a session is its caller's after a call: an agent may start its next shell at any time.
	pause = time.Minute
	// ending is how long a program that has made its last call may take to end: one side of a pipeline begins before
	// the shell of the other has ended.
	ending = time.Second
)

const noteOverlap = "another call of this session runs, on the same tab: --session NAME gives each its own"

// callerAmong returns which of the processes above a call makes it: the first that does not only run another program.
func callerAmong(above []proc.Ancestor) (a proc.Ancestor, ok bool) {
	i := slices.IndexFunc(above, func(a proc.Ancestor) bool { return !is(a, runners) })
	if i < 0 {
		return a, false
	}
	return above[i], true
}

// besideLocked returns the program that uses a session while another one, which it does not run, calls it.
func (x *session) besideLocked(who *caller, now time.Time) (other proc.Ancestor, ok bool) {
	other = x.by
	switch {
	case x.named || other.PID == 0 || len(who.above) == 0,
		slices.ContainsFunc(who.above, func(a proc.Ancestor) bool { return a.Identity == other.Identity }),
		x.calls == 0 && now.Sub(x.used) >= pause, !other.Alive():
		return other, false
	}
	return other, true
}

// besideOf returns it for the session that a caller has, if any.
func (s *Service) besideOf(who *caller) (other proc.Ancestor, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.findLocked(who)
	if x == nil {
		return other, false
	}
	return x.besideLocked(who, time.Now())
}

// awaitEnd waits a moment for the end of the program that uses the session of a caller.
func (s *Service) awaitEnd(ctx context.Context, who *caller) {
	if other, ok := s.besideOf(who); ok {
		ctx, cancel := context.WithTimeout(ctx, ending)
		defer cancel()
		other.Wait(ctx)
	}
}

// errBeside refuses a call of a session that another program uses.
func errBeside(other proc.Ancestor) error {
	return &control.Error{Code: control.TryAgain, Message: fmt.Sprintf("%s (pid %d) uses this session: two programs "+
		"would have each other's tab", title(other), other.PID), Hint: "--session NAME or --bind-pid $$ gives each " +
		"its own"}
}
