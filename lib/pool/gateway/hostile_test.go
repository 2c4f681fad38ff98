package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"btools/lib/pool/bus"
)

// raw publishes what is no message.
func (a *station) raw(subject, text string) {
	for _, s := range a.net.receivers(a, subject) {
		s.deliver(&bus.Message{Subject: subject, Data: []byte(text), Answer: func(any) {}})
	}
}

// serves asserts that n leases can be had at once, each within a time.
func (c *cluster) serves(n int, within time.Duration) {
	c.t.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			began := time.Now()
			if !c.lease(within, 3*time.Second) {
				c.t.Errorf("no lease within %v", time.Since(began))
			}
		})
	}
	all.Wait()
}

func TestGarbageForHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1, 2, 1)
		synctest.Wait()
		m := &station{net: c.network, name: "stranger"}
		for _, text := range []string{"", "x", "null", "[]", `{}`, `{"want":7}`,
			`{"want":"` + strings.Repeat("x", bus.MaxSize) + `"}`,
			`{"want":"a","pool":"A","age_ms":-1,"timeout_ms":1000}`,
			`{"want":"a","pool":"A","age_ms":1,"timeout_ms":-1}`,
			`{"want":"a","pool":"B","age_ms":1,"timeout_ms":1000}`, `{"wants":["a","b","a"]}`, `{"wants":"a"}`,
			`{"want":"` + strings.Repeat("x", 65) + `","pool":"A","timeout_ms":1000}`} {
			m.raw(bus.FreeSubject("r", "A", bus.Any, "u", "g"), text)
			m.raw(bus.WantSubject("r", "A", "u", "g"), text)
			m.raw(bus.HostSubject("r", "h0", "want", "u", "g"), text)
			m.raw(bus.HostSubject("r", "h0", "cancel", "u", "g"), text)
			m.raw(bus.HostSubject("r", "h0", "none", "u", "g"), text)
			m.raw("btools.v1.r.host.h0.want", text)
		}
		time.Sleep(3 * time.Second) // asks with a pool got offers
		c.rest()
		huge := `{"want":"%d","pool":"A","age_ms":9223372036854775807,"timeout_ms":9223372036854775807}`
		c.serves(2, time.Second)
		for n := range 3 { // waits for its slot, the same twice
			m.raw(bus.HostSubject("r", "h0", "want", "u", "g"), fmt.Sprintf(huge, n/2))
		}
		time.Sleep(10 * time.Second)
		c.rest()
		c.serves(2, time.Second)
		time.Sleep(time.Second)
		c.rest()
	})
}

// A gateway takes no garbage, and no offer that it has no request for; one that its host has forgotten costs a request
// nothing.
func TestGarbageForGateways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1, 1, 1)
		synctest.Wait()
		g, m := c.current()[0], &station{net: c.network, name: "stranger"}
		to := bus.OfferSubject("r", g.name, g.id, "h0")
		garbage := func() {
			for _, text := range []string{"", "x", "null", "[]", `{}`, `{"offer":7}`, `{"offer":"x"}`,
				`{"offer":"x","pool":"B"}`, `{"offer":"` + strings.Repeat("x", bus.MaxSize) + `","pool":"A"}`} {
				m.raw(to, text)
				m.raw(bus.OpenSubject("r", "A", "h0"), text)
				m.raw(bus.LoadSubject("r", "h0"), text)
			}
		}
		forgotten := func() (a bus.Answer) {
			err := m.Request(t.Context(), to, bus.Offer{ID: "x", Pool: "A", URL: "http://127.0.1.1:80"}, &a)
			if err != nil {
				t.Error(err)
			}
			return a
		}
		garbage()
		if a := forgotten(); a.Yes || a.Left == nil || *a.Left != 0 {
			t.Errorf("an offer that nobody has asked for: %+v", a)
		}
		var clients sync.WaitGroup
		for range 2 {
			clients.Go(func() {
				if !c.lease(time.Minute, 12*time.Second) {
					t.Error("no lease")
				}
			})
		}
		time.Sleep(2 * time.Second) // one waits
		twice := 0                  // it is taken again if the request pauses for less than 4 ms of 200
		for range 3 {
			garbage()
			first, second := forgotten(), forgotten()
			if !first.Yes {
				t.Errorf("the offer is not taken: %+v", first)
			} else if second.Yes {
				twice++
			}
			time.Sleep(time.Second)
		}
		if twice > 1 {
			t.Error("the same offer is taken twice")
		}
		clients.Wait()
		if over := time.Since(synctestEpoch); over > 26*time.Second {
			t.Errorf("it took %v", over)
		}
		time.Sleep(time.Second)
		c.rest()
	})
}

// synctestEpoch is when the clock of a bubble begins.
var synctestEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// A gateway that wants without end, and takes or declines what it is offered, gets no lease; others do.
func TestGreedyGateways(t *testing.T) {
	for name, yes := range map[string]bool{"takes": true, "declines": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, 1, 2, 2)
				m := &station{net: c.network, name: "stranger"}
				var offered atomic.Int64
				stop, _ := m.Subscribe(bus.OfferSubject("r", "u", bus.All, bus.All), "", func(m *bus.Message) {
					offered.Add(1)
					m.Answer(bus.Answer{Yes: yes})
				})
				defer stop()
				ctx, end := context.WithCancel(t.Context())
				defer end()
				var asks sync.WaitGroup
				asks.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						if n%5 == 0 {
							asks.Go(func() {
								m.Request(ctx, bus.FreeSubject("r", "A", bus.Any, "u", fmt.Sprint(n)),
									bus.Ask{Want: "x", Pool: "A"}, &bus.Offer{})
							})
						}
						m.Publish(bus.WantSubject("r", "A", "u", fmt.Sprint(n%7)),
							bus.Want{Want: fmt.Sprint(n), Age: 3_600_000, Timeout: 3_600_000})
						time.Sleep(5 * time.Millisecond)
					}
				})
				time.Sleep(30 * time.Second) // until it is known
				got := 0
				for over := time.Now().Add(20 * time.Second); time.Now().Before(over); {
					if c.lease(10*time.Second, 100*time.Millisecond) {
						got++
					}
				}
				end()
				asks.Wait()
				if got < 50 || offered.Load() > 10_000 {
					t.Errorf("others get %d leases; %d offers", got, offered.Load())
				}
			})
		})
	}
}

// badHost is a host that has room always, and grants nothing.
func (c *cluster) badHost(addr, url string, answer answerer) (asked *[]bus.Ask, tries *atomic.Int64) {
	asked, tries = new([]bus.Ask), new(atomic.Int64)
	c.mu.Lock()
	c.strangers[addr] = func(r *http.Request) (*http.Response, error) {
		tries.Add(1)
		return answer(r)
	}
	c.mu.Unlock()
	at := &station{net: c.network, name: "bad"}
	at.Subscribe(bus.FreeSubject("r", "A", bus.All, bus.All, bus.All), bus.FreeGroup, func(m *bus.Message) {
		var a bus.Ask
		m.Read(&a)
		*asked = append(*asked, a)
		m.Answer(bus.Offer{ID: "x", Pool: "A", URL: url, Host: "bad"})
	})
	return asked, tries
}

func TestBadHosts(t *testing.T) {
	answer := func(code int, body io.Reader) answerer {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: io.NopCloser(body)}, nil
		}
	}
	text := func(code int, text string) answerer {
		return func(r *http.Request) (*http.Response, error) { return answer(code, strings.NewReader(text))(r) }
	}
	hangs := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	elsewhere := `{"v":1,"lease":{"id":"l"},"instance":{"http_url":"http://127.0.0.1:22"}}`
	half := io.MultiReader(strings.NewReader(`{"v":1`), iotest.ErrReader(io.ErrUnexpectedEOF))
	refuses := func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }
	const addr, url = "127.0.9.9:80", "http://127.0.9.9:80"
	for name, c := range map[string]struct {
		url    string
		answer answerer
		tries  int64 // of each request
	}{
		"no encryption":     {"http://8.8.8.8", nil, 0},
		"no private one":    {"http://10.0.0.1", nil, 0},
		"a name":            {"http://localhost", nil, 0},
		"no address":        {"x", nil, 0},
		"nothing":           {"", nil, 0},
		"a password":        {"https://u:p@127.0.9.9", nil, 0},
		"another scheme":    {"file:///etc/passwd", nil, 0},
		"HTML":              {url, text(200, "<html>"), 1},
		"JSON":              {url, text(200, "{}"), 1},
		"an error":          {url, text(500, "x"), 1},
		"another's address": {url, text(200, elsewhere), 1},
		"half an answer":    {url, answer(200, half), 1},
		"no connection":     {url, refuses, 1},
		"30 s":              {url, hangs, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newCluster(t, 1, 1, 20, 1)
				asked, tries := n.badHost(addr, c.url, c.answer)
				synctest.Wait()
				for range 20 {
					began, before := time.Now(), tries.Load()
					if !n.lease(2*time.Second, 10*time.Second) && time.Since(began) > 1500*time.Millisecond {
						t.Fatal("it does not go on")
					}
					if n := tries.Load() - before; n > c.tries {
						t.Errorf("%d tries of one request", n)
					}
				}
				named := false
				for _, a := range *asked {
					named = named || len(a.Not) == 1 && a.Not[0] == "bad"
				}
				if len(*asked) > 100 || !named {
					t.Errorf("it was asked %d times", len(*asked))
				}
			})
		})
	}
}

// That a host refuses a request is said while it waits.
func TestRefusalIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1, 1, 1)
		c.badHost("127.0.9.9:80", "http://127.0.9.9:80", func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 401, Status: "401", Body: http.NoBody}, nil
		})
		synctest.Wait()
		var clients sync.WaitGroup
		for range 2 {
			clients.Go(func() { c.lease(time.Minute, 2*time.Second) })
		}
		time.Sleep(time.Second)
		if text := c.current()[0].Waiting()["A"]; !strings.Contains(text, "the host bad: its answer is 401") {
			t.Error(text)
		}
		clients.Wait()
	})
}

// A host that the gateways reach by NATS alone takes no more than a tenth of what the others grant.
func TestBlackHole(t *testing.T) {
	grants := func(hole bool) (n int) {
		synctest.Test(t, func(t *testing.T) {
			hosts := 3
			if hole {
				hosts++
			}
			c := newCluster(t, 1, hosts, 4, 3)
			if hole {
				for _, g := range c.current() {
					c.cutFor(10*time.Minute, g.name, "h3")
				}
			}
			var clients sync.WaitGroup
			var mu sync.Mutex
			over := time.Now().Add(time.Minute)
			for range 20 {
				clients.Go(func() {
					for time.Now().Before(over) {
						if c.lease(time.Minute, c.upTo(2*time.Second)) {
							mu.Lock()
							n++
							mu.Unlock()
						}
					}
				})
			}
			clients.Wait()
		})
		return n
	}
	without, with := grants(false), grants(true)
	t.Log(without, "grants, with a black hole", with)
	if with < without*9/10 {
		t.Errorf("%d grants, %d without the black hole", with, without)
	}
}

// A host of which two gateways could not use three offers in a row does not answer asks for 30 s.
func TestAHostHides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1, 3, 1)
		synctest.Wait()
		m := &station{net: c.network, name: "stranger"}
		ask := func(gateway string) error {
			subject := bus.FreeSubject("r", "A", bus.Any, "u", gateway)
			return m.Request(t.Context(), subject, bus.Ask{Pool: "A"}, &bus.Offer{})
		}
		for _, gateway := range []string{"a", "a", "b"} {
			if err := ask(gateway); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for range 29 {
			if err := ask("a"); err != bus.ErrNobody {
				t.Fatal("it does not hide:", err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(6 * time.Second)
		c.serves(3, time.Second)
	})
}

// Nobody waits for more than a second while a slot is free, and all are used.
func TestNoSlotIsLeftFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 4, 3, 4)
		var clients sync.WaitGroup
		over := time.Now().Add(time.Minute)
		for range 40 {
			clients.Go(func() {
				for time.Now().Before(over) {
					began := time.Now()
					hold := c.upTo(2 * time.Second)
					if !c.lease(time.Minute, hold) || time.Since(began)-hold > 20*time.Second {
						t.Error("a request has waited", time.Since(began)-hold)
					}
				}
			})
		}
		time.Sleep(3 * time.Second)
		free := map[string]time.Duration{}
		for time.Now().Before(over) {
			time.Sleep(50 * time.Millisecond)
			for _, m := range c.machines {
				if r := m.process().pools.Offers.Rooms()[0]; r.Free == 0 {
					free[m.name] = 0
				} else if free[m.name] += 50 * time.Millisecond; free[m.name] > 1300*time.Millisecond {
					t.Errorf("a slot of %s is free for %v", m.name, free[m.name])
				}
			}
		}
		clients.Wait()
		time.Sleep(time.Second)
		c.rest()
	})
}
