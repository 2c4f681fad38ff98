package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet"
	"btools/lib/fleet/book"
	"btools/lib/fleet/supply"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/lazy"
	"btools/lib/virtual"
)

// seating is what the lease of a shared browser has of it. Its entry in the fleet of
// the group stays as its sessions come and go, in whichever browser there is.
type seating struct {
	entry *fleet.Entry  // its session; nil: the lease has a browser to itself
	on    *fleet.Chrome // the browser of which the lease is a use; nil: none yet
	ahead bool          // a session is made for it before it is used
}

// maxRequests limits the open requests and WebSockets of a lease.
const maxRequests = 512

// sessionTimeout is how long a request may wait for its session.
const sessionTimeout = 30 * time.Second

// newFleet returns the fleet of the leases of a group.
func (g *group) newFleet() *fleet.Fleet {
	f := &fleet.Fleet{Log: g.log, Noun: "lease", Policy: book.Policy{MaxUsers: maxRequests}, Chrome: g.browserFor,
		Spare: g.spareFor}
	if dir := g.service.Dir; dir != nil {
		f.MakeDir, f.Saves, f.Downloads, f.Hibernate = dir.Make, true, !g.set.WSLWindows, g.set.Hibernate
	}
	return f
}

// startLeaseLocked begins a new lease. Its session is opened when it is used,
// from what was kept for it, unless that is nil.
func (g *group) startLeaseLocked(l *lease, from *fleet.Kept) {
	g.leases++
	g.leased++
	w := fleet.Wanted{Settings: g.set, Tell: l.tell}
	if w.State = ""; l.login != nil {
		w.State, w.Login = l.login.name, l.login.state
	}
	l.entry = g.fleet.Hold(l.id, w, from, l.slot.lastPagesClosed)
	g.useLocked(l, from == nil)
	if g.GroundsLocked() != supply.None {
		g.Wake()
	}
}

// useLocked makes a lease a use of the current browser, of the next one if there is none. With ahead, a session is made
// before the lease is used.
func (g *group) useLocked(l *lease, ahead bool) {
	if g.chrome == nil {
		g.needed = true
		g.Wake()
		return
	}
	l.on = g.chrome
	g.Uses++
	g.setAheadLocked(l, ahead)
	g.setSparesLocked()
}

// setAheadLocked says whether a session is made for a lease before it is used.
func (g *group) setAheadLocked(l *lease, ahead bool) {
	if l.ahead == ahead {
		return
	}
	if l.ahead = ahead; ahead {
		g.ahead++
	} else {
		g.ahead--
	}
}

// endSessionLocked ends the session of a lease. With keeps, what is saved is kept for the
// next one of its holder, and so is what was kept for this one, which has not used it.
func (l *lease) endSessionLocked(keeps bool) {
	i, _ := l.entry.Info()
	keeps = keeps || l.kept && i.Hibernated && i.RestoredAt == nil
	kept, over := l.entry.Release(keeps && l.keepFor != "" && l.thaw == nil) // a frozen one may go on elsewhere
	if kept != nil {
		l.keepForNextLocked(kept)
	}
	l.slot.lastPagesClosed = over
}

// endLeaseLocked notes that a lease has ended.
func (g *group) endLeaseLocked(l *lease) {
	g.leases--
	if !l.slot.retired {
		g.leased--
	}
	g.setAheadLocked(l, false)
	g.setSparesLocked()
	if g.GroundsLocked() != supply.None {
		g.Wake()
	}
	g.endIfUnusedLocked()
}

// replaceSessionLocked replaces the session of the instance's lease, if it has
// one. If the browser has failed, it is launched again.
func (g *group) replaceSessionLocked(s *slot) {
	l := s.lease
	hibernated := l != nil && l.entry.Replace()
	switch {
	case hibernated:
	case g.chrome == nil:
		g.ForceReplace = g.state == Failed
		g.Wake()
		return
	case l == nil || l.on == nil:
		return // the next lease gets a fresh session anyway
	default:
		g.useLocked(l, true)
	}
	s.notifyHolderLocked("is replaced by bpool restart; its pages are lost")
	g.restartedLocked(supply.Asked, s)
}

// use returns the session of the lease for one request or WebSocket; call
// done when that ends. It waits for a browser, and until all pages of the
// instance's previous lease are closed.
func (l *lease) use(ctx context.Context) (*virtual.Session, func(), error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sessionTimeout,
		control.Errorf(control.TryAgain, "lease %s got no session within %v", l.id, sessionTimeout))
	defer cancel()
	used, err := l.entry.Use(ctx)
	switch {
	case errors.Is(err, fleet.ErrEnded):
		return nil, nil, errLeaseEnded(l.id)
	case errors.Is(err, book.ErrFrozen):
		return nil, nil, control.Errorf(control.TryAgain, "lease %s: %v", l.id, err)
	case errors.Is(err, book.ErrUsers):
		return nil, nil, control.Errorf(control.TryAgain, "lease %s already has %d open requests and WebSockets", l.id,
			maxRequests)
	case err != nil:
		return nil, nil, err
	}
	l.slot.service.mu.Lock()
	c := l.on
	l.slot.service.mu.Unlock()
	c.Hold()
	return fleet.VirtualOf(used), func() { c.Release(); l.entry.Leave() }, nil
}

// tell records what has become of the lease's session. It takes no lock but that of the
// events.
func (l *lease) tell(e fleet.Event) {
	if e.Event == "created" || e.Event == "ended" {
		return // the lease's own events say it
	}
	l.slot.service.events.ofLease(e.Event, l, e.Why, e.Download)
}

// loseLocked hibernates a lease whose browser has ended, or is about to, as it was saved
// last, and reports whether anything was. Its holder gets a notice that begins with what.
func (l *lease) loseLocked(what string) bool {
	kept := l.entry.Lose("the browser " + what)
	if kept {
		l.slot.notifyHolderLocked("%s; the next connection gets its pages back", what)
	}
	return kept
}

// isHibernated reports whether the session of a lease is saved and no browser has it.
func (l *lease) isHibernated() bool {
	i, _ := l.entry.Info()
	return i.Hibernated
}

// addSession adds what the status of an instance says of the session of its lease.
func (l *lease) addSession(st *api.InstanceStatus) {
	i, ok := l.entry.Info()
	st.Hibernation, st.Control, st.Ask = i.Hibernation, i.Control, i.Ask
	if ok {
		st.Tabs = &i.TabCount
	}
	if !i.Hibernated {
		st.KeptAt, st.Proxy, st.Limits = i.KeptAt, i.Proxy, i.Limits
	}
	if st.Login = i.State; i.State == nil && l.login != nil {
		st.Login = &api.StateStatus{Name: l.login.name}
	}
}

func errLeaseEnded(id string) error {
	return control.Errorf(control.LeaseEnded, "the lease %s has ended", printable(id))
}

// spareFor returns a session for the lease of an entry, on a browser for which it waits.
func (g *group) spareFor(ctx context.Context, e *fleet.Entry) (*virtual.Session, fleet.Use, error) {
	for {
		c, err := g.await(ctx, e.Name, false)
		if err != nil {
			return nil, fleet.Use{}, err
		}
		s, err := c.Take(ctx)
		if err == nil {
			return s, fleet.Use{Ended: c.Ended}, nil
		}
		c.Ended(nil)
		if !errors.Is(err, fleet.ErrGone) {
			return nil, fleet.Use{}, err
		}
	}
}

// browserFor returns the browser for the lease of an entry that was saved, for which it waits.
func (g *group) browserFor(ctx context.Context, e *fleet.Entry) (*virtual.Browser, fleet.Use, error) {
	for {
		c, err := g.await(ctx, e.Name, true)
		if err != nil {
			return nil, fleet.Use{}, err
		}
		b, err := c.Sessions(ctx)
		if err == nil && c.Enter() { // one that waits for its session needs the browser, too
			return b, fleet.Use{Opened: func() { c.NoteUse(); c.Leave() }, Ended: c.Ended}, nil
		}
		if c.Ended(nil); c.IsLive() {
			return nil, fleet.Use{}, err
		}
	}
}

// await waits until there is a browser for the session of a lease, which it admits.
func (g *group) await(ctx context.Context, id string, restores bool) (*fleet.Chrome, error) {
	v := g.service
	v.mu.Lock()
	defer v.mu.Unlock()
	for {
		l := v.leases[id]
		if l == nil {
			return nil, errLeaseEnded(id)
		}
		if c := g.chrome; c.IsLive() && c.Admit() {
			if l.on != c || restores {
				l.on = c
				g.Uses++
			}
			if l.ahead {
				c.Reserve()
				g.setAheadLocked(l, false)
			}
			return c, nil
		}
		now := time.Now()
		if g.state == Failed && (g.Retry.Definite || g.Retry.OnDemand.Sub(now) > supply.MinRetryDelay) {
			words := "it will not be replaced (RESTART=never)"
			if !g.Retry.Off {
				words = NextTry(g.Retry.OnDemand, now)
			}
			return nil, control.Errorf(control.Unavailable, "the browser of %s/%s is gone: %s, %s", l.slot.poolName,
				l.slot.set.ID, briefReason(g.Check.Err), words)
		}
		g.needed = true
		g.waiting++
		changed := g.changed.Next()
		v.mu.Unlock()
		g.Wake()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		v.mu.Lock()
		if g.waiting--; ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// maxConnections limits the connections of the port of a pool's sessions; each lease has
// its own limit.
const maxConnections = 8192

// sessionsAddrLocked returns the host:port at which the sessions of a pool's leases are
// served. It is served as long as the service runs, so that a client that comes back after
// the end of its lease gets an answer.
func (p *pool) sessionsAddrLocked() (string, error) {
	v, pool := p.service, p.cfg.Name
	if addr := v.sessionAddrs[pool]; addr != "" {
		return addr, nil
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("cannot open the endpoint of %s: %w", pool, err)
	}
	f := &front.Front{Guard: guard.Guard{NoPages: true, Browsers: guard.NewBrowsers(v.State)},
		Routes: []front.Route{{Answer: p.answerLease}}, Limit: front.Limit{Max: maxConnections}, Log: v.Log}
	v.running.Go(func() { f.Serve(v.ctx, nil, l) })
	v.sessionAddrs[pool] = l.Addr().String()
	return v.sessionAddrs[pool], nil
}

// leaseID matches the IDs that newLeaseID makes.
var leaseID = lazy.Regexp(`^lease_[0-9]+_[a-z0-9]{16}$`)

// IsLeaseID reports whether a text has the form of a lease's ID.
func IsLeaseID(id string) bool { return leaseID().MatchString(id) }

// answerLease answers a request to the session of a lease.
func (p *pool) answerLease(w *front.Response, r *http.Request) error {
	below, ok := strings.CutPrefix(r.URL.Path, fleet.Prefix)
	id, rest, _ := strings.Cut(below, "/")
	if !ok || !leaseID().MatchString(id) {
		e := control.Errorf(guard.NotFound, "there is no browser at %q: each lease has its own path",
			printable(r.URL.Path))
		e.Hint = "use the http_url or the ws_url of a lease, which contain its ID; Puppeteer drops it from a browserURL"
		return e
	}
	l := p.service.lease(id)
	if l == nil {
		return errLeaseEnded(id)
	}
	if !l.slot.set.WSLWindows { // on Windows no uid is known
		if no := guard.CheckUser(r, l.by.UID); no != nil {
			return no
		}
	}
	if guid, ok := front.ParseDownloads("/" + rest); ok {
		files, err := p.service.Downloads(r.Context(), id)
		if err != nil {
			return unavailable(err)
		}
		return front.ServeDownloads(w, r, files, guid)
	}
	if rest == "session" && r.Method == http.MethodGet && !front.IsUpgrade(r) {
		return l.serveFrozen(w)
	}
	d, no := front.ReadDevTools(r, "/"+rest, false)
	if no != nil {
		return no
	}
	use := func() (*virtual.Session, fleet.Trace, func(), error) {
		s, done, err := l.use(r.Context())
		return s, nil, done, err
	}
	return unavailable(fleet.Serve(w, r, d, fleet.Prefix+id, use))
}

// unavailable returns an error with the HTTP status of a browser that is not there.
func unavailable(err error) error {
	if err == nil || !slices.Contains([]string{control.TryAgain, control.Unavailable}, control.ErrorOf(err).Code) {
		return err
	}
	return front.Unavailable(err)
}
