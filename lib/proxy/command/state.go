package command

import (
	"context"

	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/logins"
	statecommand "btools/lib/logins/command"
)

// States lists, saves or changes the states with which sessions start.
func States(c *cli.Context) error {
	var from string
	return statecommand.Run(c, func(ctx context.Context, save bool) (*control.Client, error) {
		if !save && !c.IsSet("port") {
			if ps, err := sharedProxies(c); err != nil || len(client.Preferred(ps)) != 1 {
				return nil, err
			}
		}
		p, name, err := proxyOf(c, c.String("from"))
		if err != nil {
			return nil, err
		}
		from = name
		return p.Dial(ctx)
	}, func(string) api.Of { return api.Of{Session: from} })
}

// saveState saves the state of a session.
func (s *service) saveState(ctx context.Context, r api.StateRequest) (any, error) {
	if r.Session == "" {
		return nil, errNoSession
	}
	return s.states.Save(ctx, r, func() (*logins.State, []string, error) {
		session, done, err := s.proxy.Sessions.Find(ctx, r.Session)
		if err != nil {
			return nil, nil, err
		}
		defer done()
		state, lost, err := session.State(ctx)
		if err != nil {
			return nil, nil, control.Errorf(control.Failed, "cannot save the state %q of the session %q: %v", r.Name,
				r.Session, err)
		}
		return state, lost, nil
	})
}
