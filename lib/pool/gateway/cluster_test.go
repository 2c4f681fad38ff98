package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/logins"
	"btools/lib/pool"
	"btools/lib/pool/config"
	"btools/lib/pool/offer"
	"btools/lib/pool/web"
	"btools/lib/tokens"
)

// machine is one with a host, whose processes come and go.
type machine struct {
	cluster *cluster
	name    string
	addr    string

	mu      sync.Mutex
	current *process // nil: it is dead
}

// process is one of a host.
type process struct {
	boot     string
	pools    *pool.Service
	host     *offer.Host
	station  *station
	front    *front.Front
	ctx      context.Context
	end      func()
	requests sync.WaitGroup
}

func (m *machine) process() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

// cluster is hosts and gateways on a network.
type cluster struct {
	*network
	t        *testing.T
	slots    int
	tokens   string // file
	first    bool   // place of new gateways
	machines []*machine

	gateways []*member // the current ones; the network's lock guards them
	nextName int
	all      sync.WaitGroup
	ctx      context.Context
}

// member is a gateway.
type member struct {
	*Gateway
	name    string
	station *station
	end     context.CancelCauseFunc
}

const clusterToken = "a-token-of-the-test"

// newCluster starts hosts and gateways, which end with the test.
func newCluster(t *testing.T, seed uint64, hosts, slots, gateways int) *cluster {
	ctx, stop := context.WithCancel(context.Background())
	c := &cluster{t: t, slots: slots, tokens: filepath.Join(t.TempDir(), "tokens"), ctx: ctx}
	c.network = newNetwork(seed, func(text string) { t.Error(text) })
	if err := os.WriteFile(c.tokens, []byte("ci "+clusterToken+" trust\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range hosts {
		m := &machine{cluster: c, name: fmt.Sprint("h", i), addr: fmt.Sprintf("127.0.1.%d:80", i+1)}
		c.hosts[m.addr] = m
		c.machines = append(c.machines, m)
		m.start()
	}
	for range gateways {
		c.newGateway()
	}
	t.Cleanup(func() {
		stop()
		for _, g := range c.current() {
			g.end(nil)
			g.Wait()
		}
		for _, m := range c.machines {
			m.kill()
		}
		c.all.Wait()
	})
	return c
}

// start starts a process of the host.
func (m *machine) start() {
	t := m.cluster.t
	cfg, err := config.Load("", []string{config.Prefix + "LAUNCH=false", "_A_IS_DEFAULT=1",
		fmt.Sprintf("%s_A_INSTANCES=%d", config.Prefix, m.cluster.slots), config.Prefix + "_A_IS_DEFAULT=1"})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{boot: rand.Text(), pools: pool.New(cfg, discard)}
	p.ctx, p.end = context.WithCancel(context.Background())
	if _, err := p.pools.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	file, err := tokens.Open(m.cluster.tokens, nil, discard)
	if err != nil {
		t.Fatal(err)
	}
	s := &web.Server{Pools: p.pools, Boot: p.boot, Lease: p.lease, Call: p.call,
		Elsewhere:     func(context.Context, string, string) []web.Distant { return nil },
		HoldElsewhere: func(_ context.Context, p pool.Holding) pool.Held { return pool.Held{Gone: p.Leases} }}
	p.front = &front.Front{Guard: guard.Guard{Tokens: file}, Log: discard, Routes: s.Routes()}
	p.station = &station{net: m.cluster.network, name: m.name}
	p.host = &offer.Host{Bus: p.station, Pools: p.pools.Offers, Name: m.name, Region: "r", URL: "http://" + m.addr,
		Boot: p.boot, Version: "1.0.0", Log: discard}
	p.station.changed = p.host.Changed
	m.cluster.all.Go(func() { p.host.Run(p.ctx, p.pools.Offers.Changed()) })
	m.mu.Lock()
	m.current = p
	m.mu.Unlock()
}

// kill ends the process of the host, if there is one.
func (m *machine) kill() {
	m.mu.Lock()
	p := m.current
	m.current = nil
	m.mu.Unlock()
	if p != nil {
		p.end()
		m.cluster.all.Go(func() {
			p.requests.Wait()
			p.pools.Stop()
		})
	}
}

// lease answers web's requests as the service does.
func (p *process) lease(ctx context.Context, r api.HoldRequest, _ *logins.State) (any, error) {
	timeout := time.Duration(*r.Timeout) * time.Millisecond
	g, w, err := p.pools.Lease(ctx, pool.Request{Pool: r.Pool, Timeout: &timeout,
		TTL: time.Duration(r.TTL) * time.Millisecond, Confirm: r.Confirm, Holder: r.Holder, Offer: r.Offer,
		By: control.PeerOf(ctx)})
	if w != nil {
		g, err = w.Wait()
	}
	if err != nil {
		return nil, err
	}
	return g.Record, nil
}

// call answers the other methods.
func (p *process) call(_ context.Context, method string, params json.RawMessage) (any, error) {
	var of api.Of
	json.Unmarshal(params, &of)
	switch method {
	case string(api.Release):
		return map[string]bool{"released": p.pools.Release(of.Lease)}, nil
	case string(api.Renew):
		return p.pools.Renew(of.Lease, 0)
	}
	return nil, errors.New(method)
}

// newGateway starts a gateway.
func (c *cluster) newGateway() {
	c.mu.Lock()
	c.nextName++
	name := fmt.Sprint("g", c.nextName)
	c.mu.Unlock()
	ctx, end := context.WithCancelCause(context.Background())
	m := &member{name: name, station: &station{net: c.network, name: name}, end: end}
	var err error
	up := func() (time.Time, error) { return time.Time{}, nil }
	token := func() (string, error) { return clusterToken, nil }
	m.Gateway, err = New(ctx, Options{Bus: m.station, Down: up, User: name, Regions: []string{"r"}, Token: token,
		First: c.first, HTTP: &http.Client{Transport: line{c.network, name}}, Log: discard})
	if err != nil {
		c.t.Fatal(err)
	}
	m.station.changed = m.Changed
	c.mu.Lock()
	c.gateways = append(c.gateways, m)
	c.mu.Unlock()
}

func (c *cluster) current() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*member{}, c.gateways...)
}

// killGateway kills a gateway with all that it does, and starts another one.
func (c *cluster) killGateway(k int) {
	c.mu.Lock()
	m := c.gateways[k]
	c.dead[m.name] = true
	c.gateways = append(c.gateways[:k], c.gateways[k+1:]...)
	for id, l := range c.leases {
		if l.gateway == m.Gateway {
			delete(c.leases, id)
		}
	}
	c.mu.Unlock()
	m.end(errors.New("killed"))
	c.all.Go(m.Wait)
	c.newGateway()
}

// lease leases as a client of some gateway, holds the lease for a while, and reports whether it has got one.
func (c *cluster) lease(timeout, hold time.Duration) bool {
	all := c.current()
	g := all[c.intN(len(all))]
	l, err := g.Lease(c.t.Context(), Request{Pool: "A", Timeout: timeout})
	if err != nil {
		return false
	}
	c.mu.Lock()
	if !c.dead[g.name] {
		c.leases[l.ID] = l
	}
	c.mu.Unlock()
	select {
	case <-time.After(hold):
	case <-l.Ended():
	}
	l.Release(c.t.Context())
	c.mu.Lock()
	delete(c.leases, l.ID)
	c.mu.Unlock()
	return true
}

// disturb does something bad.
func (c *cluster) disturb() {
	n := c.intN
	machine := c.machines[n(len(c.machines))]
	all := c.current()
	k := n(len(all))
	while := c.upTo(12 * time.Second)
	c.mu.Lock()
	c.faults++
	c.mu.Unlock()
	switch n(10) {
	case 0, 1:
		c.cutFor(while, machine.name, all[k].name)
	case 2, 3:
		c.cutFor(while, all[k].name, machine.name)
	case 4:
		c.cutFor(while, machine.name, all[k].name)
		c.cutFor(while, all[k].name, machine.name)
	case 5:
		all[k].station.disconnect(while)
	case 6:
		if p := machine.process(); p != nil {
			p.station.disconnect(while)
		}
	case 7: // the servers are cut in two
		c.mu.Lock()
		defer c.mu.Unlock()
		all[k].station.side = 1
		time.AfterFunc(while, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			all[k].station.side = 0
		})
	case 8:
		if machine.process() != nil {
			machine.kill()
			time.AfterFunc(while/2, machine.start)
		}
	case 9:
		if n(3) == 0 {
			c.killGateway(k)
		} else if p := machine.process(); p != nil {
			p.pools.Drain("", true)
			time.AfterFunc(while, func() { p.pools.Drain("", false) })
		}
	}
}

// rest asserts that all slots are free, and that nothing is left of requests.
func (c *cluster) rest() {
	c.t.Helper()
	for _, m := range c.machines {
		p := m.process()
		for _, r := range p.pools.Offers.Rooms() {
			if r.Free != r.Total || r.Offered != 0 || r.Waiting != 0 || p.pools.Leases() != 0 {
				c.t.Errorf("%s: %+v, %d leases", m.name, r, p.pools.Leases())
			}
		}
	}
	for _, g := range c.current() {
		g.mu.Lock()
		if len(g.waits) != 0 || len(g.hosts) != 0 || len(g.open) != 0 {
			c.t.Errorf("%s: %d requests, %d hosts, %d subscriptions are left", g.name, len(g.waits), len(g.hosts),
				len(g.open))
		}
		g.mu.Unlock()
	}
}

// Whatever happens to messages, connections, hosts and gateways: no instance has two holders who can both use it, and
// afterwards each request is served, each lease has ended, and each slot is free.
func TestFaults(t *testing.T) {
	most := 2000
	if os.Getenv("LONG") != "" {
		most = 30_000
	}
	seed := mathrand.Uint64()
	t.Log("seed", seed)
	for faults, granted := 0, 0; faults < most; seed++ {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, seed, 4, 3, 3)
			c.first = true
			var clients sync.WaitGroup
			over := time.Now().Add(time.Minute)
			for range 20 {
				clients.Go(func() {
					for time.Now().Before(over) {
						hold := 4 * time.Second
						if c.intN(3) == 0 {
							hold = 30 * time.Second
						}
						if c.lease(c.upTo(20*time.Second), c.upTo(hold)) {
							c.mu.Lock()
							granted++
							c.mu.Unlock()
						}
					}
				})
			}
			c.mu.Lock()
			c.rate = c.r.Float64() * c.r.Float64() / 2
			c.mu.Unlock()
			for time.Now().Before(over) {
				time.Sleep(c.upTo(2 * time.Second))
				c.disturb()
			}
			c.mu.Lock()
			c.rate = 0
			c.mu.Unlock()
			clients.Wait()
			time.Sleep(15 * time.Second) // all is up again
			for range 20 {
				clients.Go(func() {
					if !c.lease(10*time.Minute, c.upTo(time.Second)) {
						t.Error("a request was not served after the faults")
					}
				})
			}
			clients.Wait()
			time.Sleep(15 * time.Second)
			c.rest()
			faults += c.faults
		})
		if t.Failed() {
			t.Fatalf("seed %d, after %d faults and %d leases", seed, faults, granted)
		}
		t.Log(faults, granted)
	}
}
