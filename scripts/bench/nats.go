//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"btools/lib/control"
	"btools/lib/jsonrpc"
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

// nats starts a server of NATS, and returns its pid and the URLs of the server and its monitoring.
func (b *bench) nats() (pid int, url, monitor string) {
	port, monitoring := freePort(), freePort()
	pid = b.start(command(cmp.Or(os.Getenv("BTOOLS_NATS_SERVER"), "nats-server"), "-a", "127.0.0.1", "-p", port,
		"-m", monitoring, "-l", "/dev/null"))
	monitor = "http://127.0.0.1:" + monitoring
	within(10*time.Second, func() bool {
		resp, err := http.Get(monitor + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	return pid, "nats://127.0.0.1:" + port, monitor
}

var quiet = slog.New(slog.DiscardHandler)

// threeServers starts a cluster, and returns the pids and the URLs of its servers.
func (b *bench) threeServers() (pids []int, urls string) {
	dir := must(os.MkdirTemp("", "btools-bench"))
	b.atEnd(func() { os.RemoveAll(dir) })
	file := must(os.ReadFile("../nats/three.conf"))
	check(os.WriteFile(dir+"/three.conf", file, 0o600))
	check(os.WriteFile(dir+"/users.conf", nil, 0o600)) // everybody may do everything
	var routes, all []string
	for range 3 {
		routes = append(routes, "127.0.0.1:"+freePort())
	}
	for i, at := range routes {
		listen := "127.0.0.1:" + freePort()
		server := command(cmp.Or(os.Getenv("BTOOLS_NATS_SERVER"), "nats-server"), "-c", dir+"/three.conf", "-l",
			"/dev/null")
		server.Env = append(os.Environ(), fmt.Sprint("BTOOLS_NATS_SERVER=n", i), "BTOOLS_NATS_REGION=local",
			"BTOOLS_NATS_LISTEN="+listen, "BTOOLS_NATS_CLUSTER="+at, "BTOOLS_ROUTE_PASSWORD=secret",
			"BTOOLS_NATS_ROUTES=[nats://route:secret@"+strings.Join(routes, ", nats://route:secret@")+"]")
		pids = append(pids, b.start(server))
		all = append(all, "nats://"+listen)
	}
	return pids, strings.Join(all, ",")
}

// connect connects to a server of NATS, or to one of several. Changed is called when the connection is up or down.
func connect(urls, name string, changed func(up bool)) *bus.NATS {
	n := must(bus.Connect(bus.Keys{Servers: strings.Split(urls, ","), Name: name}, quiet, changed))
	check(n.Await(ctx, 10*time.Second))
	return n
}

// newGateway returns a gateway, whose requests to hosts go by a transport.
func newGateway(ctx context.Context, urls, name string, to http.RoundTripper) *gateway.Gateway {
	var g atomic.Pointer[gateway.Gateway]
	n := connect(urls, name, func(up bool) {
		if g := g.Load(); g != nil {
			g.Changed(up)
		}
	})
	g.Store(must(gateway.New(ctx, gateway.Options{Bus: n, Down: n.Down, User: name, Regions: []string{"local"},
		FarAfter: time.Second, Token: func() (string, error) { return webToken, nil },
		HTTP: &http.Client{Transport: to}, Log: quiet})))
	return g.Load()
}

// cloud starts a number of hosts, each with some slots, and gateways.
func (b *bench) cloud(hosts, slots, gateways int) *cloud {
	server, url, monitor := b.nats()
	c := b.cloudAt(url, hosts, slots, gateways)
	c.server, c.monitor = server, monitor
	return c
}

// cloudAt does so at servers that are there.
func (b *bench) cloudAt(urls string, hosts, slots, gateways int) *cloud {
	c := &cloud{slots: hosts * slots, hosts: map[string]*pool.Service{}}
	ctx, stop := context.WithCancel(context.Background())
	b.atEnd(stop)
	cfg := must(config.Load("", []string{"PW_MCP_PROXY_LAUNCH=false", fmt.Sprint("PW_MCP_PROXY__A_INSTANCES=", slots)}))
	var up sync.WaitGroup
	for i := range hosts {
		name := fmt.Sprint("h", i)
		v := pool.New(cfg, quiet)
		v.LeaseLevel = slog.LevelDebug
		must(v.Start(ctx))
		c.hosts[name] = v
		h := &offer.Host{Pools: v.Offers, Name: name, Region: "local", URL: "https://" + name,
			Boot: name, Version: "1.0.0", Log: quiet}
		h.Bus = connect(urls, name, h.Changed)
		up.Go(func() { h.Run(ctx, v.Offers.Changed()) })
	}
	for i := range gateways {
		c.gateways = append(c.gateways, newGateway(ctx, urls, fmt.Sprint("g", i), c))
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
		pool.Holding
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
		answer = v.For(control.ByToken(by)).HoldOn(r.Context(), body.Holding, nil)
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
	granted, messages, began, before := c.granted.Load(), c.messages(), time.Now(), cpu(c.server)
	return func() (float64, float64, float64, series) {
		c.mu.Lock()
		defer c.mu.Unlock()
		grants := float64(c.granted.Load() - granted)
		cores := (cpu(c.server) - before) / 1000 / time.Since(began).Seconds()
		return grants, (c.messages() - messages) / grants, cores, append(series(nil), c.waits...)
	}
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

// killedServer measures how long no request is served when one of three servers is killed, of which each has a third of
// the hosts and gateways.
func killedServer(b *bench) {
	hosts, scale := simulated()
	pids, urls := b.threeServers()
	c := b.cloudAt(urls, hosts, 50, 20)
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	rate := 2000 * scale
	mean := time.Duration(float64(c.slots) / 2 / rate * float64(time.Second))
	all.Go(func() { c.load(ctx, &all, rate, mean, 15*time.Second) })
	time.Sleep(10 * time.Second)
	c.mu.Lock()
	c.waits = nil
	c.mu.Unlock()
	check(syscall.Kill(pids[0], syscall.SIGKILL))
	var longest time.Duration
	last, granted := time.Now(), c.granted.Load()
	for killed := last; time.Since(killed) < 5*time.Second; time.Sleep(time.Millisecond) {
		if n := c.granted.Load(); n != granted {
			last, granted = time.Now(), n
		}
		longest = max(longest, time.Since(last))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	row(fmt.Sprintf("%d hosts, %.0f requests/s, one of three servers killed: no lease for", hosts, rate), "≤ 0.5 s",
		"%.2f s", longest.Seconds())
	row("… wait p99 and longest in 5 s from there on", "–", "%.2f, %.2f s", c.waits.at(99)/1000, c.waits.at(100)/1000)
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
		goal, what := "≥ 98 %", fmt.Sprintf("%d hosts, full, %.0f/s, %.0f wait", hosts, rate, waiting)
		if burnt > 0 {
			what += fmt.Sprintf(", %d cores burnt", burnt)
			goal = "≥ 95 %"
		}
		row(what+": slots in use", goal, "%.1f %%", used.median())
		row("… wait p50, p99, longest ÷ median", "–, –, ≤ 4", "%.1f, %.1f s, %.1f", waits.at(50)/1000,
			waits.at(99)/1000, waits.at(100)/waits.at(50))
		row("… messages a grant, offers that had lapsed, cores of nats-server", "≤ 50, ≤ 1 %", "%.0f, %.1f %%, %.2f",
			messages, float64(c.late.Load()-late)/grants*100, cores)
	}
}

// realHosts starts services with these variables, each on an address of its own with encryption, and returns their
// URLs, the sockets, the URL of their server of NATS, and what sends requests to them.
func (b *bench) realHosts(n int, vars ...string) (urls, sockets []string, nats string, to *http.Transport) {
	_, nats, _ = b.nats()
	certificate, key, pool := selfSigned(n)
	for i := range n {
		on := append([]string{fmt.Sprint("NATS_NAME=host", i)}, vars...)
		_, socket, url := b.bpool(on, "--http", fmt.Sprintf("127.0.0.%d:0", i+2), "--tls-cert", certificate,
			"--tls-key", key, "--token-file", tokenFile(), "--nats", nats, "--socket", fmt.Sprint(dir, "/host", i))
		urls, sockets = append(urls, url), append(sockets, socket)
	}
	return urls, sockets, nats, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 64}
}

// selfSigned makes a certificate for some addresses, and returns its files and what trusts it.
func selfSigned(addresses int) (certificate, key string, pool *x509.CertPool) {
	private := must(ecdsa.GenerateKey(elliptic.P256(), crand.Reader))
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	for i := range addresses {
		about.IPAddresses = append(about.IPAddresses, net.IPv4(127, 0, 0, byte(i+2)))
	}
	der := must(x509.CreateCertificate(crand.Reader, about, about, private.Public(), private))
	pool = x509.NewCertPool()
	pool.AddCert(must(x509.ParseCertificate(der)))
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY",
		must(x509.MarshalPKCS8PrivateKey(private))), pool
}

// leasesOfHosts measures leases of real services without browsers, by NATS and by HTTPS alone.
func leasesOfHosts(b *bench) {
	const slots = 20
	vars := []string{fmt.Sprint("_A_INSTANCES=", slots), "LAUNCH=false"}
	urls, sockets, nats, to := b.realHosts(3, vars...)
	ctx, stop := context.WithCancel(context.Background())
	b.atEnd(stop)
	g := newGateway(ctx, nats, "g", to)
	once := func() float64 {
		var l *gateway.Lease
		took := ms(func() { l = must(g.Lease(ctx, gateway.Request{Pool: "A", Timeout: time.Minute})) })
		l.Release(ctx)
		return took
	}
	direct := &http.Client{Transport: to}
	call := func(path string, body any) (answer []byte) {
		r := must(http.NewRequest("POST", urls[0]+path, bytes.NewReader(must(json.Marshal(body)))))
		r.Header.Set("Authorization", "Bearer "+webToken)
		resp := must(direct.Do(r))
		defer resp.Body.Close()
		return must(io.ReadAll(resp.Body))
	}
	byHTTPS := func() float64 {
		var id string
		took := ms(func() { id = jsonrpc.GetString(call("/lease", map[string]string{"ttl": "10s"}), "lease", "id") })
		call("/release", map[string]string{"lease": id})
		return took
	}
	socket := b.control(sockets[0])
	local := func() float64 {
		var id string
		took := ms(func() { id = lease(socket) })
		release(socket, id)
		return took
	}
	all := make([]series, 3)
	for range 2000 {
		for i, measure := range []func() float64{once, byHTTPS, local} {
			all[i].add(measure())
		}
	}
	row("three hosts: ask + POST, p50, p99", "≤ 2.5, ≤ 15 ms", "%.2f, %.2f ms", all[0].at(50), all[0].at(99))
	row("… POST /lease of one of them, its socket: p50", "", "%.2f, %.2f ms", all[1].at(50), all[2].at(50))
	b.end()
	_, _, nats, to = b.realHosts(10, vars...)
	ctx, stop = context.WithCancel(context.Background())
	b.atEnd(stop)
	var gateways []*gateway.Gateway
	for i := range 8 {
		gateways = append(gateways, newGateway(ctx, nats, fmt.Sprint("g", i), to))
	}
	var leasing sync.WaitGroup
	var n atomic.Int64
	took := ms(func() {
		for i := range 64 {
			leasing.Go(func() {
				for range 200 {
					l, err := gateways[i%8].Lease(ctx, gateway.Request{Pool: "A", Timeout: time.Minute})
					if err == nil {
						n.Add(1)
						l.Release(ctx)
					}
				}
			})
		}
		leasing.Wait()
	})
	row("ten hosts, 64 clients: lease + release a second, failed", "≥ 1,500, 0", "%.0f, %d",
		float64(n.Load())/took*1000, 64*200-n.Load())
	queueOfHosts(ctx, gateways[:1])
}

// queueOfHosts measures 400 clients on 200 slots, each of which holds a lease for a second.
func queueOfHosts(ctx context.Context, gateways []*gateway.Gateway) {
	type grant struct{ asked, got time.Time }
	var mu sync.Mutex
	var grants []grant
	var used atomic.Int64
	var held series
	ctx, stop := context.WithTimeout(ctx, 15*time.Second)
	defer stop()
	var all sync.WaitGroup
	for range 400 {
		all.Go(func() {
			for ctx.Err() == nil {
				asked := time.Now()
				l, err := gateways[rand.IntN(len(gateways))].Lease(ctx,
					gateway.Request{Pool: "A", Timeout: time.Minute})
				if err != nil {
					continue
				}
				mu.Lock()
				grants = append(grants, grant{asked, time.Now()})
				mu.Unlock()
				used.Add(1)
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
				used.Add(-1)
				l.Release(context.WithoutCancel(ctx))
			}
		})
	}
	time.Sleep(3 * time.Second)
	for ctx.Err() == nil {
		held.add(float64(used.Load()) / 2)
		time.Sleep(10 * time.Millisecond)
	}
	all.Wait()
	// A grant overtakes if one that was asked for more than 20 ms earlier came later.
	slices.SortFunc(grants, func(a, b grant) int { return a.got.Compare(b.got) })
	overtaken, first := 0, time.Now()
	for _, g := range slices.Backward(grants) {
		if g.asked.Sub(first) > 20*time.Millisecond {
			overtaken++
		}
		if g.asked.Before(first) {
			first = g.asked
		}
	}
	row("400 clients, 200 slots held for 1 s: slots in use, overtaking", "≥ 95, ≤ 15 %", "%.1f, %.1f %%", held.median(),
		float64(overtaken)/float64(len(grants))*100)
}
