package coordinator

import (
	"context"
	"errors"
	"fmt"

	"btools/lib/agent/source"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/logins"
	"btools/lib/logins/remote"
	"btools/lib/record"
)

// stateSaver returns what saves the logins of a browser's session.
func (s *Server) stateSaver(b source.Browser) func(context.Context, string, bool) (logins.Info, []string, error) {
	return func(ctx context.Context, name string, create bool) (logins.Info, []string, error) {
		answer, err := s.Source.SaveState(ctx, b, api.StateRequest{Name: name, Create: create})
		var e *control.Error
		switch {
		case errors.As(err, &e) && e.Code == control.StateExists:
			return logins.Info{}, nil, fmt.Errorf("there is a login %q already: overwrite replaces it", name)
		case err != nil:
			return logins.Info{}, nil, source.Explain(err)
		}
		all, err := infos(answer.States)
		if err != nil || len(all) != 1 {
			return logins.Info{}, nil, fmt.Errorf("it is not known whether the login was saved: %w",
				errors.Join(err, errors.New("the answer is not one state")))
		}
		return all[0], answer.Lost, nil
	}
}

// stateLoader returns what reads a named login, to replace that of a session.
func (s *Server) stateLoader() func(context.Context, string) (*logins.State, error) {
	return func(ctx context.Context, name string) (*logins.State, error) {
		switch {
		case s.Source.States != nil: // it gives no values away
			return nil, errors.New("the logins of a service are not read: leases start with one by bmcp --pool " +
				"--state")
		case s.States == nil:
			return nil, errNoDirectory
		}
		return s.States.Load(name)
	}
}

// errNoDirectory is the error of bmcp without a place for named logins.
var errNoDirectory = errors.New("there is no directory for named logins: bmcp was started without HOME and " +
	"XDG_STATE_HOME")

// listStates lists the named logins, and says why one cannot be read. The program whose
// sessions start with them has them: if bmcp does not run it, it may be another user's.
func (s *Server) listStates(ctx context.Context) ([]logins.Info, []string, error) {
	conn := s.Source.States
	if conn == nil {
		if s.States == nil {
			return nil, nil, errNoDirectory
		}
		local := remote.Local(s.States)
		defer local.Close()
		conn = local
	}
	answer, err := api.StateList.Ask(ctx, conn, api.StateRequest{})
	if err != nil {
		return nil, nil, source.Explain(err)
	}
	all, err := infos(answer.States)
	return all, answer.Bad, err
}

// infos reads the states in records.
func infos(records []*record.Record) (all []logins.Info, err error) {
	for _, r := range records {
		var i logins.Info
		if _, err := r.Get("state", &i); err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}
