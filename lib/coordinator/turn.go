package coordinator

import (
	"btools/lib/agent/source"
	"btools/lib/coordinator/turns"
	"btools/lib/mcp/child"
)

// turn is the position of a request among those that may be for the same child.
type turn = turns.Turn[*supervisor, *source.Lease]

// newTurn returns the turn of a request, nil if no child answers it.
func (req *request) newTurn() *turn {
	h := req.host
	group := ""
	switch req.Method {
	case "tools/call":
		if h.server.isOwn(req.env.Name) {
			return nil
		}
		return &turn{Group: func() string {
			r, ok := h.tools(req.env.Audience).Route(req.env.Name)
			if !ok {
				return ""
			}
			w, _ := source.RefIn(req.env.Args, r.Stripped) // an error is reported later
			return groupOf(r.Child, w)
		}}
	case "prompts/get", "completion/complete":
		group = "prompts"
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		group = "resource\x00" + req.env.URI
	default:
		return nil
	}
	return &turn{Group: func() string { return group }}
}

// groupOf names the calls that may be for the same process as one of a child for this
// browser.
func groupOf(child *child.Spec, w source.BrowserRef) string {
	group := "call\x00" + child.Name
	if w != (source.BrowserRef{}) {
		group += "\x00" + w.Pool + "\x00" + w.Instance + "\x00" + w.Session
	}
	return group
}

// endTurn ends the turn of a request, so that later ones can proceed.
func (req *request) endTurn() {
	if at := req.host.turns.End(req.turn); at != nil {
		req.host.server.releasing.Go(at.Release)
	}
}
