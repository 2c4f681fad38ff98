package command

import (
	"github.com/prometheus/client_golang/prometheus"

	"btools/lib/pool/bus"
	"btools/lib/pool/gateway"
	"btools/lib/pool/offer"
)

// hostMetrics is a prometheus.Collector of a service that finds hosts by NATS, or is found.
type hostMetrics struct {
	nats *bus.NATS
	host *offer.Host   // nil: it is none
	lent *gateway.Lent // nil: it leases nothing

	offers *prometheus.CounterVec
	events map[gateway.Event]*prometheus.CounterVec
}

// newHostMetrics returns the metrics, with a counter of each result.
func newHostMetrics() *hostMetrics {
	counter := func(name, help, label string, values []string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "bpool", Name: name, Help: help},
			[]string{label})
		for _, v := range values {
			c.WithLabelValues(v)
		}
		return c
	}
	return &hostMetrics{
		offers: counter("offers_total", "Offers of this host to gateways, by what became of them.", "result",
			offer.Results),
		events: map[gateway.Event]*prometheus.CounterVec{
			gateway.AskAnswered: counter("asks_total", "Requests to one host with room, by the answer.", "result",
				gateway.Results[gateway.AskAnswered]),
			gateway.LeaseLost: counter("lease_lost_total", "Leases on other hosts that were lost, by the reason.",
				"reason", gateway.Results[gateway.LeaseLost]),
			gateway.LeaseMoved: counter("moves_total", "Moves of leases away from hosts that are emptied.", "result",
				gateway.Results[gateway.LeaseMoved]),
		}}
}

// offered counts an offer.
func (m *hostMetrics) offered(result string) { m.offers.WithLabelValues(result).Inc() }

// count counts an event of a gateway.
func (m *hostMetrics) count(e gateway.Event, result string) {
	m.events[e].WithLabelValues(result).Inc()
}

var (
	connectedDesc = prometheus.NewDesc("bpool_nats_connected", "1 while a NATS server is connected.", nil, nil)
	reconnectDesc = prometheus.NewDesc("bpool_nats_reconnects_total",
		"How often the connection to NATS came back after it was lost.", nil, nil)
	slowDesc = prometheus.NewDesc("bpool_nats_slow_total",
		"How often messages were lost because too many came at once.", nil, nil)
	wantsDesc       = prometheus.NewDesc("bpool_wants", "Places of gateways in the queues of this host.", nil, nil)
	remoteWaitsDesc = prometheus.NewDesc("bpool_remote_waiting", "Requests waiting for a lease on another host.", nil,
		nil)
	remoteLeasesDesc = prometheus.NewDesc("bpool_remote_leases", "Current leases on a host.", []string{"host"}, nil)
)

// Describe describes nothing: which metrics there are depends on what the service is.
func (m *hostMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect sends the current state and the counts to Prometheus.
func (m *hostMetrics) Collect(ch chan<- prometheus.Metric) {
	number := func(d *prometheus.Desc, kind prometheus.ValueType, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(n), labels...)
	}
	reconnects, slow := m.nats.Counts()
	up := 0
	if m.nats.Connected() {
		up = 1
	}
	number(connectedDesc, prometheus.GaugeValue, up)
	number(reconnectDesc, prometheus.CounterValue, int(reconnects))
	number(slowDesc, prometheus.CounterValue, int(slow))
	if m.host != nil {
		number(wantsDesc, prometheus.GaugeValue, m.host.Wants())
		m.offers.Collect(ch)
	}
	if m.lent != nil {
		number(remoteWaitsDesc, prometheus.GaugeValue, m.lent.Wanted())
		for _, h := range m.lent.Hosts() {
			if h.Leases > 0 {
				number(remoteLeasesDesc, prometheus.GaugeValue, h.Leases, h.Name)
			}
		}
		for _, c := range m.events {
			c.Collect(ch)
		}
	}
}
