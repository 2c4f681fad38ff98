package pool

import (
	"context"
	"os"
	"os/user"
	"strconv"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/proxy"
)

// A lease, its session, its downloads and its endpoint belong to the user whose connection
// got it, or to the token. An operator may use and end those of all.

// MayUse reports whether somebody may use or end a lease. A lease of which nothing is known
// is not kept from anybody.
func (v *Service) MayUse(who *control.Peer, lease string) bool {
	if who.IsOperator() {
		return true
	}
	v.mu.Lock()
	l := v.leases[lease]
	v.mu.Unlock()
	if l != nil {
		return l.by.String() == who.String()
	}
	e, ok := v.events.Latest(func(e Event) bool { return e.Lease == lease && e.By != "" })
	return !ok || e.By == who.String()
}

// Has reports whether there is a lease.
func (v *Service) Has(lease string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.leases[lease] != nil
}

// userName returns the name of a user, or the uid if it has none; "" for the user who runs
// the service, whose leases need no name, and for a token.
func (v *Service) userName(who *control.Peer) string {
	uid := who.UID
	if who.Token != nil || uid == -1 || uid == os.Geteuid() {
		return ""
	}
	name, known := v.userNames.Load(uid)
	if !known {
		name = strconv.Itoa(uid)
		if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
			name = u.Username
		}
		v.userNames.Store(uid, name)
	}
	return name.(string)
}

// StatusFor returns the status as somebody may see it: leases of others are without what gives
// access to them.
func (v *Service) StatusFor(who *control.Peer, name string) (*api.PoolsStatus, error) {
	st, err := v.Status(name)
	if err != nil || who.IsOperator() {
		return st, err
	}
	for k := range st.Pools {
		hideLeases(&st.Pools[k], who)
	}
	return st, nil
}

// hideLeases removes from a status what only the owner of a lease and an operator may see.
func hideLeases(p *api.PoolStatus, who *control.Peer) {
	if who.IsOperator() {
		return
	}
	for k := range p.Instances {
		if i := &p.Instances[k]; i.Leased && i.By != who.String() {
			i.Lease, i.Holder, i.Endpoint = "", "", ""
			i.Proxy, i.Limits, i.Login, i.Control = nil, nil, nil, nil
		}
	}
}

// EventsFor is Events as somebody may see them: those of leases of others are without their
// IDs, holders and downloads.
func (v *Service) EventsFor(ctx context.Context, who *control.Peer, after int64) ([]Event, error) {
	events, err := v.Events(ctx, after)
	if who.IsOperator() {
		return events, err
	}
	for k := range events {
		if e := &events[k]; e.By != "" && e.By != who.String() {
			e.Lease, e.Holder, e.Why, e.Download = "", "", "", nil
		}
	}
	return events, err
}

// endpointUser returns the user whose programs may use the endpoint of an instance: that of
// its lease, or of the last one if that keeps its connections.
func (s *slot) endpointUser() int {
	s.service.mu.Lock()
	defer s.service.mu.Unlock()
	return s.uid
}

// guardEndpoint has the endpoint of an instance refuse the programs of other users.
func (s *slot) guardEndpoint(p *proxy.Proxy) {
	if !s.set.WSLWindows {
		p.Front.Guard.User = s.endpointUser
	}
}
