package source

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/coordinator/tasks"
	"btools/lib/jsonrpc"
	"btools/lib/launch/options"
	"btools/lib/record"
)

// ownerUse is the Browsers of an owner: the one browser, or virtual browsers on it, or leases of a pool, which it keeps
// between its calls where the pool says so.
type ownerUse struct {
	*Source
	owner  Owner
	shared bool            // the owner is several hosts, which know nothing of each other
	ctx    context.Context // of the owner

	work sync.WaitGroup // begun under the lock of the book, while it is open

	// Under that lock, too:
	closed bool
	all    map[sessionKey]*ownerSession
	states map[sessionKey]string // with which those start again that have ended
	leases []*keptLease
	seen   map[string]string // the IDs of the browsers of earlier results, by SeenKey; an ID may be ""
	lost   map[string]loss   // losses to be told, by SeenKey; by "" with the next result

	unkepts map[string]unkept // by SeenKey
}

func (b *ownerUse) Target(ctx context.Context) (Browser, error) {
	at, err := b.target(ctx)
	return at.inSession(b.nameOf("")), err
}

func (b *ownerUse) Early() bool { return b.pool == nil && b.up("", "") == nil }

func (b *ownerUse) Queue(w BrowserRef) tasks.Queue {
	if b.pool != nil {
		return b.pool.queue(b.owner.Name(), w)
	}
	key := "session " + w.Instance + " " + b.nameOf(w.Session)
	if b.Type != "" { // the children of each owner launch their own
		key = b.owner.Name()
	}
	return tasks.Queue{Key: key, Slots: 1}
}

func (b *ownerUse) Waiting(w BrowserRef) func() (ahead int, waits bool) {
	if !b.HasSessions() || b.sessions.MaxSessions == 0 {
		return nil
	}
	return func() (int, bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.table.ahead(b.all[sessionKey{id: w.Session}])
	}
}

func (b *ownerUse) TryTake(w BrowserRef) *Lease {
	if b.pool != nil {
		return nil
	}
	at, _ := b.Take(noWait, w)
	return at
}

// Take implements Browsers. It waits for nothing if the context has ended.
func (b *ownerUse) Take(ctx context.Context, w BrowserRef) (*Lease, error) {
	if b.pool != nil {
		return b.takeLease(ctx, w)
	}
	if err := b.enter(ctx, b.Source); err != nil {
		return nil, err
	}
	at, v, err := b.takeEntered(ctx, w)
	if err != nil {
		b.leave(b.Source)
		return nil, err
	}
	return b.leaseOf(at, v), nil
}

func (b *ownerUse) Status(ctx context.Context, pool string) (st Status, _ error) {
	if b.pool != nil {
		raw, err := control.Method[api.Of, json.RawMessage](api.Status).Ask(ctx, b.pool, api.Of{Pool: pool})
		return Status{Pools: raw}, Explain(err)
	}
	rec, err := b.status(ctx)
	if err != nil {
		st.Notes = append(st.Notes, err.Error())
	}
	st.read(rec)
	st.Sessions = b.statuses(ctx)
	b.mu.Lock()
	waiting := b.table.waiting()
	b.mu.Unlock()
	if waiting > 0 {
		st.Notes = append(st.Notes, fmt.Sprintf("%d virtual browsers wait: %d have pages, as many as --max-sessions "+
			"allows", waiting, b.sessions.MaxSessions))
	}
	return st, nil
}

// read fills in the status from the record of a proxy; nil: there is none.
func (st *Status) read(rec *record.Record) {
	if rec == nil {
		return
	}
	var p record.Proxy
	var ps api.ProxyStatus
	if ok, _ := rec.Get("proxy", &p); ok {
		st.Port = &p.Port
	}
	rec.Get("status", &ps)
	st.Running = ps.State == "ready"
	if ps.LastExit != "" {
		st.LastExit = &ps.LastExit
	}
	if ps.LastError != "" {
		st.LastExit = &ps.LastError
	}
	if raw := rec.Raw("browser"); raw != nil && st.Running {
		st.Browser = jsonrpc.Set(raw, "instance", rec.Raw("instance"))
	}
}

// Control implements Browsers. A virtual browser is stopped and restarted by its end: the next call begins it again.
func (b *ownerUse) Control(ctx context.Context, do Action, w BrowserRef, o options.Options) error {
	if do != Launch && b.nameOf(w.Session) != "" {
		return b.endNamed(ctx, w)
	}
	if rec, err := b.status(ctx); do == Stop && err == nil && rec == nil {
		return nil // there is nothing to stop
	}
	if do != Launch {
		b.end("", hostSession)
	}
	if _, err := b.control(ctx, string(do), o); err != nil {
		return Explain(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.seen) // no result tells that the next one is another one
	return nil
}

// endNamed ends the virtual browser with a call's session_id.
func (b *ownerUse) endNamed(ctx context.Context, w BrowserRef) error {
	instance, err := b.idOf(ctx, w.Instance)
	b.expel(sessionKey{w.Session, instance})
	return Explain(err)
}

// Away hibernates the virtual browsers that no call uses.
func (b *ownerUse) Away() (used bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range b.all {
		if b.table.start(v, restStep) {
			b.beginLocked(due[usable]{key: v, step: restStep, unused: b.table.unused(v, time.Now())})
		} else if b.table.ready(v) {
			used = true
		}
	}
	return used
}

// Leave implements Browsers. The goroutine that is requesting a lease releases it.
func (b *ownerUse) Leave() (release func()) {
	var held []*Lease
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return func() {}
	}
	all, leases := b.all, b.leases
	b.closed, b.all, b.leases = true, nil, nil
	for id, v := range all {
		if b.table.start(v, endStep); id != (sessionKey{}) {
			b.ids--
		}
	}
	if name := b.nameOf(""); all[sessionKey{}] == nil && name != "" {
		all[sessionKey{}] = &ownerSession{name: name} // a child may be connected to it, though no call has used it
	}
	for _, k := range leases {
		b.table.remove(k)
		if k.phase != asking {
			held = append(held, k.at)
		}
	}
	b.changed.Wake()
	return func() {
		for _, at := range held {
			b.work.Go(at.Release)
		}
		held = nil
		for _, v := range all {
			b.work.Go(func() {
				b.end(v.instance, v.name)
				b.mu.Lock()
				defer b.mu.Unlock()
				b.removeLocked(v)
			})
		}
		b.work.Wait()
	}
}
