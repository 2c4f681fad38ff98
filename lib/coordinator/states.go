package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"btools/lib/control"
	"btools/lib/states"
)

// stateRequest asks bproxy or bpool to save the state of a session.
type stateRequest struct {
	Name    string `json:"name"`
	Dir     string `json:"state_dir"`
	Session string `json:"session,omitempty"` // of bproxy
	Lease   string `json:"lease,omitempty"`   // of bpool
	Create  bool   `json:"create"`            // none is replaced
}

// stateSaver returns what saves the logins of a browser's session.
func (c *Coordinator) stateSaver(b Browser) func(context.Context, string, bool) (states.Info, []string, error) {
	return func(ctx context.Context, name string, create bool) (saved states.Info, lost []string, err error) {
		raw, err := c.Browsers.saveState(ctx, b, stateRequest{Name: name, Dir: c.States.Dir, Create: create})
		if err != nil {
			return saved, nil, explain(err)
		}
		var answer struct {
			States []struct {
				State states.Info `json:"state"`
			} `json:"states"`
			Lost []string `json:"lost"`
		}
		if err := json.Unmarshal(raw, &answer); err != nil || len(answer.States) != 1 {
			return saved, nil, fmt.Errorf("it is not known whether the login was saved: %w",
				errors.Join(err, errors.New("the answer is not one state")))
		}
		return answer.States[0].State, answer.Lost, nil
	}
}

// errNoLogins is the error of a browser whose logins cannot be told from those of
// others.
var errNoLogins = errors.New("this browser is not a session of its own: only the login of a session can be saved")

// errUsersLogins is the error of a browser that has joined by its extension.
var errUsersLogins = errors.New("the logins of a browser that has joined by its extension are its user's, and " +
	"are not saved")

func (s *single) saveState(ctx context.Context, b Browser, r stateRequest) (answer json.RawMessage, err error) {
	switch r.Session = b.Session; {
	case s.joins != nil:
		return nil, errUsersLogins
	case s.sessions.Sharing == Whole:
		return nil, errNoLogins
	case r.Session == "":
		r.Session = hostSession
	}
	s.mu.Lock()
	path := s.path
	s.mu.Unlock()
	err = control.Call(ctx, path, "state_save", r, &answer)
	return answer, err
}

func (s *pooled) saveState(ctx context.Context, b Browser, r stateRequest) (answer json.RawMessage, err error) {
	if !b.Virtual {
		return nil, errNoLogins
	}
	r.Lease = b.Lease
	c, err := s.call(ctx, "state_save", r, &answer)
	if err == nil {
		s.put(c)
	}
	return answer, err
}

func (n childLaunched) saveState(context.Context, Browser, stateRequest) (json.RawMessage, error) {
	return nil, errNoLogins
}
