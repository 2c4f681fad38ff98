//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"btools/lib/control"
	"btools/lib/pool"
	"btools/lib/pool/bus"
	"btools/lib/pool/config"
	"btools/lib/pool/gateway"
	"btools/lib/pool/offer"
	"btools/lib/tokens"
)

// Simulated hosts have the product's own services without browsers, and connections of their own to a real server of
// NATS. Gateways are the product's; a call of a host takes a millisecond in the place of HTTPS.

// cloud is simulated hosts and gateways.
type cloud struct {
	server   int // pid
	monitor  string
	slots    int
	hosts    map[string]*pool.Service // by the name in their address
	gateways []*gateway.Gateway

	used    atomic.Int64
	granted atomic.Int64
	late    atomic.Int64 // grants of offers that had lapsed
	mu      sync.Mutex
	waits   series // ms
}

// cloud starts a number of hosts, each with some slots, and gateways.
func (b *bench) cloud(hosts, slots, gateways int) *cloud {
	program := os.Getenv("BTOOLS_NATS_SERVER")
	if program == "" {
		program = "nats-server"
	}
	ports := make([]string, 2)
	for i := range ports {
		l := must(net.Listen("tcp", "127.0.0.1:0"))
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
		l.Close()
	}
	server := exec.Command(program, "-a", "127.0.0.1", "-p", ports[0], "-m", ports[1])
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(server.Start())
	b.atEnd(func() { server.Process.Kill(); server.Wait() })
	c := &cloud{server: server.Process.Pid, monitor: "http://127.0.0.1:" + ports[1], slots: hosts * slots,
		hosts: map[string]*pool.Service{}}
	url := "nats://127.0.0.1:" + ports[0]
	for range 1000 {
		resp, err := http.Get(c.monitor + "/healthz")
		if err == nil {
			resp.Body.Close()
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.atEnd(stop)
	quiet := slog.New(slog.DiscardHandler)
	cfg := must(config.Load("", []string{"PW_MCP_PROXY_LAUNCH=false", fmt.Sprint("PW_MCP_PROXY__A_INSTANCES=", slots)}))
	connect := func(name string, changed func(bool)) *bus.NATS {
		n := must(bus.Connect(bus.Keys{Servers: []string{url}, Name: name}, quiet, changed))
		check(n.Await(ctx, 10*time.Second))
		return n
	}
	var up sync.WaitGroup
	for i := range hosts {
		name := fmt.Sprint("h", i)
		v := pool.New(cfg, quiet)
		v.LeaseLevel = slog.LevelDebug
		must(v.Start(ctx))
		c.hosts[name] = v
		h := &offer.Host{Bus: connect(name, nil), Pools: v.Offers, Name: name, Region: "r", URL: "https://" + name,
			Boot: name, Version: "1.0.0", Log: quiet}
		up.Go(func() { h.Run(ctx, v.Offers.Changed()) })
	}
	for i := range gateways {
		name := fmt.Sprint("g", i)
		n := connect(name, nil)
		c.gateways = append(c.gateways, must(gateway.New(ctx, gateway.Options{Bus: n, Down: n.Down, User: name,
			Regions: []string{"r"}, FarAfter: time.Second, Token: func() (string, error) { return name, nil },
			HTTP: &http.Client{Transport: c}, Log: quiet})))
	}
	b.atEnd(func() {
		for _, v := range c.hosts {
			v.Stop()
		}
	})
	return c
}

// RoundTrip is a call of a host.
func (c *cloud) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(time.Millisecond)
	v := c.hosts[r.URL.Host]
	by := &tokens.Token{Name: r.Header.Get("Authorization"), Trust: true}
	var body struct {
		Offer, Lease string
		Leases       []string
		Wait         string
	}
	check(json.NewDecoder(r.Body).Decode(&body))
	status, answer := http.StatusOK, any(nil)
	switch r.URL.Path {
	case "/lease":
		g, _, err := v.Lease(context.WithoutCancel(r.Context()), pool.Request{Pool: "A", Offer: body.Offer,
			TTL: 10 * time.Second, By: control.ByToken(by)})
		if err != nil {
			c.late.Add(1)
			status, answer = http.StatusGone, map[string]any{"error": control.ErrorOf(err)}
			break
		}
		c.used.Add(1)
		answer = map[string]any{"v": 1, "lease": map[string]string{"id": g.ID},
			"instance": map[string]string{"http_url": "https://" + r.URL.Host + "/lease/" + g.ID}}
	case "/hold":
		gone, _, ended := v.For(control.ByToken(by)).HoldOn(body.Leases)
		if len(gone) == 0 {
			wait, _ := time.ParseDuration(body.Wait)
			ctx, cancel := context.WithTimeout(r.Context(), wait)
			gone = ended(ctx)
			cancel()
		}
		answer = map[string]any{"gone": gone}
	case "/release":
		if v.Release(body.Lease) {
			c.used.Add(-1)
		}
	}
	text := must(json.Marshal(answer))
	return &http.Response{StatusCode: status, Status: http.StatusText(status),
		Body: io.NopCloser(bytes.NewReader(text))}, nil
}

// lease leases by one of the gateways, and releases after a time that is random with a mean.
func (c *cloud) lease(ctx context.Context, mean time.Duration) {
	began := time.Now()
	l, err := c.gateways[rand.IntN(len(c.gateways))].Lease(ctx, gateway.Request{Pool: "A", Timeout: time.Minute})
	if err != nil {
		return
	}
	c.granted.Add(1)
	took := time.Since(began).Seconds() * 1000
	c.mu.Lock()
	c.waits.add(took)
	c.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(rand.ExpFloat64() * float64(mean))):
	}
	l.Release(context.WithoutCancel(ctx))
}

// fill leases all slots without a gateway, each for a time that is random with a mean.
func (c *cloud) fill(ctx context.Context, mean time.Duration) {
	by := control.ByToken(&tokens.Token{Name: "before", Trust: true})
	for _, v := range c.hosts {
		for range c.slots / len(c.hosts) {
			g, _, err := v.Lease(ctx, pool.Request{Pool: "A", TTL: time.Hour, By: by})
			check(err)
			c.used.Add(1)
			time.AfterFunc(time.Duration(rand.ExpFloat64()*float64(mean)), func() {
				if v.Release(g.ID) {
					c.used.Add(-1)
				}
			})
		}
	}
}

// load makes requests at a rate for a time.
func (c *cloud) load(ctx context.Context, all *sync.WaitGroup, rate float64, mean, most time.Duration) {
	for begun, n := time.Now(), 0; time.Since(begun) < most; time.Sleep(time.Millisecond) {
		for ; float64(n) < rate*time.Since(begun).Seconds(); n++ {
			all.Go(func() { c.lease(ctx, mean) })
		}
	}
}

// messages returns how many messages the server has got and sent.
func (c *cloud) messages() (n float64) {
	resp := must(http.Get(c.monitor + "/varz"))
	defer resp.Body.Close()
	var v struct {
		In  float64 `json:"in_msgs"`
		Out float64 `json:"out_msgs"`
	}
	check(json.NewDecoder(resp.Body).Decode(&v))
	return v.In + v.Out
}

// forget begins a measurement anew.
func (c *cloud) forget() (since func() (grants, messages, cores float64, waits series)) {
	c.mu.Lock()
	c.waits = nil
	c.mu.Unlock()
	granted, messages, began, cpu := c.granted.Load(), c.messages(), time.Now(), cpuOf(c.server)
	return func() (float64, float64, float64, series) {
		c.mu.Lock()
		defer c.mu.Unlock()
		grants := float64(c.granted.Load() - granted)
		cores := (cpuOf(c.server) - cpu).Seconds() / time.Since(began).Seconds()
		return grants, (c.messages() - messages) / grants, cores, append(series(nil), c.waits...)
	}
}

// cpuOf returns the processor time of a process.
func cpuOf(pid int) time.Duration {
	b := must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))
	_, rest, _ := strings.Cut(string(b), ") ")
	var user, system int64
	fields := strings.Fields(rest)
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// simulated returns the number of simulated hosts, 1,000 or BENCH_HOSTS, and what the goals for 1,000 become by it.
func simulated() (hosts int, scale float64) {
	hosts = 1000
	if n := os.Getenv("BENCH_HOSTS"); n != "" {
		fmt.Sscan(n, &hosts)
	}
	return hosts, float64(hosts) / 1000
}

// manyHosts measures requests while half of all slots are in use.
func manyHosts(b *bench) {
	hosts, scale := simulated()
	c := b.cloud(hosts, 50, 20)
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	rate := 2000 * scale
	mean := time.Duration(float64(c.slots) / 2 / rate * float64(time.Second))
	c.load(ctx, &all, rate, mean, 5*time.Second)
	since := c.forget()
	c.load(ctx, &all, rate, mean, 10*time.Second)
	_, messages, cores, waits := since()
	row(fmt.Sprintf("%d hosts, %.0f requests/s with room: ask + grant p50, p99", hosts, rate), "≤ 3, – ms",
		"%.1f, %.1f ms", waits.at(50), waits.at(99))
	row("… messages a grant, cores and memory of nats-server", "≤ 6, ≤ 0.5, ≤ 200", "%.1f, %.2f, %.0f MiB", messages,
		cores, pss(c.server))
}

// fullHosts measures requests while all slots are in use and many wait; burnt is how many cores are busy besides.
func fullHosts(waiting, rate float64, burnt int) func(b *bench) {
	return func(b *bench) {
		hosts, scale := simulated()
		c := b.cloud(hosts, 50, 20)
		ctx, stop := context.WithCancel(context.Background())
		var all sync.WaitGroup
		defer all.Wait()
		defer stop()
		for range burnt {
			busy := exec.Command("sh", "-c", "while :; do :; done")
			busy.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			check(busy.Start())
			defer busy.Wait()
			defer busy.Process.Kill()
		}
		waiting, rate := waiting*scale, rate*scale
		mean := time.Duration(float64(c.slots) / rate * float64(time.Second))
		c.fill(ctx, mean)
		c.load(ctx, &all, waiting+rate, mean, time.Second)
		c.load(ctx, &all, rate, mean, 5*time.Second)
		since, late := c.forget(), c.late.Load()
		var used series
		sampling, sampled := context.WithCancel(ctx)
		all.Go(func() {
			for sampling.Err() == nil {
				used.add(float64(c.used.Load()) / float64(c.slots) * 100)
				time.Sleep(20 * time.Millisecond)
			}
		})
		c.load(ctx, &all, rate, mean, 15*time.Second)
		sampled()
		grants, messages, cores, waits := since()
		what := fmt.Sprintf("%d hosts, full, %.0f/s, %.0f wait", hosts, rate, waiting)
		if burnt > 0 {
			what += fmt.Sprintf(", %d cores burnt", burnt)
		}
		row(what+": slots in use", "≥ 98 %", "%.1f %%", used.median())
		row("… wait p50, p99, longest ÷ median", "–, –, ≤ 4", "%.1f, %.1f s, %.1f", waits.at(50)/1000,
			waits.at(99)/1000, waits.at(100)/waits.at(50))
		row("… messages a grant, offers that had lapsed, cores of nats-server", "≤ 50, ≤ 1 %", "%.0f, %.1f %%, %.2f",
			messages, float64(c.late.Load()-late)/grants*100, cores)
	}
}
