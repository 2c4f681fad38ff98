package launch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"btools/lib/exit"
	"btools/lib/launch/login"
	"btools/lib/logins"
)

// readBound is how long the state may take to be read when the browser is told
// to stop. Whoever tells it so waits for killBound and a little more.
const readBound = 8 * time.Second

// notSavedError is why a state could not be saved.
type notSavedError struct{ error }

// openWatched opens the first page of a browser whose state will be saved.
func (s *Supervisor) openWatched(ctx context.Context) error {
	in, out := s.child.devtools()
	if in == nil {
		return exit.Errorf(exit.Unavailable, "cannot save a state on this system: there is no pipe to the browser")
	}
	var err error
	if s.login, err = login.Open(ctx, in, out, s.Spec.firstPage()); err != nil {
		return err
	}
	s.Log.Info(fmt.Sprintf("log in in the window: the state %q is saved when it is closed", s.Spec.SaveState.Name))
	return nil
}

// lastPageClosed is closed when somebody has closed the last page of a browser
// whose state will be saved.
func (s *Supervisor) lastPageClosed() <-chan struct{} {
	if s.login == nil {
		return nil
	}
	return s.login.Closed()
}

// saveState saves the state, if that is wanted, before the browser is stopped. If
// it fails, the state of that name is as it was.
func (s *Supervisor) saveState() error {
	if s.login == nil {
		return nil
	}
	to := s.Spec.SaveState
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case <-s.Now:
			cancel(errors.New("blaunch was told to stop at once"))
		case <-time.After(readBound):
			cancel(fmt.Errorf("the browser did not answer within %v", readBound))
		case <-ctx.Done():
		}
	}()
	state, lost, err := s.login.State(ctx)
	if err == nil && len(state.Cookies)+len(state.Origins) == 0 {
		err = errors.New("no page has set a cookie or stored anything")
	}
	if err != nil {
		return &notSavedError{fmt.Errorf("cannot save the state %q: %w", to.Name, err)}
	}
	if err := (&logins.Store{Dir: to.Dir}).Save(context.WithoutCancel(ctx), to.Name, state); err != nil {
		return &notSavedError{err}
	}
	for _, what := range lost {
		s.Log.Warn("the saved state lacks " + what)
	}
	s.Log.Info(fmt.Sprintf("saved the state %q (cookies: %d, origins with storage: %d)", to.Name, len(state.Cookies),
		len(state.Origins)))
	return nil
}
