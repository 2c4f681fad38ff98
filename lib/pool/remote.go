package pool

import (
	"crypto/subtle"
	"slices"
	"time"

	"btools/lib/control"
	"btools/lib/fleet"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/tokens"
)

// Clients on other machines have tokens. What their leases may be, and where they are, is here; package web serves
// them.

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

// PoolOf returns the pool that a request of a token means which names none: the token's first one, or the default pool.
func PoolOf(t *tokens.Token) string {
	if t.Pools != nil {
		return t.Pools[0]
	}
	return ""
}

// Admit returns how long a request of a token for a lease of a pool waits unless it says so itself, or the error that
// the token may not lease there.
func (v *Service) Admit(t *tokens.Token, pool string) (time.Duration, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, err := v.find(pool)
	if err != nil {
		return 0, err
	}
	return p.cfg.LeaseTimeout, p.admits(t)
}

// RemotePrefix precedes the ID and secret of a lease in its path.
const RemotePrefix = "/lease/"

// Remote is where a lease is for its holder on another machine.
type Remote struct {
	Path   string          `json:"path"`   // of its address there: /lease/ID.SECRET
	Local  string          `json:"local"`  // host:port of its endpoint on this machine
	Prefix string          `json:"prefix"` // of its paths there; "": none
	Ended  <-chan struct{} `json:"-"`
}

// RemoteOf returns where a lease is that a token has.
func (v *Service) RemoteOf(id string) (Remote, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.leases[id]
	if l == nil || l.secret == "" {
		return Remote{}, errLeaseEnded(id)
	}
	at := Remote{Path: RemotePrefix + l.id + "." + l.secret, Local: l.slot.addr, Ended: l.ctx.Done()}
	if l.slot.shares() {
		at.Prefix = fleet.Prefix + l.id
	}
	return at, nil
}

// Enter is RemoteOf for a client that knows the secret of a lease.
func (v *Service) Enter(id, secret string) (Remote, error) {
	if !leaseID().MatchString(id) {
		return Remote{}, ErrNoLease(id)
	}
	at, err := v.RemoteOf(id)
	if err == nil && subtle.ConstantTimeCompare([]byte(at.Path), []byte(RemotePrefix+id+"."+secret)) != 1 {
		return Remote{}, ErrNoLease(id)
	}
	return at, err
}

// EndRemoved ends the leases of the tokens that are not there any more.
func (v *Service) EndRemoved(there func(*tokens.Token) bool) {
	v.mu.Lock()
	var removed []*lease
	for _, l := range v.leases {
		if l.by.Token != nil && !there(l.by.Token) {
			removed = append(removed, l)
		}
	}
	v.mu.Unlock()
	for _, l := range removed {
		v.end(l.id, "released", "the token "+l.by.Token.Name+" was removed", false)
	}
}

// LeasesOf returns the records of the leases that a token has, the oldest first.
func (v *Service) LeasesOf(t *tokens.Token) []*record.Record {
	v.mu.Lock()
	var all []*lease
	for _, l := range v.leases {
		if l.by.Token != nil && l.by.Token.Name == t.Name {
			all = append(all, l)
		}
	}
	v.mu.Unlock()
	slices.SortFunc(all, func(a, b *lease) int { return a.started.Compare(b.started) })
	records := []*record.Record{}
	for _, l := range all {
		v.mu.Lock()
		expires := l.expires
		v.mu.Unlock()
		records = append(records, l.record(expires))
	}
	return records
}
