package pool

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts events for Prometheus. The current state is collected when
// Prometheus requests it.
type metrics struct {
	wait, hold         *prometheus.HistogramVec // in seconds, by pool
	launches, restarts *prometheus.CounterVec   // by pool
	failures           *prometheus.CounterVec   // failed launches, by pool
}

func newMetrics() *metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "bpool", Name: name, Help: help},
			[]string{"pool"})
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "bpool", Name: name, Help: help,
			Buckets: buckets}, []string{"pool"})
	}
	return &metrics{
		wait: histogram("lease_wait_seconds", "How long a request waited for its lease.",
			prometheus.ExponentialBuckets(0.001, 4, 9)), // to 66 s
		hold: histogram("lease_hold_seconds", "How long a lease was held.",
			prometheus.ExponentialBuckets(0.1, 4, 9)), // to 1.8 h
		launches: counter("launches_total", "Launches of browsers, including failed ones."),
		failures: counter("launch_failures_total", "Failed launches."),
		restarts: counter("restarts_total", "Browsers that were replaced, for whatever reason."),
	}
}

// initialize makes the counters of a pool visible, with the value 0.
func (m *metrics) initialize(pool string) {
	for _, c := range []*prometheus.CounterVec{m.launches, m.failures, m.restarts} {
		c.WithLabelValues(pool)
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
	waitingDesc = prometheus.NewDesc("bpool_waiting", "Requests waiting for a lease.", []string{"pool"}, nil)
)

// Describe makes the service a prometheus.Collector.
func (v *Service) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(v, ch) }

// Collect sends the current state of the pools and the counts to Prometheus.
func (v *Service) Collect(ch chan<- prometheus.Metric) {
	m := v.metrics
	for _, c := range []prometheus.Collector{m.wait, m.hold, m.launches, m.failures, m.restarts} {
		c.Collect(ch)
	}
	st, _ := v.Status("") // without a pool's name it never fails
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for _, p := range st.Pools {
		states := map[string]int{}
		for _, i := range p.Instances {
			states[i.Status]++
		}
		for _, state := range []string{Starting, Awaiting, Healthy, Failed, Draining} {
			gauge(instancesDesc, states[state], p.Name, state)
		}
		gauge(leasesDesc, p.Leased, p.Name)
		gauge(waitingDesc, p.Waiting, p.Name)
		r := v.usageOf(p.Name)
		gauge(browsersDesc, r.browsers, p.Name)
		if r.shared {
			gauge(sessionsDesc, r.leased, p.Name, "leased")
			gauge(sessionsDesc, r.spare, p.Name, "spare")
		}
	}
}

// usage counts what runs for a pool.
type usage struct {
	browsers      int
	shared        bool // a group of its instances shares a browser
	leased, spare int  // sessions
}

func (v *Service) usageOf(pool string) (r usage) {
	v.mu.Lock()
	var proxied []*slot
	if p := v.poolNamed(pool); p != nil {
		proxied = slices.Clone(p.slots)
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
		for _, c := range chromes {
			leased, spare := c.Sessions()
			r.browsers++
			r.leased += leased
			r.spare += spare
		}
	}
	v.mu.Unlock()
	for _, s := range proxied {
		if s.hasBrowser() {
			r.browsers++
		}
	}
	return r
}
