package command

import (
	"context"
	"encoding/json"
	"slices"

	"btools/lib/control"
	"btools/lib/pool"
)

// right says who may call a method of the control socket.
type right int

const (
	// everyone is all users who can open the socket, and all tokens. Each sees and changes what is theirs.
	everyone right = iota + 1
	// owner is the user or token to whom the lease belongs that the parameters name. Without one the
	// method concerns what each may see or end.
	owner
	// operator is root, the user who runs the service, and tokens with admin.
	operator
)

// rights are those of each method. An operator may call all.
var rights = map[string]right{
	"status": everyone, // without what gives access to the leases of others
	"watch":  owner,    // the same
	"hold":   everyone,
	"renew":  owner, "rest": owner, "release": owner,
	"downloads": owner, "state_save": owner, "lease_state": owner, "attach": owner, "freeze": owner,
	"drain": operator, "scale": operator, "restart": operator, "reload": operator,
	"upgrade": operator, "relay": operator, "http": operator,
	// Each user has states of their own.
	"state_list": everyone, "state_get": everyone, "state_put": everyone, "state_delete": everyone,
}

// nobody makes the requests of which it is not known who does.
var nobody = &control.Peer{UID: control.Stranger}

// callerOf returns who makes a request.
func callerOf(ctx context.Context) *control.Peer {
	if p := control.PeerOf(ctx); p != nil {
		return p
	}
	return nobody
}

// local returns the handler of the control socket, for what concerns this process alone.
func (h *handler) local() control.Handler {
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
	who := callerOf(ctx)
	switch rights[method] {
	case everyone:
		return nil
	case owner:
		if lease := leaseOf(params); lease != "" && !h.mayUse(who, lease) {
			return pool.ErrNoLease(lease)
		}
		return nil
	}
	if who.IsOperator() {
		return nil
	}
	e := control.Errorf(control.NotAllowed,
		"only root, the user who runs the service and tokens with admin may call %s, "+
			"not %v", method, who)
	e.Hint = "as root: sudo bpool " + method
	return e
}

// leaseOf returns the lease that the parameters of a request name; "": none.
func leaseOf(params json.RawMessage) string {
	var p struct {
		Lease string `json:"lease"`
	}
	json.Unmarshal(params, &p) // an error is the method's to tell
	return p.Lease
}
