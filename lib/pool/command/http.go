package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/pool/web"
	"btools/lib/tokens"
)

// Connections at once: of what looks at the service, and of clients that lease from it.
const (
	maxMonitors = 64
	maxClients  = 8192
)

// serveHTTP serves HTTP until the context ends or the listener is closed.
func serveHTTP(ctx context.Context, l net.Listener, h *handler, f *front.Front) {
	f.Limit.Max = maxMonitors
	if f.Guard.Tokens != nil {
		f.Limit.Max = maxClients
		f.Followed = func() {
			h.service.EndRemoved(f.Guard.Tokens.Has)
			h.lent.EndRemoved(f.Guard.Tokens.Has)
		}
	}
	f.ReadTimeout, f.WriteTimeout = 10*time.Second, 30*time.Second
	if err := f.Serve(ctx, nil, l); err != nil {
		f.Log.Error("--http is no longer served: " + err.Error())
	}
}

// routes returns the routes of a front: /healthz for supervisors, /status as bpool status prints it, /metrics for
// Prometheus, /openapi.json, which describes all of them, and, for clients with tokens, leases.
func (h *handler) routes(f *front.Front) []front.Route {
	v := h.service
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "btools_build_info",
		Help: "1, with the version of this program.", ConstLabels: prometheus.Labels{"version": cli.Release()}})
	build.Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics := promhttp.HandlerFor(prometheus.Gatherers{registry, h.metrics()},
		promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(f.Log.Handler(), slog.LevelWarn)})
	open := func(r *http.Request) *guard.Guard { // clients need no token
		if f.Guard.Tokens == nil || f.Guard.Check(r) == nil {
			return &f.Guard
		}
		return &guard.Guard{NoPages: true, AnyHost: true}
	}
	routes := []front.Route{
		{Path: "/metrics", Get: true, Answer: func(w *front.Response, r *http.Request) error {
			metrics.ServeHTTP(w, r)
			return nil
		}},
		{Path: "/healthz", Get: true, Guard: open, Answer: func(w *front.Response, r *http.Request) error {
			answer, sick := "ok", v.Unhealthy()
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if sick != "" {
				answer = sick
				if _, t := guard.TokenOf(r); f.Guard.Tokens != nil && t == nil {
					answer = "not healthy" // why is not for everybody
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			io.WriteString(w, answer+"\n")
			return nil
		}},
		{Path: "/openapi.json", Get: true, Guard: open, Answer: web.Describe},
		{Path: "/status", Get: true, Answer: func(w *front.Response, r *http.Request) error {
			who := nobody
			if _, t := guard.TokenOf(r); t != nil {
				who = control.ByToken(t)
			}
			st, err := h.status(control.WithPeer(r.Context(), who), r.URL.Query().Get("pool"))
			if err != nil {
				return &guard.Refusal{Status: http.StatusNotFound, Reason: control.ErrorOf(err)}
			}
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			return json.NewEncoder(w).Encode(st)
		}},
	}
	if f.Guard.Tokens == nil {
		return routes
	}
	h.leases = &web.Server{Pools: v, Admit: h.admit, Lease: h.lease, Call: h.serve(), Elsewhere: h.elsewhere,
		HoldElsewhere: h.holdElsewhere, Public: h.public, Boot: newBoot()}
	return append(routes, h.leases.Routes()...)
}

// checkPools returns an error for a token that names a pool that there is not.
func checkPools(all []tokens.Token, names []string) error {
	for _, t := range all {
		for _, name := range t.Pools {
			if !slices.Contains(names, name) {
				return fmt.Errorf("line %d: the token %s names the pool %s: there are %s", t.Line, t.Name, name,
					strings.Join(names, ", "))
			}
		}
	}
	return nil
}

// secure encrypts the port of --http as the flags say, and returns its public address, nil if there is none.
func secure(c *cli.Context, web *front.Front) (*url.URL, error) {
	if c.IsSet("tls-cert") != c.IsSet("tls-key") {
		return nil, c.UsageError("--tls-cert and --tls-key belong together")
	}
	for _, f := range []string{"tls-cert", "public-url", "token-file"} {
		if c.IsSet(f) && !c.IsSet("http") {
			return nil, c.UsageError("--%s is for --http", f)
		}
	}
	if c.IsSet("tls-cert") {
		var err error
		if web.TLS, err = front.Certificate(c.String("tls-cert"), c.String("tls-key"),
			func(err error) { c.Log.Error(err.Error()) }); err != nil {
			return nil, exit.Errorf(exit.Config, "%w", err)
		}
	}
	if !c.IsSet("public-url") {
		return nil, nil
	}
	u, err := url.Parse(c.String("public-url"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, c.UsageError("--public-url is an address such as https://pool.example, not %q",
			c.String("public-url"))
	}
	return u, nil
}
