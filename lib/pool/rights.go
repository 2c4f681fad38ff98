package pool

import (
	"context"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/tokens"
)

// A lease, its session, its downloads and its endpoint belong to the user whose connection
// got it, or to the token of a client on another machine. An operator may use and end those of all.

// View is a service as somebody may see it.
type View struct {
	service *Service
	who     *control.Peer
}

// For returns the service as somebody may see it.
func (v *Service) For(who *control.Peer) View { return View{v, who} }

// MayUse reports whether the viewer may use or end a lease. A lease without a known owner is open to all.
func (w View) MayUse(lease string) bool {
	if w.who.IsOperator() {
		return true
	}
	if l := w.service.lease(lease); l != nil {
		return l.by.String() == w.who.String()
	}
	by := w.service.events.ownerOf(lease)
	return by == "" || by == w.who.String()
}

// Status returns the status without what gives access to the leases of others.
func (w View) Status(pool string) (*api.PoolsStatus, error) {
	st, err := w.service.Status(pool)
	if err == nil {
		for k := range st.Pools {
			w.hide(&st.Pools[k])
		}
	}
	return st, err
}

// hide removes from a status what only the owner of a lease and an operator may see.
func (w View) hide(p *api.PoolStatus) {
	if w.who.IsOperator() {
		return
	}
	for k := range p.Instances {
		if i := &p.Instances[k]; i.Leased && i.By != w.who.String() {
			i.Lease, i.Holder, i.Endpoint = "", "", ""
			i.Proxy, i.Limits, i.Login, i.Control, i.Ask = nil, nil, nil, nil, nil
		}
	}
}

// Events is Service.Events without the IDs, holders and downloads of the leases of others.
func (w View) Events(ctx context.Context, after int64) ([]Event, error) {
	events, err := w.service.Events(ctx, after)
	if w.who.IsOperator() {
		return events, err
	}
	for k := range events {
		if e := &events[k]; e.By != "" && e.By != w.who.String() {
			e.Lease, e.Holder, e.Why, e.Download = "", "", "", nil
		}
	}
	return events, err
}

// Leases returns the records of the viewer's own leases, the oldest first.
func (w View) Leases() []*record.Record {
	all := w.service.leasesWhere(func(l *lease) bool { return l.by.String() == w.who.String() })
	slices.SortFunc(all, func(a, b *lease) int { return a.started.Compare(b.started) })
	records := []*record.Record{}
	for _, l := range all {
		w.service.mu.Lock()
		expires := l.expires
		w.service.mu.Unlock()
		records = append(records, l.record(expires))
	}
	return records
}

// Holder returns the owner's name of a lease, "" for who runs the service, and the holder's name as it is shown.
func (v *Service) Holder(by *control.Peer, holder string) (user, shown string) {
	return v.userNames.of(by), printable(holder)
}

// userNames caches the names of users by their uid.
type userNames struct{ sync.Map }

// of returns the name of a user, or the uid if it has none; "" for a token and for the user who runs
// the service, whose leases need no name.
func (n *userNames) of(who *control.Peer) string {
	uid := who.UID
	if who.Token != nil || uid == -1 || uid == os.Geteuid() {
		return ""
	}
	name, known := n.Load(uid)
	if !known {
		name = strconv.Itoa(uid)
		if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
			name = u.Username
		}
		n.Store(uid, name)
	}
	return name.(string)
}

// admits returns an error if a client with a token may not lease from the pool; nil is a user of this machine.
func (p *pool) admits(t *tokens.Token) error {
	switch {
	case t == nil || t.Admin:
		return nil
	case t.Pools != nil && !slices.Contains(t.Pools, p.cfg.Name):
		return control.Errorf(control.NotAllowed, "the token %s may not lease from the pool %s", t.Name, p.cfg.Name)
	case t.Trust:
		return nil
	}
	for _, s := range p.slots {
		if s.set.Isolation != settings.Context {
			return control.Errorf(control.NotAllowed,
				"the token %s may not lease from the pool %s: a whole browser reads "+
					"the files of the service's user; pools with isolation = \"context\" have sessions, or give the "+
					"token trust",
				t.Name, p.cfg.Name)
		}
	}
	return nil
}

// PoolOf returns the pool of a token's requests that name none: the token's first pool, or "" for the default pool.
func PoolOf(t *tokens.Token) string {
	if t.Pools != nil {
		return t.Pools[0]
	}
	return ""
}

// Admit returns how long the viewer's request for a lease waits by default, or the error that
// its token may not lease from the pool.
func (w View) Admit(pool string) (time.Duration, error) {
	w.service.mu.Lock()
	defer w.service.mu.Unlock()
	p, err := w.service.pools.find(pool)
	if err != nil {
		return 0, err
	}
	return p.cfg.LeaseTimeout, p.admits(w.who.Token)
}

// Standard returns the name of a pool, "" for the default one, and how long its requests wait by default.
func (v *Service) Standard(pool string) (name string, most time.Duration, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, err := v.pools.find(pool)
	if err != nil {
		return "", 0, err
	}
	return p.cfg.Name, p.cfg.LeaseTimeout, nil
}

// RemotePrefix precedes the ID and secret of a lease in its path.
const RemotePrefix = "/lease/"

// Remote is the address of a lease for its holder on another machine.
type Remote struct {
	Path   string          `json:"path"`   // address there: /lease/ID.SECRET
	Local  string          `json:"local"`  // host:port of the endpoint on this machine
	Prefix string          `json:"prefix"` // prefix of the paths there; "": none
	Ended  <-chan struct{} `json:"-"`
}

// RemoteOf returns the address of a token's lease.
func (v *Service) RemoteOf(id string) (Remote, error) {
	l := v.lease(id)
	if l == nil || l.secret == "" {
		return Remote{}, errLeaseEnded(id)
	}
	at := Remote{Path: RemotePrefix + l.id + "." + l.secret, Local: l.slot.addr, Ended: l.ctx.Done()}
	if l.slot.shares() {
		at.Prefix = fleet.Prefix + l.id
	}
	return at, nil
}

// EndRemoved ends the leases of tokens that no longer exist.
func (v *Service) EndRemoved(exists func(*tokens.Token) bool) {
	for _, l := range v.leasesWhere(func(l *lease) bool { return l.by.Token != nil && !exists(l.by.Token) }) {
		l.end("released", "the token "+l.by.Token.Name+" was removed", false)
	}
}
