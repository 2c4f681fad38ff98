package pool

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"btools/lib/control"
	"btools/lib/fleet"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/lazy"
	"btools/lib/virtual"
)

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
