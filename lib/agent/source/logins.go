package source

import (
	"cmp"
	"context"
	"errors"

	"btools/lib/states/remote"
)

// errNoLogins is the error of a browser whose logins cannot be told from those of
// others.
var errNoLogins = errors.New("this browser is not a session of its own: only the login of a session can be saved")

// errUsersLogins is the error of a browser that has joined by its extension.
var errUsersLogins = errors.New("the logins of a browser that has joined by its extension are its user's, and " +
	"are not saved")

func (s *proxied) SaveState(ctx context.Context, b Browser, r remote.SaveRequest) (answer remote.Saved, err error) {
	r.Session = cmp.Or(b.Session, hostSession)
	err = s.ask(ctx, "state_save", r, &answer)
	return answer, err
}

func (j *hub) SaveState(context.Context, Browser, remote.SaveRequest) (remote.Saved, error) {
	return remote.Saved{}, errUsersLogins
}

func (s *pool) SaveState(ctx context.Context, b Browser, r remote.SaveRequest) (answer remote.Saved, err error) {
	if !b.Virtual {
		return answer, errNoLogins
	}
	r.Lease = b.Lease
	err = s.Call(ctx, "state_save", r, &answer)
	return answer, err
}

func (s *pool) States() remote.Conn {
	if s.own != nil { // it is of this user, and need not run
		return nil
	}
	return s
}
