package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/pool"
	"btools/lib/pool/bus"
	"btools/lib/pool/remote"
)

// keeper is a host whose sessions are numbers: how often each has been used.
type keeper struct {
	name   string
	drains bool
	dead   bool
	copies map[string]*copied // by the ID of their lease
}

// copied is a session as one host has it.
type copied struct {
	session string
	uses    int
	frozen  time.Time // until then
	until   time.Time // end of the lease
}

// movers are hosts and gateways, and what must be of the sessions.
type movers struct {
	*network
	t *testing.T

	lock    sync.Mutex // guards the rest; taken before that of the network
	keepers map[string]*keeper
	uses    map[string]int // by session: how often it was used, wherever
	leases  int
	moves   int
	rate2   float64 // part of the requests to hosts with a fault
	killed  map[string]bool
	kill    func(gateway string)
}

func newMovers(t *testing.T, seed uint64, hosts int) *movers {
	m := &movers{t: t, keepers: map[string]*keeper{}, uses: map[string]int{}, killed: map[string]bool{}}
	m.network = newNetwork(seed, func(text string) { t.Error(text) })
	for i := range hosts {
		k := &keeper{name: fmt.Sprint("h", i), copies: map[string]*copied{}}
		addr := fmt.Sprintf("127.0.1.%d:80", i+1)
		m.keepers[addr] = k
		at := &station{net: m.network, name: k.name}
		asks := bus.FreeSubject("r", "A", bus.All, bus.All, bus.All)
		stop, _ := at.Subscribe(asks, bus.FreeGroup, func(q *bus.Message) {
			m.lock.Lock()
			defer m.lock.Unlock()
			if k.dead || k.drains {
				q.Answer(bus.Offer{Code: bus.None, Host: k.name})
				return
			}
			q.Answer(bus.Offer{ID: "o", Pool: "A", URL: "http://" + addr, Host: k.name})
		})
		t.Cleanup(stop)
	}
	return m
}

// gateway starts a gateway.
func (m *movers) gateway(name string) (g *Gateway, end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	g, err := New(ctx, Options{Bus: &station{net: m.network, name: name}, User: name, Regions: []string{"r"},
		Log: discard, Down: func() (time.Time, error) { return time.Time{}, nil },
		Token: func() (string, error) { return "t", nil }, HTTP: &http.Client{Transport: mover{m, name}},
		Count: func(e Event, result string) {
			if e == LeaseMoved && result == "moved" {
				m.lock.Lock()
				defer m.lock.Unlock()
				m.moves++
			}
		}})
	if err != nil {
		m.t.Fatal(err)
	}
	return g, func() {
		cancel()
		g.Wait()
	}
}

// mover is the HTTP of a gateway.
type mover struct {
	*movers
	from string
}

// RoundTrip implements http.RoundTripper. With a fault the request is lost, or its answer, or it is late, even after
// its client has given up, or the host or the gateway dies before or after it.
func (m mover) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	fault := -1
	m.mu.Lock()
	if m.r.Float64() < m.rate2 {
		fault = m.r.IntN(7)
	}
	late := time.Duration(m.r.IntN(int(3 * time.Millisecond)))
	if fault == 2 {
		late = time.Duration(m.r.IntN(int(8 * time.Second)))
	}
	m.mu.Unlock()
	done := make(chan func() (*http.Response, error), 1)
	time.AfterFunc(late, func() {
		m.lock.Lock()
		defer m.lock.Unlock()
		k := m.keepers[r.URL.Host]
		if fault == 3 {
			m.dieLocked(k)
		}
		if m.killed[m.from] || k.dead || fault == 0 || fault == 5 {
			if fault == 5 {
				m.killed[m.from] = true
			}
			done <- func() (*http.Response, error) { return nil, errors.New("connection refused") }
			return
		}
		code, answer := m.serveLocked(r.URL.Host, k, r.URL.Path, body)
		switch fault {
		case 1:
			done <- func() (*http.Response, error) { return nil, errors.New("connection reset") }
			return
		case 4:
			m.dieLocked(k)
		case 6:
			m.killed[m.from] = true
			done <- func() (*http.Response, error) { return nil, errors.New("killed") }
			return
		}
		done <- func() (*http.Response, error) {
			return &http.Response{StatusCode: code, Status: http.StatusText(code),
				Body: io.NopCloser(bytes.NewReader(answer))}, nil
		}
	})
	select {
	case got := <-done:
		return got()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// dieLocked kills a host, which comes back soon.
func (m *movers) dieLocked(k *keeper) {
	k.dead, k.copies = true, map[string]*copied{}
	time.AfterFunc(2*time.Second, func() {
		m.lock.Lock()
		defer m.lock.Unlock()
		k.dead, k.drains = false, false
	})
}

// serveLocked answers a request as a host does.
func (m *movers) serveLocked(addr string, k *keeper, path string, body []byte) (code int, answer []byte) {
	now := time.Now()
	for id, c := range k.copies {
		if c.until.Before(now) {
			delete(k.copies, id)
		}
	}
	var q struct {
		Lease   string
		Leases  []string
		Off     bool
		Session *copiedSession
	}
	json.Unmarshal(body, &q)
	refuse := func(code int) (int, []byte) { return code, []byte(`{"error":{"code":"try_again","message":"no"}}`) }
	c := k.copies[q.Lease]
	switch below, isLease := strings.CutPrefix(path, "/lease/"); {
	case isLease:
		name, verb, _ := strings.Cut(below, "/")
		id, _, _ := strings.Cut(name, ".")
		switch c := k.copies[id]; {
		case c == nil:
			return refuse(410)
		case verb == "session" && now.Before(c.frozen):
			b, _ := json.Marshal(copiedSession{c.session, c.uses})
			return 200, b
		case verb == "use" && !now.Before(c.frozen):
			if c.uses != m.uses[c.session] {
				m.broken(fmt.Sprintf("the copy of %s at %s has %d uses of %d", c.session, k.name, c.uses,
					m.uses[c.session]))
			}
			c.uses++
			m.uses[c.session] = c.uses
			return 200, []byte("{}")
		}
		return refuse(503)
	case path == "/lease" && k.drains:
		return refuse(410)
	case path == "/lease":
		m.leases++
		id := fmt.Sprintf("lease_%d_aaaaaaaaaaaaaaaa", m.leases)
		c := &copied{session: id, until: now.Add(remote.EndTime)}
		if q.Session != nil {
			c.session, c.uses = q.Session.Session, q.Session.Uses
		}
		k.copies[id] = c
		return 200, fmt.Appendf(nil, `{"v":1,"lease":{"id":%q,"pool":"A","instance":"0"},"instance":{"http_url":`+
			`"http://%s/lease/%s.secret","ws_url":"ws://%s/lease/%s.secret"}}`, id, addr, id, addr, id)
	case path == "/hold":
		held := pool.Held{Gone: []string{}}
		for _, id := range q.Leases {
			switch c := k.copies[id]; {
			case c == nil:
				held.Gone = append(held.Gone, id)
			case k.drains && !now.Before(c.frozen):
				held.Move = append(held.Move, id)
				fallthrough
			default:
				c.until = now.Add(remote.EndTime)
			}
		}
		b, _ := json.Marshal(held)
		return 200, b
	case path == "/release":
		delete(k.copies, q.Lease)
		return 200, []byte("[]")
	case c == nil:
		return refuse(404)
	case q.Off:
		c.frozen = time.Time{}
		return 200, []byte("{}")
	}
	c.frozen = now.Add(pool.FreezeTime)
	return 200, []byte("{}")
}

type copiedSession struct {
	Session string
	Uses    int
}

// use uses the session of a lease as a client does, and returns whether the host has answered well.
func (m *movers) use(l *Lease) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	at, leave, err := l.enter(ctx)
	if err != nil {
		return false
	}
	defer leave()
	status, err := l.gateway.call(ctx, at.url+"/use", struct{}{}, nil)
	return status == 200 && err == nil
}

// drain empties a host for a while.
func (m *movers) drain(k *keeper, while time.Duration) {
	set := func(drains bool) {
		m.lock.Lock()
		defer m.lock.Unlock()
		k.drains = drains
	}
	set(true)
	time.AfterFunc(while, func() { set(false) })
}

// all returns the number of leases of all hosts.
func (m *movers) all() (n int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, k := range m.keepers {
		for _, c := range k.copies {
			if c.until.After(time.Now()) {
				n++
			}
		}
	}
	return n
}

// Sessions that move are where they were left, and none is lost while nothing fails.
func TestMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMovers(t, 1, 3)
		g, end := m.gateway("g")
		var leases []*Lease
		for range 20 {
			l, err := g.Lease(t.Context(), Request{Pool: "A", Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, l)
		}
		for range 10 {
			for _, k := range m.keepers {
				m.drain(k, 5*time.Second)
				for range 10 {
					time.Sleep(time.Second)
					for _, l := range leases {
						if !m.use(l) {
							t.Fatalf("a session cannot be used: %v", l.Why())
						}
					}
				}
			}
		}
		t.Log(m.moves, "moves")
		if n := m.all(); n != len(leases) || m.moves < 100 {
			t.Errorf("%d leases, %d moves", n, m.moves)
		}
		for _, l := range leases {
			l.Release(t.Context())
		}
		if n := m.all(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
		end()
	})
}

// Whatever is lost or late and whoever dies at any step of a move: no two copies of a session are used, and afterwards
// no lease is left.
func TestFaultsOfMoves(t *testing.T) {
	rounds := 5
	if os.Getenv("LONG") != "" {
		rounds = 500
	}
	seed, moves, lost, uses := mathrand.Uint64(), 0, 0, 0
	t.Log("seed", seed)
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			m := newMovers(t, seed, 3)
			m.rate2 = m.r.Float64() * m.r.Float64() / 2
			var clients sync.WaitGroup
			over := time.Now().Add(3 * time.Minute)
			var ends []func()
			for k := range 3 {
				name := fmt.Sprint("g", k)
				g, end := m.gateway(name)
				ends = append(ends, end)
				for range 5 {
					clients.Go(func() {
						for time.Now().Before(over) {
							l, err := g.Lease(t.Context(), Request{Pool: "A", Timeout: 10 * time.Second})
							if err != nil {
								continue
							}
							until := time.Now().Add(m.upTo(2 * time.Minute))
							for time.Now().Before(until) && l.ctx.Err() == nil {
								time.Sleep(m.upTo(3 * time.Second))
								m.use(l)
							}
							if l.ctx.Err() != nil {
								m.lock.Lock()
								lost++
								m.lock.Unlock()
							}
							l.Release(t.Context())
						}
					})
				}
			}
			for time.Now().Before(over) {
				time.Sleep(m.upTo(4 * time.Second))
				for _, k := range m.keepers {
					if m.intN(3) == 0 {
						m.drain(k, m.upTo(10*time.Second))
					}
				}
				m.lock.Lock()
				clear(m.killed) // as if it had been away
				m.lock.Unlock()
			}
			clients.Wait()
			for _, end := range ends {
				end()
			}
			time.Sleep(remote.EndTime + 10*time.Second)
			if n := m.all(); n != 0 {
				t.Errorf("%d leases are left", n)
			}
			moves += m.moves
			for _, n := range m.uses {
				uses += n
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		seed++
	}
	t.Logf("%d moves, %d uses, %d leases lost", moves, uses, lost)
}
