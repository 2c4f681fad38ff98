package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/guard"
	"btools/lib/pool/bus"
	"btools/lib/record"
)

// network is NATS, and HTTP from gateways to hosts, with faults.
type network struct {
	mu            sync.Mutex
	r             *rand.Rand
	rate          float64 // part of the messages that are lost, repeated, late or out of order
	faults        int     // so far
	subscriptions []*subscription
	hosts         map[string]*machine   // by address
	strangers     map[string]answerer   // that answer requests to an address
	cuts          map[cut]chan struct{} // closed when the cut is over
	leases        map[string]*Lease     // of living gateways, by ID
	dead          map[string]bool       // gateways that were killed
	holders       map[string]string     // last lease of an instance, by boot and instance
	broken        func(text string)     // notes what must never be
}

// answerer answers requests.
type answerer func(*http.Request) (*http.Response, error)

// cut is one direction between two machines.
type cut struct{ from, to string }

// subscription is one of a station.
type subscription struct {
	at      *station
	pattern []string
	group   string
	mu      sync.Mutex // messages are served one at a time
	serve   func(*bus.Message)
	ended   atomic.Bool
}

// station is a machine's connection to NATS.
type station struct {
	net     *network
	name    string
	side    int // of a server that is cut in two; the network's lock guards it
	down    bool
	changed func(up bool)
}

func newNetwork(seed uint64, broken func(string)) *network {
	return &network{r: rand.New(rand.NewPCG(seed, 0)), hosts: map[string]*machine{},
		strangers: map[string]answerer{}, cuts: map[cut]chan struct{}{},
		leases: map[string]*Lease{}, dead: map[string]bool{}, holders: map[string]string{}, broken: broken}
}

// intN returns a random number.
func (n *network) intN(below int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.r.IntN(below)
}

func (n *network) upTo(most time.Duration) time.Duration { return time.Duration(n.intN(int(most))) }

// send delivers a message some time later, if it can.
func (n *network) send(from, to *station, do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	after := func(d time.Duration) {
		time.AfterFunc(d, func() {
			n.mu.Lock()
			is := n.connectedLocked(from, to)
			n.mu.Unlock()
			if is {
				do()
			}
		})
	}
	quick := time.Duration(n.r.IntN(int(2 * time.Millisecond)))
	if n.r.Float64() >= n.rate {
		after(quick)
		return
	}
	n.faults++
	switch n.r.IntN(3) {
	case 0: // lost
	case 1: // twice
		after(quick)
		after(quick + time.Duration(n.r.IntN(int(time.Second))))
	default: // late, and out of order
		after(time.Duration(n.r.IntN(int(3 * time.Second))))
	}
}

func (n *network) connectedLocked(from, to *station) bool {
	return !from.down && !to.down && from.side == to.side && !n.dead[to.name]
}

// receivers returns who gets a message: each subscription without a group, and one of each group.
func (n *network) receivers(from *station, subject string) (all []*subscription) {
	n.mu.Lock()
	defer n.mu.Unlock()
	tokens := strings.Split(subject, ".")
	groups := map[string][]*subscription{}
	for _, s := range n.subscriptions {
		switch {
		case !n.connectedLocked(from, s.at) || !matches(s.pattern, tokens):
		case s.group == "":
			all = append(all, s)
		default:
			groups[s.group] = append(groups[s.group], s)
		}
	}
	for _, members := range groups {
		all = append(all, members[n.r.IntN(len(members))])
	}
	return all
}

func matches(pattern, subject []string) bool {
	for i, p := range pattern {
		switch {
		case p == ">":
			return i < len(subject)
		case i >= len(subject) || p != "*" && p != subject[i]:
			return false
		}
	}
	return len(pattern) == len(subject)
}

func (s *subscription) deliver(m *bus.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended.Load() {
		s.serve(m)
	}
}

// Subscribe implements bus.Bus.
func (a *station) Subscribe(subject, group string, serve func(*bus.Message)) (stop func(), err error) {
	s := &subscription{at: a, pattern: strings.Split(subject, "."), group: group, serve: serve}
	a.net.mu.Lock()
	defer a.net.mu.Unlock()
	a.net.subscriptions = append(a.net.subscriptions, s)
	return func() {
		s.ended.Store(true)
		a.net.mu.Lock()
		defer a.net.mu.Unlock()
		a.net.subscriptions = slices.DeleteFunc(a.net.subscriptions, func(o *subscription) bool { return o == s })
	}, nil
}

// Publish implements bus.Bus.
func (a *station) Publish(subject string, body any) error {
	b, err := json.Marshal(body)
	if err == nil && len(b) > bus.MaxSize {
		err = errors.New("too long")
	}
	if err == nil && a.isDown() {
		err = bus.ErrDown
	}
	if err != nil {
		return err
	}
	for _, s := range a.net.receivers(a, subject) {
		m := &bus.Message{Subject: subject, Data: b, Answer: func(any) {}}
		a.net.send(a, s.at, func() { s.deliver(m) })
	}
	return nil
}

func (a *station) isDown() bool {
	a.net.mu.Lock()
	defer a.net.mu.Unlock()
	return a.down
}

// Request implements bus.Bus.
func (a *station) Request(ctx context.Context, subject string, body, answer any) error {
	b, err := json.Marshal(body)
	if err == nil && len(b) > bus.MaxSize {
		err = errors.New("too long")
	}
	if err == nil && a.isDown() {
		err = bus.ErrDown
	}
	if err != nil {
		return err
	}
	to := a.net.receivers(a, subject)
	if len(to) == 0 {
		return bus.ErrNobody
	}
	answers := make(chan []byte, 1)
	for _, s := range to {
		m := &bus.Message{Subject: subject, Data: b, Answer: func(body any) {
			b, _ := json.Marshal(body)
			a.net.send(s.at, a, func() {
				select {
				case answers <- b:
				default:
				}
			})
		}}
		a.net.send(a, s.at, func() { s.deliver(m) })
	}
	select {
	case b := <-answers:
		return (&bus.Message{Data: b}).Read(answer)
	case <-ctx.Done():
		return bus.ErrLate
	}
}

// Announce implements offer.Connection.
func (a *station) Announce(s bus.Service) (stop func(), err error) {
	var all []func()
	for _, pool := range s.Pools {
		stop, _ := a.Subscribe(bus.WantSubject(s.Region, pool, bus.All, bus.All), bus.WantGroup,
			func(m *bus.Message) { s.Want(pool, m) })
		all = append(all, stop)
	}
	return func() {
		for _, stop := range all {
			stop()
		}
	}, nil
}

// disconnect has the connection be down for a while.
func (a *station) disconnect(while time.Duration) {
	set := func(down bool) {
		a.net.mu.Lock()
		was, changed := a.down, a.changed
		a.down = down
		a.net.mu.Unlock()
		if was != down && changed != nil {
			changed(!down)
		}
	}
	set(true)
	time.AfterFunc(while, func() { set(false) })
}

// cutFor cuts one direction between two machines for a while.
func (n *network) cutFor(while time.Duration, from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := cut{from, to}
	if n.cuts[at] != nil {
		return
	}
	over := make(chan struct{})
	n.cuts[at] = over
	time.AfterFunc(while, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.cuts, at)
		close(over)
	})
}

// pass waits until bytes get from one machine to another: what is sent during a cut arrives after it.
func (n *network) pass(ctx context.Context, from, to string) error {
	for {
		n.mu.Lock()
		over := n.cuts[cut{from, to}]
		n.mu.Unlock()
		if over == nil {
			return ctx.Err()
		}
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// line is the HTTP of a gateway.
type line struct {
	net  *network
	from string
}

// RoundTrip implements http.RoundTripper.
func (l line) RoundTrip(r *http.Request) (*http.Response, error) {
	n := l.net
	body, _ := io.ReadAll(r.Body)
	time.Sleep(n.upTo(2 * time.Millisecond))
	n.mu.Lock()
	m, dead := n.hosts[r.URL.Host], n.dead[l.from]
	answer := n.strangers[r.URL.Host]
	n.mu.Unlock()
	if answer != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		return answer(r)
	}
	if dead {
		return nil, errors.New("the gateway is dead")
	}
	ctx := r.Context()
	if n.intN(2) == 0 { // a new connection
		dial, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if n.pass(dial, l.from, m.name) != nil || n.pass(dial, m.name, l.from) != nil {
			return nil, errors.New("i/o timeout")
		}
	}
	if err := n.pass(ctx, l.from, m.name); err != nil {
		return nil, err
	}
	p := m.process()
	if p == nil {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	conn, other := net.Pipe()
	defer other.Close()
	served, cancel := context.WithCancel(guard.ConnContext(p.ctx, conn))
	request := r.Clone(served)
	request.Body = io.NopCloser(bytes.NewReader(body))
	done := make(chan struct{})
	p.requests.Go(func() {
		defer cancel()
		p.front.ServeHTTP(w, request)
		if r.URL.Path == "/lease" && w.Code == http.StatusOK {
			n.granted(p, w.Body.Bytes())
		}
		close(done)
	})
	select {
	case <-done:
	case <-p.ctx.Done():
		return nil, errors.New("connection reset by peer")
	case <-ctx.Done():
		p.requests.Go(func() { // the host learns of it
			if n.pass(p.ctx, l.from, m.name) == nil {
				cancel()
			}
		})
		return nil, ctx.Err()
	}
	if err := n.pass(ctx, m.name, l.from); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// granted notes that a host has granted a lease: who had the instance before knows by now that it has not.
func (n *network) granted(p *process, answer []byte) {
	rec, err := record.Parse(answer)
	if err != nil {
		n.broken("a host's answer: " + err.Error())
		return
	}
	l := record.Member[record.Lease](rec, "lease")
	n.mu.Lock()
	defer n.mu.Unlock()
	at := p.boot + "/" + l.Instance
	if before := n.leases[n.holders[at]]; before != nil && before.ctx.Err() == nil {
		n.broken("two can use instance " + at)
	}
	n.holders[at] = l.ID
}

// discard is the log of what a test does not look at.
var discard = slog.New(slog.DiscardHandler)
