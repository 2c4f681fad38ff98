package gateway

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/pool/relay"
	"btools/lib/record"
)

// Serve serves the browser of a lease at a port of this machine until the lease or the context ends, and returns the
// record of the lease with the addresses there.
func (l *Lease) Serve(ctx context.Context, g guard.Guard) (*record.Record, error) {
	if l.URL == "" {
		return l.Record, nil
	}
	to, err := url.Parse(l.URL)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	public := "http://" + listener.Addr().String()
	endpoint := &relay.Endpoint{URL: to, Public: public, Via: l.host.gateway.options.HTTP.Transport}
	f := &front.Front{Guard: g, Log: l.host.gateway.options.Log, Routes: []front.Route{{
		Answer: func(w *front.Response, r *http.Request) error {
			if err := endpoint.Serve(w, r, r.URL.Path); err != nil {
				return front.Unavailable(err)
			}
			return nil
		}}}}
	ctx, stop := context.WithCancel(ctx)
	context.AfterFunc(l.ctx, stop)
	l.host.gateway.running.Go(func() {
		defer stop()
		f.Serve(ctx, nil, listener)
	})
	rec := l.Record.Clone()
	i := record.Member[record.Instance](rec, "instance")
	_, path, _ := strings.Cut(i.WSURL, relay.Socket(l.URL))
	i.HTTPURL, i.WSURL, i.Host = public, relay.Socket(public)+path, "127.0.0.1"
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	i.Port, _ = strconv.Atoi(port)
	rec.MustSet("instance", i)
	return rec, nil
}
