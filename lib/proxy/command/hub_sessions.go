package command

import (
	"context"
	"errors"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet"
	"btools/lib/record"
)

// endSession answers release: it ends the sessions with a name.
func (h *extensionHub) endSession(ctx context.Context, p api.Of) (any, error) {
	if p.Session == "" {
		return nil, errNoSession
	}
	found, of, err := h.findSessions(p)
	if err != nil {
		return nil, err
	}
	return control.Later(func() (any, error) {
		var errs []error
		for _, g := range of {
			errs = append(errs, g.End(ctx, p.Session))
		}
		return found, errors.Join(errs...)
	}), nil
}

// attach has a person look at a session of a browser that has joined.
func (h *extensionHub) attach(ctx context.Context, r api.AttachRequest) (any, error) {
	if r.Session == "" {
		return nil, control.Errorf(control.Unavailable,
			"a browser that has joined is seen in its own window; its sessions "+
				"are seen here")
	}
	_, of, err := h.findSessions(api.Of{Instance: r.Instance, Session: r.Session})
	if err != nil {
		return nil, err
	}
	if len(of) == 0 {
		return nil, control.Errorf(control.SessionNotFound, "there is no session %q", r.Session)
	}
	return of[0].Attach(ctx, r)
}

// findSessions returns the records of sessions, and for each the registry that has it.
func (h *extensionHub) findSessions(p api.Of) (found []*record.Record, of []*fleet.Fleet, err error) {
	ids := h.idsOf(p.Instance)
	if p.Instance != "" && len(ids) == 0 {
		return nil, nil, h.unknown(p.Instance)
	}
	found = []*record.Record{}
	for _, id := range ids {
		g := h.server.Sessions(id)
		if g == nil {
			continue
		}
		e := h.at
		e.HTTPURL += "/session/" + id
		if here := sessionRecords(g, e, p.Session); len(here) > 0 {
			found, of = append(found, here...), append(of, g)
		}
	}
	return found, of, nil
}

// idsOf returns the ID of the browser that has a name, or those of all that have
// joined if it is "".
func (h *extensionHub) idsOf(name string) (ids []string) {
	if name != "" {
		if l := h.server.Hub.Find(name); l != nil {
			ids = append(ids, l.Instance.ID)
		}
		return ids
	}
	for _, i := range h.server.Hub.List() {
		ids = append(ids, i.ID)
	}
	return ids
}
