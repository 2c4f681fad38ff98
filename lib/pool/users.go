package pool

import (
	"context"
	"os"
	"os/user"
	"strconv"

	"btools/lib/control/api"
	"btools/lib/private"
	"btools/lib/proxy"
)

// A lease, its session, its downloads and its endpoint belong to the user whose connection
// got it. Root and the user who runs the service may use and end those of all.

// MayUse reports whether a user may use or end a lease. A lease of which nothing is known
// is not kept from anybody.
func (v *Service) MayUse(uid int, lease string) bool {
	if private.IsOwn(uid) {
		return true
	}
	v.mu.Lock()
	l := v.leases[lease]
	v.mu.Unlock()
	if l != nil {
		return l.uid == uid
	}
	e, ok := v.events.Latest(func(e Event) bool { return e.Lease == lease && e.UID != nil })
	return !ok || *e.UID == uid
}

// userName returns the name of a user, or the uid if it has none; "" for the user who runs
// the service, whose leases need no name.
func (v *Service) userName(uid int) string {
	if uid == -1 || uid == os.Geteuid() {
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

// StatusFor returns the status as a user may see it: leases of others are without what gives
// access to them.
func (v *Service) StatusFor(uid int, name string) (*api.PoolsStatus, error) {
	st, err := v.Status(name)
	if err != nil || private.IsOwn(uid) {
		return st, err
	}
	for _, p := range st.Pools {
		for k := range p.Instances {
			if i := &p.Instances[k]; i.Leased && *i.UID != uid {
				i.Lease, i.Endpoint, i.Proxy, i.Limits, i.Login = "", "", nil, nil, nil
			}
		}
	}
	return st, nil
}

// EventsFor is Events as a user may see them: those of leases of others are without their
// IDs and their downloads.
func (v *Service) EventsFor(ctx context.Context, uid int, after int64) ([]Event, error) {
	events, err := v.Events(ctx, after)
	if private.IsOwn(uid) {
		return events, err
	}
	for k := range events {
		if e := &events[k]; e.UID != nil && *e.UID != uid {
			e.Lease, e.Why, e.Download = "", "", nil
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
