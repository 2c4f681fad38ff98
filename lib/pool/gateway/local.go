package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"btools/lib/control"
	"btools/lib/fleet"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/pool"
	"btools/lib/pool/relay"
	"btools/lib/record"
)

// The browsers of all leases are served at one port of this machine, each at the path of a session of a pool's.

// maxConnections limits the connections of the port.
const maxConnections = 8192

// serveLocked gives the browser of a lease an address on this machine, if it has a browser.
func (t *Lent) serveLocked(l *loan) error {
	l.browser = record.Member[record.Instance](l.Record, "instance")
	place := l.place()
	if place.url == "" {
		return nil
	}
	if t.addr == "" {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("cannot open the endpoint of leases on other hosts: %w", err)
		}
		t.addr = listener.Addr().String()
		f := &front.Front{Guard: t.guard, Log: t.gateway.options.Log, Limit: front.Limit{Max: maxConnections},
			Routes: []front.Route{{Answer: t.answer}}}
		t.gateway.running.Go(func() { f.Serve(t.ctx, nil, listener) })
	}
	i := &l.browser
	at := t.address(l.ID)
	_, path, _ := strings.Cut(i.WSURL, relay.Socket(place.url))
	i.HTTPURL, i.WSURL = at, relay.Socket(at)+strings.ReplaceAll(path, place.id, l.ID) // as before a move
	host, port, _ := net.SplitHostPort(t.addr)
	i.Host = host
	i.Port, _ = strconv.Atoi(port)
	return nil
}

// address returns the address of a lease's browser.
func (t *Lent) address(id string) string { return "http://" + t.addr + fleet.Prefix + id }

// answer answers a request for the browser of a lease.
func (t *Lent) answer(w *front.Response, r *http.Request) error {
	below, ok := strings.CutPrefix(r.URL.Path, fleet.Prefix)
	id, path, _ := strings.Cut(below, "/")
	if !ok || !pool.IsLeaseID(id) {
		return front.NoPath(r)
	}
	l := t.find(id)
	if l == nil {
		return control.Errorf(control.LeaseEnded, "the lease %s has ended", id)
	}
	if no := guard.CheckUser(r, l.By.UID); no != nil {
		return no
	}
	place, leave, err := l.enter(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	to, err := url.Parse(place.url)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	defer context.AfterFunc(l.ctx, stop)()
	endpoint := &relay.Endpoint{URL: to, Public: t.address(id), Via: t.gateway.options.HTTP.Transport}
	if err := endpoint.Serve(w, r.WithContext(ctx), "/"+path); err != nil {
		return front.Unavailable(err)
	}
	return nil
}
