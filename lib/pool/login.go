package pool

import (
	"context"
	"fmt"

	"btools/lib/control"
	"btools/lib/logins"
	"btools/lib/settings"
)

// login is the state with which the sessions of a lease start. The lease reads
// it once, so that all of its sessions start with the same.
type login struct {
	name  string
	state *logins.State
}

// inline is the name of a state that a request itself has.
const inline = "(inline)"

// loadLogin returns the state of a request, or of the pool, or nil if there is none.
func (p *pool) loadLogin(r Request) (*login, error) {
	v := p.service
	name, store := r.State, r.States
	if name == "" {
		name, store = p.cfg.State, v.States
	}
	why := ""
	if r.Inline != nil {
		name = inline
	}
	if name != "" {
		v.mu.Lock()
		why = p.whyNoStateLocked(r.Instance)
		v.mu.Unlock()
	}
	switch {
	case name == "":
		return nil, nil
	case why != "":
		return nil, control.Errorf(control.BadRequest, "cannot lease %s with the state %q: %s", p.describe(r.Instance),
			name, why)
	case r.Inline != nil:
		return &login{name: name, state: r.Inline}, nil
	case store == nil:
		return nil, control.Errorf(control.BadConfig, "there is no directory for states: set HOME or XDG_STATE_HOME")
	}
	state, err := store.Load(name)
	if err != nil {
		e := *control.ErrorOf(err)
		e.Message = fmt.Sprintf("cannot lease %s: %s", p.describe(r.Instance), e.Message)
		return nil, &e
	}
	return &login{name: name, state: state}, nil
}

// whyNoStateLocked says why leases of an instance, or "" for any, cannot start
// with a state, or returns "".
func (p *pool) whyNoStateLocked(instance string) string {
	for _, s := range p.slots {
		named := instance == s.set.ID || instance == s.set.Alias
		if s.set.Isolation != settings.Context && (instance == "" || named) {
			return fmt.Sprintf("instance %s has a browser to itself; only those with isolation = \"context\" can",
				s.set.ID)
		}
	}
	return ""
}

// stateName returns the name of the state; "": there is none.
func (g *login) stateName() string {
	if g == nil {
		return ""
	}
	return g.name
}

// LeaseState returns the state of a lease's session, and what could not be read.
func (v *Service) LeaseState(ctx context.Context, lease string) (*logins.State, []string, error) {
	l := v.lease(lease)
	switch {
	case l == nil:
		return nil, nil, ErrNoLease(lease)
	case l.entry == nil:
		return nil, nil, control.Errorf(control.BadRequest, "lease %s has a browser to itself: states are saved of "+
			"instances with isolation = \"context\"", lease)
	}
	s, done, err := l.use(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	state, lost, err := s.State(ctx)
	if err != nil {
		return nil, nil, control.Errorf(control.Failed, "cannot save the state of lease %s: %v", lease, err)
	}
	return state, lost, nil
}
