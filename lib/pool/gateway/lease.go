package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/pool/remote"
	"btools/lib/record"
)

// Times of requests to hosts.
const (
	slowTime  = time.Second     // until a request goes on whose grant has no answer
	grantTime = 5 * time.Second // until the answer to a grant is lost
)

// Lease is a lease on another host.
type Lease struct {
	ID     string
	Host   string // its name
	URL    string // its address for those who know its secret, BASE/lease/ID.SECRET; "": it has no browser
	Record *record.Record
	host   *host
	ctx    context.Context // ends with the lease, its cause says why
	end    context.CancelCauseFunc
}

// Ended is closed when the lease has ended; then Why says why.
func (l *Lease) Ended() <-chan struct{} { return l.ctx.Done() }

// Why returns why the lease has ended.
func (l *Lease) Why() error { return context.Cause(l.ctx) }

// ErrReleased means that the holder has released the lease.
var ErrReleased = errors.New("released")

// host is another host on which the gateway has leases.
type host struct {
	gateway *Gateway
	name    string
	url     string

	mu     sync.Mutex
	holds  remote.Holds
	leases map[string]*Lease
	runs   bool // a goroutine holds the leases
}

// check returns an error if an address of an offer must not be used.
func (g *Gateway) check(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return fmt.Errorf("%q is not the address of a host", address)
	}
	if u.Scheme == "https" {
		return nil
	}
	a, err := netip.ParseAddr(u.Hostname())
	if u.Scheme == "http" && err == nil && (a.IsLoopback() || g.options.Plain && a.IsPrivate()) {
		return nil
	}
	return fmt.Errorf("%s is not https: the token is not sent there", address)
}

// grant requests the lease of an offer. The failure says what became of the request if there is an error.
func (g *Gateway) grant(o *remote.Offer, r Request) (*Lease, remote.Failure, error) {
	at := trim(o.URL)
	if err := g.check(at); err != nil {
		return nil, remote.Refused, fmt.Errorf("the host %s: %w", o.Host, err)
	}
	body := map[string]any{"offer": o.ID, "pool": o.Pool, "holder": r.Holder, "timeout": "0s",
		"ttl": remote.EndTime.String()}
	if r.State != nil {
		body["state"] = r.State
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(g.ctx, grantTime)
	defer cancel()
	rec, status, err := g.post(ctx, at+"/lease", body)
	var refusal *control.Error
	switch {
	case err == nil:
	case errors.As(err, &refusal) && refusal.Code == control.OfferLapsed:
		return nil, remote.Lapsed, err
	case status != 0:
		return nil, remote.Refused, fmt.Errorf("the host %s: %w", o.Host, err)
	case ctx.Err() != nil:
		return nil, remote.Lost, fmt.Errorf("the host %s has not answered: %w", o.Host, err)
	default:
		return nil, remote.Unreachable, fmt.Errorf("the host %s cannot be reached: %w", o.Host, err)
	}
	of := record.Member[record.Lease](rec, "lease")
	i := record.Member[record.Instance](rec, "instance")
	if of.ID == "" || i.HTTPURL != "" && !strings.HasPrefix(i.HTTPURL, at+"/lease/") {
		return nil, remote.Refused, fmt.Errorf("the host %s has answered with no lease of its own", o.Host)
	}
	l := &Lease{ID: of.ID, Host: o.Host, URL: trim(i.HTTPURL), Record: rec}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	g.mu.Lock()
	g.table.Reached(o.Host)
	h := g.hosts[at]
	if h == nil {
		h = &host{gateway: g, name: o.Host, url: at, leases: map[string]*Lease{}}
		g.hosts[at] = h
	}
	g.mu.Unlock()
	l.host = h
	h.add(sent, l)
	return l, 0, nil
}

// post sends a request to a host, and returns the record in its answer. The status is 0 if there was no answer.
func (g *Gateway) post(ctx context.Context, address string, body any) (rec *record.Record, status int, err error) {
	rec = new(record.Record)
	status, err = g.call(ctx, address, body, func(b []byte) (err error) {
		rec, err = record.Parse(b)
		return err
	})
	return rec, status, err
}

// maxAnswer is the greatest size of a host's answer, in bytes.
const maxAnswer = 1 << 20

// call sends a request to a host, and reads its answer.
func (g *Gateway) call(ctx context.Context, address string, body any, read func([]byte) error) (status int, err error) {
	token, err := g.options.Token()
	if err != nil {
		return 0, err
	}
	b, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(b))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := g.options.HTTP.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		var refusal struct{ Error *control.Error }
		if json.Unmarshal(answer, &refusal) == nil && refusal.Error != nil {
			return resp.StatusCode, refusal.Error
		}
		return resp.StatusCode, fmt.Errorf("its answer is %s", resp.Status)
	}
	if err := read(answer); err != nil {
		return resp.StatusCode, fmt.Errorf("its answer is not as it should be: %w", err)
	}
	return resp.StatusCode, nil
}

// add notes a lease, which is held from now on.
func (h *host) add(sent time.Time, l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds.Add(sent, l.ID)
	h.leases[l.ID] = l
	if !h.runs {
		h.runs = true
		h.gateway.running.Go(h.hold)
	}
}

// Holding asks a host to let leases go on.
type Holding struct {
	Leases []string `json:"leases"`
	Wait   string   `json:"wait"` // how long the answer may wait for news, such as 2s
}

// Held answers it.
type Held struct {
	Gone []string `json:"gone"` // leases that have ended
}

// hold holds the leases of the host as long as there are some.
func (h *host) hold() {
	for {
		h.mu.Lock()
		lost, again := h.holds.Lost(time.Now())
		h.loseLocked(lost, "no_answer", fmt.Errorf("the host %s has not answered for %v", h.name, remote.LossTime))
		leases := h.holds.Leases()
		if len(leases) == 0 {
			h.runs = false
			h.mu.Unlock()
			h.gateway.forget(h)
			return
		}
		h.mu.Unlock()
		sent := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), min(time.Until(again), 2*remote.HoldTime))
		var answer Held
		_, err := h.gateway.call(ctx, h.url+"/hold", Holding{leases, remote.HoldTime.String()},
			func(b []byte) error { return json.Unmarshal(b, &answer) })
		cancel()
		h.mu.Lock()
		if err == nil {
			h.loseLocked(h.holds.Answered(sent, leases, answer.Gone), "ended",
				fmt.Errorf("the host %s has ended the lease", h.name))
		}
		some := len(h.leases) > 0
		h.mu.Unlock()
		if some {
			time.Sleep(min(time.Until(again), retryTime-time.Since(sent)))
		}
	}
}

// forget forgets a host without leases. If it gets one just now, it holds that all the same.
func (g *Gateway) forget(h *host) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hosts[h.url] == h {
		delete(g.hosts, h.url)
	}
}

// retryTime is the least time between two requests to hold or to release.
const retryTime = 200 * time.Millisecond

// loseLocked ends leases that the host does not have.
func (h *host) loseLocked(ids []string, reason string, why error) {
	for _, id := range ids {
		if l := h.leases[id]; l != nil {
			h.gateway.options.Count(LeaseLost, reason)
			delete(h.leases, id)
			l.end(why)
		}
	}
}

// Release ends the lease. It asks the host again until it answers or has ended the lease by itself.
func (l *Lease) Release(ctx context.Context) {
	h := l.host
	h.mu.Lock()
	h.holds.Remove(l.ID)
	delete(h.leases, l.ID)
	h.mu.Unlock()
	l.end(ErrReleased)
	ctx, cancel := context.WithTimeout(ctx, remote.EndTime)
	defer cancel()
	for ctx.Err() == nil {
		if status, _ := h.gateway.call(ctx, h.url+"/release", map[string]string{"lease": l.ID},
			func([]byte) error { return nil }); status != 0 {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryTime):
		}
	}
}
