package command

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"btools/lib/control"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/pool"
)

// serveHTTP reports the state of the service by HTTP until the context ends or the
// listener is closed: /healthz for supervisors, /status as bpool status prints it, and
// /metrics for Prometheus. It changes nothing.
func serveHTTP(ctx context.Context, l net.Listener, v *pool.Service, f *front.Front) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(v, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics := promhttp.HandlerFor(registry,
		promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(f.Log.Handler(), slog.LevelWarn)})
	f.Routes = []front.Route{
		{Path: "/metrics", Get: true, Answer: func(w *front.Response, r *http.Request) error {
			metrics.ServeHTTP(w, r)
			return nil
		}},
		{Path: "/healthz", Get: true, Answer: func(w *front.Response, _ *http.Request) error {
			answer, sick := "ok", v.Unhealthy()
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if sick != "" {
				answer = sick
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			io.WriteString(w, answer+"\n")
			return nil
		}},
		{Path: "/status", Get: true, Answer: func(w *front.Response, r *http.Request) error {
			st, err := v.StatusFor(nobody, r.URL.Query().Get("pool"))
			if err != nil {
				return &guard.Refusal{Status: http.StatusNotFound, Reason: control.ErrorOf(err)}
			}
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			return json.NewEncoder(w).Encode(st)
		}},
	}
	f.Limit.Max, f.ReadTimeout, f.WriteTimeout = 64, 10*time.Second, 30*time.Second
	if err := f.Serve(ctx, nil, l); err != nil {
		f.Log.Error("--http is no longer served: " + err.Error())
	}
}
