package command

import (
	"context"
	"path/filepath"
	"time"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/states"
	statecommand "btools/lib/states/command"
)

// saveParams asks for the state of a lease to be saved in a directory: the
// service may have been started with another one.
type saveParams struct {
	Name  string `json:"name"`
	Dir   string `json:"state_dir"`
	Lease string `json:"lease"`
	// Create saves it only if there is none of this name.
	Create bool `json:"create,omitempty"`
}

// saveTimeout is how long a save may take; the service bounds itself.
const saveTimeout = 6 * time.Minute

// States lists, saves or changes the states with which leases start.
func States(c *cli.Context) error {
	return statecommand.Run(c, func(name, from string) (saved statecommand.Saved, err error) {
		store, err := statecommand.Store(c)
		if err != nil {
			return saved, err
		}
		err = callWithin(c, saveTimeout, "state_save", saveParams{Name: name, Dir: store.Dir, Lease: from}, &saved)
		return saved, err
	})
}

// saveState saves the state of a lease.
func (h *handler) saveState(ctx context.Context, p saveParams) (any, error) {
	if err := checkState(p.Name, p.Dir); err != nil {
		return nil, err
	}
	return control.Later(func() (any, error) {
		state, lost, err := h.service.LeaseState(ctx, p.Lease)
		if err != nil {
			return nil, err
		}
		store := &states.Store{Dir: p.Dir}
		save := store.Save
		if p.Create {
			save = store.Create
		}
		if err := save(ctx, p.Name, state); err != nil {
			return nil, err
		}
		return statecommand.NewSaved(state.Describe(p.Name), lost), nil
	}), nil
}

// checkState rejects an invalid name or directory of a state.
func checkState(name, dir string) error {
	if err := states.CheckName(name); err != nil {
		return control.Errorf(control.BadRequest, "%v", err)
	}
	if !filepath.IsAbs(dir) {
		return control.Errorf(control.BadRequest, "state_dir must be the absolute path of the directory of the state, "+
			"not %q", dir)
	}
	return nil
}
