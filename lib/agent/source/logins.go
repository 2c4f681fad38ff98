package source

import (
	"cmp"
	"context"
	"errors"

	"btools/lib/control/api"
)

// errNoLogins means that the logins of a browser cannot be told from those of others.
var errNoLogins = errors.New("this browser is not a session of its own: only the login of a session can be saved")

// errUsersLogins means that a browser has joined by its extension.
var errUsersLogins = errors.New("the logins of a browser that has joined by its extension are its user's, and " +
	"are not saved")

func (s *bproxy) SaveState(ctx context.Context, b Browser, r api.StateRequest) (api.States, error) {
	r.Session = cmp.Or(b.Session, hostSession)
	return api.StateSave.Ask(ctx, s.last(), r)
}

func (h *hub) SaveState(context.Context, Browser, api.StateRequest) (api.States, error) {
	return api.States{}, errUsersLogins
}

func (s *bpool) SaveState(ctx context.Context, b Browser, r api.StateRequest) (api.States, error) {
	if !b.Virtual {
		return api.States{}, errNoLogins
	}
	r.Lease = b.Lease
	return api.StateSave.Ask(ctx, s, r)
}
