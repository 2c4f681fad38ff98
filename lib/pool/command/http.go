package command

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"btools/lib/control"
	"btools/lib/guard"
	"btools/lib/pool"
)

// serveHTTP reports the state of the service by HTTP until the listener is
// closed: /healthz for supervisors, /status as bpool status prints it, and
// /metrics for Prometheus. It changes nothing.
func serveHTTP(l net.Listener, v *pool.Service, g *guard.Guard, log *slog.Logger) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(v, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry,
		promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if sick := v.Unhealthy(); sick != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write([]byte(sick + "\n"))
			return
		}
		w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		st, err := v.StatusFor(stranger, r.URL.Query().Get("pool"))
		if err != nil {
			(&guard.Refusal{Status: http.StatusNotFound, Error: control.ErrorOf(err)}).WriteResponse(w)
			return
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		json.NewEncoder(w).Encode(st)
	})
	limit := &guard.Limit{Max: 64}
	s := &http.Server{
		ConnState: limit.State, ConnContext: guard.ConnContext,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if no := g.Check(r); no != nil {
				no.WriteResponse(w)
				return
			}
			mux.ServeHTTP(w, r)
		}),
	}
	if err := s.Serve(limit.Listener(l)); !errors.Is(err, net.ErrClosed) {
		log.Error("--http is no longer served: " + err.Error())
	}
}
