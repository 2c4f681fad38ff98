package command

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/control"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The metrics of a service are the sums of those of its processes, and the counts of those that have ended: a
// counter does not fall when a retired process ends.

// Methods of relayed requests.
const (
	// measure answers with the metrics of a retired process, as text.
	measure control.Method[struct{}, measured] = "measure"
	// bequeath takes the counts of a process that ends.
	bequeath control.Method[measured, struct{}] = "bequeath"
)

// metrics are those of a service.
type metrics struct {
	handler *handler
	own     *prometheus.Registry // of the pools of this process

	mu    sync.Mutex
	ended []byte       // the counts of processes that have ended
	heard map[int]bool // those, by their pid
	given bool         // the successor has the counts of this one, or gets them just now
}

// metrics returns those of the service.
func (h *handler) metrics() *metrics {
	h.made.Do(func() {
		h.counts = &metrics{handler: h, own: prometheus.NewRegistry()}
		h.counts.own.MustRegister(h.service.Metrics())
	})
	return h.counts
}

// measured is the answer to measure, and the parameters of bequeath.
type measured struct {
	PID   int    `json:"pid,omitempty"`
	Text  []byte `json:"text,omitempty"`
	Given bool   `json:"given,omitempty"` // by bequeath
}

// Gather returns the sums.
func (m *metrics) Gather() ([]*dto.MetricFamily, error) {
	there := map[int][]byte{}
	for range 20 { // one that ends just now is counted once
		clear(there)
		missing := false
		for _, p := range m.handler.former() {
			got, err := askOther(context.Background(), p.Control, measure, struct{}{})
			if err != nil {
				continue
			}
			m.mu.Lock()
			missing = missing || got.Given && !m.heard[p.Process.PID]
			m.mu.Unlock()
			there[p.Process.PID] = got.Text
		}
		if !missing {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	own, err := m.own.Gather()
	if err != nil {
		return nil, err
	}
	all := map[string]*dto.MetricFamily{}
	for _, f := range own {
		sum(all, f)
	}
	m.mu.Lock()
	texts := [][]byte{m.ended}
	for pid, text := range there {
		if !m.heard[pid] {
			texts = append(texts, text)
		}
	}
	m.mu.Unlock()
	return sumTexts(all, texts...)
}

// sumTexts adds metrics as text to others.
func sumTexts(all map[string]*dto.MetricFamily, texts ...[]byte) ([]*dto.MetricFamily, error) {
	for _, text := range texts {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		there, err := parser.TextToMetricFamilies(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("cannot read the metrics of a retired process: %w", err)
		}
		for _, f := range there {
			sum(all, f)
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *dto.MetricFamily) int {
		return cmp.Compare(a.GetName(), b.GetName())
	}), nil
}

// sum adds a family to those of all processes.
func sum(all map[string]*dto.MetricFamily, f *dto.MetricFamily) {
	to := all[f.GetName()]
	if to == nil {
		all[f.GetName()] = f
		return
	}
	for _, x := range f.Metric {
		k := slices.IndexFunc(to.Metric, func(y *dto.Metric) bool { return labelsOf(x) == labelsOf(y) })
		if k < 0 {
			to.Metric = append(to.Metric, x)
			continue
		}
		y := to.Metric[k]
		switch {
		case x.Counter != nil && y.Counter != nil:
			y.Counter.Value = new(x.Counter.GetValue() + y.Counter.GetValue())
		case x.Gauge != nil && y.Gauge != nil:
			y.Gauge.Value = new(x.Gauge.GetValue() + y.Gauge.GetValue())
		case x.Histogram != nil && y.Histogram != nil:
			a, b := x.Histogram, y.Histogram
			b.SampleCount = new(a.GetSampleCount() + b.GetSampleCount())
			b.SampleSum = new(a.GetSampleSum() + b.GetSampleSum())
			for k := range min(len(a.Bucket), len(b.Bucket)) { // the same, but for infinity
				b.Bucket[k].CumulativeCount = new(a.Bucket[k].GetCumulativeCount() + b.Bucket[k].GetCumulativeCount())
			}
		}
	}
}

// labelsOf returns the labels as one string.
func labelsOf(m *dto.Metric) string {
	var all []string
	for _, l := range m.Label {
		all = append(all, l.GetName()+"="+l.GetValue())
	}
	slices.Sort(all)
	return strings.Join(all, "\x00")
}

// textOf returns metrics as text; countsOnly leaves out what is only true of now.
func textOf(families []*dto.MetricFamily, countsOnly bool) []byte {
	var b bytes.Buffer
	for _, f := range families {
		if !countsOnly || f.GetType() != dto.MetricType_GAUGE {
			expfmt.MetricFamilyToText(&b, f) // a buffer takes all
		}
	}
	return b.Bytes()
}

// measure answers measure.
func (m *metrics) measure() (measured, error) {
	m.mu.Lock()
	given := m.given
	m.mu.Unlock()
	if given {
		return measured{Given: true}, nil
	}
	all, err := m.Gather()
	return measured{Text: textOf(all, false)}, err
}

// bequeath gives the counts of this process, which ends, to its successor.
func (m *metrics) bequeath() {
	m.mu.Lock()
	m.given = true
	m.mu.Unlock()
	all, err := m.Gather()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), bequeathBound)
	defer cancel()
	counts := measured{PID: os.Getpid(), Text: textOf(all, true)}
	askOther(ctx, m.handler.path, bequeath, counts) // without a successor nobody has them
}

// bequeathBound is how long the successor may take.
const bequeathBound = 2 * time.Second

// inherit takes the counts of a process that ends.
func (m *metrics) inherit(of measured) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, err := sumTexts(map[string]*dto.MetricFamily{}, m.ended, of.Text)
	if err != nil {
		return err
	}
	if m.heard == nil {
		m.heard = map[int]bool{}
	}
	m.heard[of.PID], m.ended = true, textOf(all, true)
	return nil
}
