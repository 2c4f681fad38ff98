package command

import (
	"context"
	"encoding/json"
	"slices"

	"btools/lib/control"
	"btools/lib/pool"
	"btools/lib/private"
)

// right says who may call a method of the control socket.
type right int

const (
	// everyone is all users who can open the socket. Each sees and changes what is theirs.
	everyone right = iota + 1
	// owner is the user to whom the lease belongs that the parameters name. Without one the
	// method concerns what each user may see or end.
	owner
	// operator is root and the user who runs the service.
	operator
)

// rights are those of each method. Root and the user who runs the service may call all.
var rights = map[string]right{
	"status": everyone, // without what gives access to the leases of others
	"watch":  owner,    // the same
	"hold":   everyone,
	"renew":  owner, "rest": owner, "release": owner,
	"downloads": owner, "state_save": owner,
	"drain": operator, "scale": operator, "restart": operator, "reload": operator,
	// Each user has states of their own.
	"state_list": everyone, "state_get": everyone, "state_put": everyone, "state_delete": everyone,
}

// uidOf returns the user who makes a request.
func uidOf(ctx context.Context) int {
	if p := control.PeerOf(ctx); p != nil {
		return p.UID
	}
	return stranger
}

// stranger is the uid of nobody, to whom nothing belongs.
const stranger = -2

// serve returns the handler of the control socket.
func (h *handler) serve() control.Handler {
	m := h.methods()
	return func(ctx context.Context, method string, params json.RawMessage) (any, error) {
		if slices.Contains(m.Methods(), method) {
			if err := h.check(ctx, method, params); err != nil {
				return nil, err
			}
		}
		return m.Serve(ctx, method, params)
	}
}

// check returns an error for a request of a user who may not make it. The lease of somebody
// else is as unknown as one that there is not.
func (h *handler) check(ctx context.Context, method string, params json.RawMessage) error {
	uid := uidOf(ctx)
	switch rights[method] {
	case everyone:
		return nil
	case owner:
		var p struct {
			Lease string `json:"lease"`
		}
		json.Unmarshal(params, &p) // an error is the method's to tell
		if p.Lease != "" && !h.service.MayUse(uid, p.Lease) {
			return pool.ErrNoLease(p.Lease)
		}
		return nil
	}
	if private.IsOwn(uid) {
		return nil
	}
	e := control.Errorf(control.NotAllowed, "only root and the user who runs the service may call %s, not user %d",
		method, uid)
	e.Hint = "as root: sudo bpool " + method
	return e
}
