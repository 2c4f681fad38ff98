package pool

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"btools/lib/fleet/supply"
)

// metrics is a prometheus.Collector of a service. It counts events; the current state is collected when
// Prometheus requests it.
type metrics struct {
	service    *Service
	wait, hold *prometheus.HistogramVec // in seconds, by pool
	launches   *prometheus.CounterVec   // by pool
	failures   *prometheus.CounterVec   // failed launches, by pool
	restarts   *prometheus.CounterVec   // by pool and cause
	ends       *prometheus.CounterVec   // ends of leases, by pool and reason
}

func newMetrics(of *Service) *metrics {
	counter := func(name, help string, by ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "bpool", Name: name, Help: help},
			append([]string{"pool"}, by...))
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "bpool", Name: name, Help: help,
			Buckets: buckets}, []string{"pool"})
	}
	return &metrics{service: of,
		wait: histogram("lease_wait_seconds", "How long a request waited for its lease.",
			prometheus.ExponentialBuckets(0.001, 4, 9)), // to 66 s
		hold: histogram("lease_hold_seconds", "How long a lease was held.",
			prometheus.ExponentialBuckets(0.1, 4, 9)), // to 1.8 h
		launches: counter("launches_total", "Launches of browsers, including failed ones."),
		failures: counter("launch_failures_total", "Failed launches."),
		restarts: counter("restarts_total", "Browsers that were replaced, by the reason.", "reason"),
		ends:     counter("leases_ended_total", "Leases that have ended, by the reason.", "reason"),
	}
}

// holderGone is the reason of the end of a lease whose holder has disconnected or ended.
const holderGone = "holder_gone"

// ended counts a lease that an event has ended; why is "" unless its holder has gone or its browser has left.
func (m *metrics) ended(pool, event, why string) {
	if event == "released" && why != "" && why != hasMoved {
		event = holderGone
	}
	m.ends.WithLabelValues(pool, event).Inc()
}

// initialize makes the counters of a pool visible, with the value 0.
func (m *metrics) initialize(pool string) {
	m.launches.WithLabelValues(pool)
	m.failures.WithLabelValues(pool)
	for _, c := range supply.Causes {
		m.restarts.WithLabelValues(pool, string(c))
	}
	for _, reason := range []string{"released", holderGone, "expired", Yielded, left} {
		m.ends.WithLabelValues(pool, reason)
	}
	m.wait.WithLabelValues(pool)
	m.hold.WithLabelValues(pool)
}

var (
	instancesDesc = prometheus.NewDesc("bpool_instances", "Instances by state.", []string{"pool", "state"}, nil)
	leasesDesc    = prometheus.NewDesc("bpool_leases", "Current leases.", []string{"pool"}, nil)
	browsersDesc  = prometheus.NewDesc("bpool_browsers", "Running browsers.", []string{"pool"}, nil)
	sessionsDesc  = prometheus.NewDesc("bpool_sessions", "Sessions of shared browsers, by state.",
		[]string{"pool", "state"}, nil)
	memoryDesc = prometheus.NewDesc("bpool_browser_memory_bytes",
		"Memory of the running browsers, measured each minute.", []string{"pool"}, nil)
	tokenLeasesDesc = prometheus.NewDesc("bpool_token_leases", "Current leases of a token.", []string{"token"}, nil)
	waitingDesc     = prometheus.NewDesc("bpool_waiting", "Requests waiting for a lease.", []string{"pool"}, nil)
)

// Metrics returns the metrics of the service.
func (v *Service) Metrics() prometheus.Collector { return v.metrics }

// Describe describes the metrics by collecting them.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect sends the current state of the pools and the counts to Prometheus.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.wait, m.hold, m.launches, m.failures, m.restarts, m.ends} {
		c.Collect(ch)
	}
	st, _ := m.service.Status("") // without a pool's name it never fails
	gauge := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for _, p := range st.Pools {
		states := map[string]int{}
		for _, i := range p.Instances {
			states[i.Status]++
		}
		for _, state := range []string{Starting, Awaiting, Healthy, Failed, Draining} {
			gauge(instancesDesc, int64(states[state]), p.Name, state)
		}
		gauge(leasesDesc, int64(p.Leased), p.Name)
		gauge(waitingDesc, int64(p.Waiting), p.Name)
		r := m.usageOf(p.Name)
		gauge(browsersDesc, int64(r.browsers), p.Name)
		gauge(memoryDesc, r.memory, p.Name)
		if r.shared {
			gauge(sessionsDesc, int64(r.leased), p.Name, "leased")
			gauge(sessionsDesc, int64(r.spare), p.Name, "spare")
		}
	}
	for name, n := range m.tokenLeases() {
		gauge(tokenLeasesDesc, n, name)
	}
}

// tokenLeases returns the number of leases of each token.
func (m *metrics) tokenLeases() map[string]int64 {
	v, n := m.service, map[string]int64{}
	if v.TokenNames != nil {
		for _, name := range v.TokenNames() {
			n[name] = 0
		}
	}
	for _, l := range v.leasesWhere(func(l *lease) bool { return l.by.Token != nil }) {
		n[l.by.Token.Name]++
	}
	return n
}

// usage is the browsers and sessions of a pool.
type usage struct {
	browsers      int
	memory        int64 // in bytes
	shared        bool  // a group of its instances shares a browser
	leased, spare int   // sessions
}

// usageOf counts what runs for a pool.
func (m *metrics) usageOf(pool string) (r usage) {
	v := m.service
	v.mu.Lock()
	var proxied []*slot
	if p := v.pools.named(pool); p != nil {
		proxied = slices.Clone(p.slots)
	}
	for _, s := range v.retired {
		if s.poolName == pool {
			proxied = append(proxied, s)
		}
	}
	for _, g := range v.groups {
		if g.poolName != pool {
			continue
		}
		r.shared = true
		chromes := g.draining
		if g.chrome != nil {
			chromes = append(slices.Clone(chromes), g.chrome)
		}
		r.memory += g.Memory
		for _, l := range v.leases {
			if l.slot.group == g && !l.isHibernated() {
				r.leased++
			}
		}
		for _, c := range chromes {
			r.browsers++
			r.spare += c.Spares()
		}
	}
	for _, s := range proxied {
		r.memory += s.Memory
	}
	v.mu.Unlock()
	for _, s := range proxied {
		if s.hasBrowser() {
			r.browsers++
		}
	}
	return r
}
