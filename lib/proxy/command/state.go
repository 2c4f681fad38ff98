package command

import (
	"context"
	"encoding/json"
	"path/filepath"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/states"
	statecommand "btools/lib/states/command"
)

// States lists, saves or changes the states with which sessions start.
func States(c *cli.Context) error {
	return statecommand.Run(c, func(name, from string) (saved statecommand.Saved, err error) {
		store, err := statecommand.Store(c)
		if err != nil {
			return saved, err
		}
		p, err := isolatedProxy(c)
		if err != nil {
			return saved, err
		}
		err = callInto(p, "state_save", saveRequest{Name: name, Dir: store.Dir, Session: from}, &saved, 0)
		return saved, err
	})
}

// saveRequest asks for the state of a session to be saved in a directory: the
// proxy may have been started with another one.
type saveRequest struct {
	Name    string `json:"name"`
	Dir     string `json:"state_dir"`
	Session string `json:"session"`
	Create  bool   `json:"create,omitempty"` // only if there is none of this name
}

// saveState saves the state of a session.
func (s *service) saveState(ctx context.Context, params json.RawMessage) (any, error) {
	var r saveRequest
	if err := json.Unmarshal(params, &r); err != nil || r.Session == "" || !filepath.IsAbs(r.Dir) {
		return nil, control.Errorf(control.BadRequest, "state_save takes name, state_dir and session")
	}
	if err := states.CheckName(r.Name); err != nil {
		return nil, control.Errorf(control.BadRequest, "%v", err)
	}
	return control.Later(func() (any, error) {
		session, done, err := s.proxy.Sessions.Find(ctx, r.Session)
		if err != nil {
			return nil, err
		}
		defer done()
		state, lost, err := session.State(ctx)
		if err != nil {
			return nil, control.Errorf(control.Failed, "cannot save the state %q of the session %q: %v", r.Name,
				r.Session, err)
		}
		store := &states.Store{Dir: r.Dir}
		save := store.Save
		if r.Create {
			save = store.Create
		}
		if err := save(ctx, r.Name, state); err != nil {
			return nil, err
		}
		return statecommand.NewSaved(state.Describe(r.Name), lost), nil
	}), nil
}
