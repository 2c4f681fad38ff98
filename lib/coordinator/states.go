package coordinator

import (
	"context"
	"errors"
	"fmt"

	"btools/lib/control"
	"btools/lib/record"
	"btools/lib/states"
	"btools/lib/states/remote"
)

// stateSaver returns what saves the logins of a browser's session.
func (c *Coordinator) stateSaver(b Browser) func(context.Context, string, bool) (states.Info, []string, error) {
	return func(ctx context.Context, name string, create bool) (states.Info, []string, error) {
		answer, err := c.Source.SaveState(ctx, b, remote.SaveRequest{Name: name, Create: create})
		var e *control.Error
		switch {
		case errors.As(err, &e) && e.Code == control.StateExists:
			return states.Info{}, nil, fmt.Errorf("there is a login %q already: overwrite replaces it", name)
		case err != nil:
			return states.Info{}, nil, explain(err)
		}
		all, err := infos(answer.States)
		if err != nil || len(all) != 1 {
			return states.Info{}, nil, fmt.Errorf("it is not known whether the login was saved: %w",
				errors.Join(err, errors.New("the answer is not one state")))
		}
		return all[0], answer.Lost, nil
	}
}

// stateLoader returns what reads a named login, to replace that of a session.
func (c *Coordinator) stateLoader() func(context.Context, string) (*states.State, error) {
	return func(ctx context.Context, name string) (*states.State, error) {
		switch {
		case c.Source.States() != nil: // it gives no values away
			return nil, errors.New("the logins of a service are not read: leases start with one by bmcp --pool " +
				"--state")
		case c.States == nil:
			return nil, errNoDirectory
		}
		return c.States.Load(name)
	}
}

// errNoDirectory is the error of bmcp without a place for named logins.
var errNoDirectory = errors.New("there is no directory for named logins: bmcp was started without HOME and " +
	"XDG_STATE_HOME")

// listStates lists the named logins, and says why one cannot be read. The program whose
// sessions start with them has them: if bmcp does not run it, it may be another user's.
func (c *Coordinator) listStates(ctx context.Context) ([]states.Info, []string, error) {
	conn := c.Source.States()
	if conn == nil {
		if c.States == nil {
			return nil, nil, errNoDirectory
		}
		local := remote.Local(c.States)
		defer local.Close()
		conn = local
	}
	answer, err := remote.List(ctx, conn)
	if err != nil {
		return nil, nil, explain(err)
	}
	all, err := infos(answer.States)
	return all, answer.Bad, err
}

// infos reads the states in records.
func infos(records []*record.Record) (all []states.Info, err error) {
	for _, r := range records {
		var i states.Info
		if _, err := r.Get("state", &i); err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// errNoLogins is the error of a browser whose logins cannot be told from those of
// others.
var errNoLogins = errors.New("this browser is not a session of its own: only the login of a session can be saved")

// errUsersLogins is the error of a browser that has joined by its extension.
var errUsersLogins = errors.New("the logins of a browser that has joined by its extension are its user's, and " +
	"are not saved")

func (s *single) SaveState(ctx context.Context, b Browser, r remote.SaveRequest) (answer remote.Saved, err error) {
	switch r.Session = b.Session; {
	case s.joins != nil:
		return answer, errUsersLogins
	case r.Session == "":
		r.Session = hostSession
	}
	s.mu.Lock()
	path := s.path
	s.mu.Unlock()
	err = control.Call(ctx, path, "state_save", r, &answer)
	return answer, err
}

func (s *pooled) SaveState(ctx context.Context, b Browser, r remote.SaveRequest) (answer remote.Saved, err error) {
	if !b.Virtual {
		return answer, errNoLogins
	}
	r.Lease = b.Lease
	err = pooledStates{s}.Call(ctx, "state_save", r, &answer)
	return answer, err
}

func (n childLaunched) SaveState(context.Context, Browser, remote.SaveRequest) (remote.Saved, error) {
	return remote.Saved{}, errNoLogins
}

// pooledStates is the connection to a service for its states.
type pooledStates struct{ *pooled }

func (s pooledStates) Call(ctx context.Context, method string, params, result any) error {
	c, err := s.call(ctx, method, params, result)
	if err == nil {
		s.put(c)
	}
	return err
}

func (s *pooled) States() remote.Conn {
	if s.own != nil { // it is of this user, and need not run
		return nil
	}
	return pooledStates{s}
}

func (s *single) States() remote.Conn       { return nil }
func (n childLaunched) States() remote.Conn { return nil }
