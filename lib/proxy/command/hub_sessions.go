package command

import (
	"context"
	"encoding/json"

	"btools/lib/control"
	"btools/lib/record"
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
	all := []*record.Record{}
	for _, i := range h.server.Hub.List() {
		g := h.server.Sessions(i.ID)
		l := h.server.Hub.Find(p.Instance)
		if g == nil || p.Instance != "" && (l == nil || l.Instance.ID != i.ID) {
			continue
		}
		e := h.proxy
		e.HTTPURL += "/session/" + i.ID
		for _, s := range g.List() {
			if method == "session_list" || s.Name == p.Name {
				all = append(all, sessionRecord(s, e))
			}
		}
	}
	if method == "session_list" {
		return all, nil
	}
	l := h.server.Hub.Find(p.Instance)
	if l == nil || p.Name == "" || p.Instance == "" {
		return nil, control.Errorf(control.BadRequest, "session_end takes a browser that has joined and the name of a "+
			"session")
	}
	g := h.server.Sessions(l.Instance.ID)
	return control.Later(func() (any, error) {
		if g == nil {
			return all, nil
		}
		return all, g.End(ctx, p.Name)
	}), nil
}
