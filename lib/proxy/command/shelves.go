package command

import (
	"context"
	"errors"
	"slices"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet"
	"btools/lib/proxy"
	"btools/lib/record"
)

// shelf has the sessions of one browser.
type shelf struct {
	*fleet.Fleet
	at record.Proxy // where they are found
}

// shelves returns the sessions that a request is about, of each browser. Its methods answer such requests.
type shelves func(api.Of) ([]shelf, error)

// list answers list.
func (find shelves) list(_ context.Context, of api.Of) (any, error) {
	all := []*record.Record{}
	in, err := find(of)
	for _, s := range in {
		for _, one := range s.List() {
			if of.Session == "" || one.Name == of.Session {
				all = append(all, sessionRecord(one, s.at))
			}
		}
	}
	return all, err
}

// release answers release: it ends the sessions with a name, or all.
func (find shelves) release(ctx context.Context, of api.Of) (any, error) {
	if of.All == (of.Session != "") {
		return nil, control.Errorf(control.BadRequest, "release takes the name of a session, or all: true")
	}
	in, err := find(of)
	if err != nil {
		return nil, err
	}
	ended, err := find.list(ctx, of)
	for _, s := range in {
		if of.All {
			err = errors.Join(err, s.EndAll(ctx))
		} else {
			err = errors.Join(err, s.End(ctx, of.Session))
		}
	}
	return ended, err
}

// attach answers attach: a person looks at a session, which that does not use.
func (find shelves) attach(ctx context.Context, r api.AttachRequest) (any, error) {
	in, err := find(api.Of{Instance: r.Instance, Session: r.Session})
	if err != nil {
		return nil, err
	}
	if len(in) == 0 {
		return nil, control.Errorf(control.SessionNotFound, "there is no session %q", r.Session)
	}
	return in[0].Attach(ctx, r)
}

// shelves returns the sessions of the browser that the request names, or of all that have joined; of a named session
// only those of the browsers that have it.
func (h *extensionHub) shelves(of api.Of) (all []shelf, err error) {
	in := h.server.List()
	if of.Instance != "" {
		j := h.server.Find(of.Instance)
		if j == nil {
			return nil, h.unknown(of.Instance)
		}
		in = []*proxy.Joined{j}
	}
	for _, j := range in {
		if of.Session != "" && !slices.ContainsFunc(j.Sessions.List(), func(s api.Session) bool {
			return s.Name == of.Session
		}) {
			continue
		}
		e := h.at
		e.HTTPURL += "/session/" + j.Instance.ID
		all = append(all, shelf{j.Sessions, e})
	}
	return all, nil
}
