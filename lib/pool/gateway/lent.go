package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet"
	"btools/lib/guard"
	"btools/lib/pool"
	"btools/lib/pool/remote"
	"btools/lib/record"
	"btools/lib/tokens"
)

// Lent is the leases on other hosts that clients of this machine have: whose each is, when it ends, what its holder
// is told, and where its browser is served here. Create it with NewLent.
type Lent struct {
	gateway *Gateway
	guard   guard.Guard
	note    func(e pool.Event, held time.Duration)
	ctx     context.Context
	stop    context.CancelFunc

	mu     sync.Mutex
	closed bool
	leases map[string]*loan
	kept   map[string]*remote.Offer // by pool and Keep: the host of the last lease
	addr   string                   // host:port at which the browsers are served; "": nowhere yet
}

// LoanRequest is a request of a client of this machine for a lease on another host.
type LoanRequest struct {
	Request
	By   *control.Peer // owner of the lease
	User string        // the owner's name; "": who runs this program
	TTL  time.Duration // 0: no limit
	pool.Binding
}

// loan is a lease on another host and its holder.
type loan struct {
	LoanRequest
	*Lease
	of      record.Lease    // as the host knows it
	browser record.Instance // at its address here
	started time.Time
	secret  string // of its address by HTTP, if a token has it

	// Under the lock of Lent:
	expires time.Time // zero: never
	timer   *time.Timer
	resting time.Time // since when its holder does not use it; zero: it does
	notices pool.Notices

	fetching sync.Mutex // guards dir
	dir      string     // has the files that its session has downloaded; "": none yet
}

// NewLent returns the leases of a gateway, none yet. The guard is that of their browsers' port; note, if not nil, is
// told of each lease, and of its end after a time.
func NewLent(g *Gateway, of guard.Guard, note func(e pool.Event, held time.Duration)) *Lent {
	t := &Lent{gateway: g, guard: of, note: note, leases: map[string]*loan{},
		kept: map[string]*remote.Offer{}}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

// Hold leases a browser of any host and returns the record of the lease. The context is that of the client; the
// request ends with asking as well.
func (t *Lent) Hold(ctx, asking context.Context, r LoanRequest) (*record.Record, error) {
	lease, err := t.gateway.Lease(asking, r.Request)
	if err != nil {
		return nil, err
	}
	return t.lend(ctx, asking, r, lease)
}

// Keeps reports whether a host in the request's region has had a lease that kept the same.
func (t *Lent) Keeps(r LoanRequest) bool { return r.Keep != "" && t.keeps(r) != nil }

// keeps returns what the host offers that had the last lease which kept the same, or nil. It is nil as well if the
// request is for another region.
func (t *Lent) keeps(r LoanRequest) *remote.Offer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.kept[r.kept()]; o != nil && (r.Region == "" || r.Region == o.Region) {
		return o
	}
	return nil
}

// kept returns the name of what the request keeps.
func (r *LoanRequest) kept() string { return r.Pool + " " + r.Keep }

// Again leases a browser of the host that had the last lease which kept the same, if there was one and the host has
// room now. The context is that of the client.
func (t *Lent) Again(ctx context.Context, r LoanRequest) (rec *record.Record, is bool) {
	o := t.keeps(r)
	if o == nil {
		return nil, false
	}
	asking, cancel := context.WithTimeout(ctx, slowTime)
	defer cancel()
	lease, _, err := t.gateway.grant(asking, o, r.Request)
	if err == nil {
		rec, err = t.lend(ctx, ctx, r, lease)
	}
	return rec, err == nil
}

// Forget forgets which host had the last lease that kept the same.
func (t *Lent) Forget(r LoanRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.kept, r.kept())
}

// lend makes a lease the client's.
func (t *Lent) lend(ctx, asking context.Context, r LoanRequest, lease *Lease) (*record.Record, error) {
	l := &loan{LoanRequest: r, Lease: lease, started: time.Now(),
		of: record.Member[record.Lease](lease.Record, "lease")}
	err := context.Cause(asking)
	if err == nil {
		err = t.add(ctx, l)
	}
	if err != nil {
		t.release(l)
		return nil, err
	}
	l.listen(func(lines []string) {
		t.mu.Lock()
		defer t.mu.Unlock()
		l.notices.Add(lines...)
	}, func(from string) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if l.Keep != "" {
			t.kept[l.kept()] = l.offer()
		}
		t.tell(l, "moved", "from the host "+from)
	})
	return t.record(l), nil
}

// maxKept is the greatest number of hosts that are remembered.
const maxKept = 10_000

// add notes a lease and binds it to its holder.
func (t *Lent) add(ctx context.Context, l *loan) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return control.Errorf(control.Stopping, "the service is stopping")
	}
	if !pool.IsLeaseID(l.ID) || t.leases[l.ID] != nil {
		return control.Errorf(control.Failed, "the host %s has answered with a lease that is not its own", l.Host())
	}
	if err := t.serveLocked(l); err != nil {
		return err
	}
	if by := l.By.Token; by != nil {
		if !by.Trust && !by.Admin && l.browser.WSURL != "" && !l.isSession() {
			return control.Errorf(control.NotAllowed,
				"the token %s may not lease a whole browser, which reads the files of its host's user: give it trust",
				by.Name)
		}
		l.secret = rand.Text()
	}
	t.leases[l.ID] = l
	if l.Keep != "" {
		if len(t.kept) >= maxKept {
			clear(t.kept) // their hosts have forgotten most of them, too
		}
		t.kept[l.kept()] = l.offer()
	}
	t.tell(l, "leased", "")
	t.extendLocked(l, l.TTL)
	l.Bind(ctx, l.ctx, t.gateway.running.Go, func(why string) { t.end(l, "released", why) })
	context.AfterFunc(l.ctx, func() {
		var ended *EndedError
		switch why := l.Why(); {
		case errors.Is(why, ErrReleased):
		case errors.As(why, &ended) && ended.Yielded:
			t.end(l, pool.Yielded, "")
		default:
			t.end(l, pool.Lost, why.Error())
		}
	})
	return nil
}

// offer returns an offer of what is free at the lease's host.
func (l *loan) offer() *remote.Offer {
	at := l.place()
	return &remote.Offer{Region: at.host.region, Host: at.host.name, Pool: l.of.Pool, URL: at.host.url}
}

// extendLocked has a lease end after a time, unless that is 0.
func (t *Lent) extendLocked(l *loan, ttl time.Duration) {
	if l.TTL = ttl; ttl <= 0 {
		return
	}
	l.expires = time.Now().Add(ttl)
	if l.timer != nil {
		l.timer.Reset(ttl)
		return
	}
	l.timer = time.AfterFunc(ttl, func() {
		t.mu.Lock()
		over := !time.Now().Before(l.expires)
		t.mu.Unlock()
		if over {
			t.end(l, "expired", "")
		}
	})
}

// tell tells of an event of a lease.
func (t *Lent) tell(l *loan, event, why string) {
	if t.note != nil {
		t.note(pool.Event{Event: event, Pool: l.of.Pool, Instance: l.of.Instance, Lease: l.ID, By: l.By.String(),
			User: l.User, Holder: l.Holder, Host: l.Host(), Why: why}, time.Since(l.started))
	}
}

// end ends a lease and reports whether it had not ended before.
func (t *Lent) end(l *loan, event, why string) bool {
	t.mu.Lock()
	if t.leases[l.ID] != l {
		t.mu.Unlock()
		return false
	}
	delete(t.leases, l.ID)
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.notices.Ended = pool.EndReason(event, l.TTL); event == pool.Lost {
		l.notices.Ended = "the lease has ended: " + why
	}
	l.notices.Yielded = event == pool.Yielded
	l.notices.Add()
	t.tell(l, event, why)
	t.mu.Unlock()
	if l.ctx.Err() == nil { // else the host has ended it, or does so by itself
		t.release(l)
	}
	l.fetching.Lock()
	defer l.fetching.Unlock()
	if l.dir != "" {
		os.RemoveAll(l.dir)
	}
	return true
}

// release has the host end a lease. If it does not answer soon, it is asked again after release has returned.
func (t *Lent) release(l *loan) {
	done := make(chan struct{})
	t.gateway.running.Go(func() {
		defer close(done)
		l.Lease.Release(context.Background())
	})
	select {
	case <-done:
	case <-time.After(slowTime):
	}
}

// record returns the record of a lease as its holder gets it.
func (t *Lent) record(l *loan) *record.Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	rec := l.Record.Clone()
	of := l.of
	of.By, of.Host, of.ExpiresAt = l.By.String(), l.Host(), record.Time{Time: l.expires}
	if l.expires.IsZero() {
		of.ExpiresAt.Time = l.started.Add(pool.NoExpiry)
	}
	rec.MustSet("lease", of)
	if l.place().url != "" {
		rec.MustSet("instance", l.browser)
	}
	return rec
}

// find returns a lease, or nil.
func (t *Lent) find(id string) *loan {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leases[id]
}

// all returns the leases that somebody may end, or with nil all leases, the oldest first.
func (t *Lent) all(who *control.Peer) (found []*loan) {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.leases {
		if who == nil || l.mayEnd(who) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b *loan) int { return a.started.Compare(b.started) })
	return found
}

func (l *loan) mayEnd(who *control.Peer) bool {
	return who.IsOperator() || l.By.String() == who.String()
}

// Len returns the number of leases.
func (t *Lent) Len() int {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.leases)
}

// Hosts returns the hosts of leases, and those that are not asked now because they have not answered.
func (t *Lent) Hosts() []api.HostStatus {
	if t == nil {
		return nil
	}
	all := map[string]api.HostStatus{}
	for _, l := range t.all(nil) {
		h := l.place().host
		all[h.name] = api.HostStatus{Name: h.name, URL: h.url, Leases: all[h.name].Leases + 1}
	}
	t.gateway.mu.Lock()
	suspects := t.gateway.table.Avoided(time.Now(), &remote.Request{})
	t.gateway.mu.Unlock()
	for _, name := range suspects {
		h := all[name]
		h.Name, h.Suspect = name, true
		all[name] = h
	}
	return slices.SortedFunc(maps.Values(all), func(a, b api.HostStatus) int { return cmp.Compare(a.Name, b.Name) })
}

// Wanted returns the number of requests that wait for another host.
func (t *Lent) Wanted() int {
	t.gateway.mu.Lock()
	defer t.gateway.mu.Unlock()
	return len(t.gateway.waits)
}

// Has reports whether there is a lease.
func (t *Lent) Has(id string) bool { return t.find(id) != nil }

// MayUse reports whether somebody may use or end a lease.
func (t *Lent) MayUse(who *control.Peer, id string) bool {
	l := t.find(id)
	return l != nil && l.mayEnd(who)
}

// Release ends a lease. It reports whether the lease existed.
func (t *Lent) Release(id string) bool {
	l := t.find(id)
	return l != nil && t.end(l, "released", "")
}

// ReleaseAll ends all leases that somebody may end, and returns their IDs.
func (t *Lent) ReleaseAll(who *control.Peer) []string { return t.endAll(t.all(who), "") }

func (t *Lent) endAll(all []*loan, why string) (ids []string) {
	var ending sync.WaitGroup
	ended := make([]bool, len(all))
	for k, l := range all {
		ending.Go(func() { ended[k] = t.end(l, "released", why) })
	}
	ending.Wait()
	for k, l := range all {
		if ended[k] {
			ids = append(ids, l.ID)
		}
	}
	return ids
}

// EndRemoved ends the leases of tokens that no longer exist.
func (t *Lent) EndRemoved(exists func(*tokens.Token) bool) {
	all := t.all(nil)
	all = slices.DeleteFunc(all, func(l *loan) bool { return l.By.Token == nil || exists(l.By.Token) })
	t.endAll(all, "its token was removed")
}

// RemoteOf returns the address of a token's lease.
func (t *Lent) RemoteOf(id string) (pool.Remote, error) {
	l := t.find(id)
	if l == nil || l.secret == "" {
		return pool.Remote{}, pool.ErrNoLease(id)
	}
	at := pool.Remote{Path: pool.RemotePrefix + id + "." + l.secret, Ended: l.ctx.Done()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.browser.WSURL != "" {
		at.Local, at.Prefix = t.addr, fleet.Prefix+id
	}
	return at, nil
}

// Leases returns the records of somebody's leases.
func (t *Lent) Leases(who *control.Peer) (records []*record.Record) {
	for _, l := range t.all(who) {
		records = append(records, t.record(l))
	}
	return records
}

// Confirm makes a lease outlive the connection that requested it.
func (t *Lent) Confirm(id string) error {
	l := t.find(id)
	if l == nil {
		return pool.ErrNoLease(id)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return l.Confirmed(id)
}

// Notices waits until a lease has more lines than its holder has read, or has ended. Without the lease it returns
// false.
func (t *Lent) Notices(ctx context.Context, id string, after int) (n api.Notices, is bool, err error) {
	l := t.find(id)
	if l == nil {
		return n, false, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err = l.notices.Await(ctx, &t.mu, after)
	return n, true, err
}

// Status returns the pools of the leases and of the requests that wait, or the one with a name, with a row for each
// lease, as somebody may see them.
func (t *Lent) Status(who *control.Peer, name string) (all []api.PoolStatus) {
	if t == nil {
		return nil
	}
	of := func(name string) *api.PoolStatus {
		k := slices.IndexFunc(all, func(p api.PoolStatus) bool { return p.Name == name })
		if k < 0 {
			k = len(all)
			all = append(all, api.PoolStatus{Name: name, Instances: []api.InstanceStatus{}})
		}
		return &all[k]
	}
	for pool, text := range t.gateway.Waiting() {
		if name == "" || name == pool {
			of(pool).Elsewhere = text
		}
	}
	for _, l := range t.all(nil) {
		if name == "" || name == l.of.Pool {
			p := of(l.of.Pool)
			p.Leased++
			t.mu.Lock()
			p.Instances = append(p.Instances, l.row(who))
			t.mu.Unlock()
		}
	}
	return all
}

// isSession reports whether the browser of a lease is a session, whose address ends with it, and not a whole one.
func (l *loan) isSession() bool { return strings.HasSuffix(l.browser.WSURL, l.ID) }

// row returns a lease as the status shows it.
func (l *loan) row(who *control.Peer) api.InstanceStatus {
	at := l.place()
	i := api.InstanceStatus{ID: at.instance, Alias: l.of.Alias, Host: at.host.name, Status: pool.Healthy, Leased: true,
		LeaseDuration: new(time.Since(l.started).Milliseconds()), LeaseStarted: &record.Time{Time: l.started},
		By: l.By.String(), User: l.User, Browser: record.Member[record.Browser](l.Record, "browser").Type,
		Headless: l.browser.Headless, Isolation: "process"}
	if l.isSession() {
		i.Isolation = "context"
	}
	if !l.resting.IsZero() {
		i.LeaseIdle = new(time.Since(l.resting).Milliseconds())
	}
	if !l.expires.IsZero() {
		i.LeaseExpires = &record.Time{Time: l.expires}
	}
	if l.mayEnd(who) {
		i.Lease, i.Holder, i.Endpoint = l.ID, l.Holder, l.browser.HTTPURL
	}
	return i
}

// Close ends all leases and waits until nothing is left of them, and of the gateway, whose context has ended.
func (t *Lent) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.endAll(t.all(nil), "the service has ended")
	t.stop()
	t.gateway.Wait()
}
