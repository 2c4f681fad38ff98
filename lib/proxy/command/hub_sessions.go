package command

import (
	"context"
	"encoding/json"
	"errors"

	"btools/lib/control"
	"btools/lib/record"
	"btools/lib/virtual/sessions"
)

// handleSessions answers session_list and session_end: of one browser, or of all
// that have joined.
func (h *extensionHub) handleSessions(ctx context.Context, method string, params json.RawMessage) (any, error) {
	var p struct {
		Instance string `json:"instance"`
		Name     string `json:"name"`
	}
	if len(params) > 0 {
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, control.Errorf(control.BadRequest, "bad parameters: %v", err)
		}
	}
	ids := h.idsOf(p.Instance)
	if p.Instance != "" && len(ids) == 0 {
		return nil, h.unknown(p.Instance)
	}
	end := method == "session_end"
	if end && p.Name == "" {
		return nil, control.Errorf(control.BadRequest, "session_end takes the name of a session")
	}
	found, of := []*record.Record{}, []*sessions.Registry{}
	for _, id := range ids {
		g := h.server.Sessions(id)
		if g == nil {
			continue
		}
		e := h.proxy
		e.HTTPURL += "/session/" + id
		for _, s := range g.List() {
			if !end || s.Name == p.Name {
				found, of = append(found, sessionRecord(s, e)), append(of, g)
			}
		}
	}
	if !end {
		return found, nil
	}
	return control.Later(func() (any, error) {
		var errs []error
		for _, g := range of {
			errs = append(errs, g.End(ctx, p.Name))
		}
		return found, errors.Join(errs...)
	}), nil
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
