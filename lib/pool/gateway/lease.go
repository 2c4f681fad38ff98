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
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/pool"
	"btools/lib/pool/remote"
	"btools/lib/record"
	"btools/lib/wait"
)

// Times of requests to hosts.
const (
	slowTime  = time.Second     // until a request goes on whose grant has no answer
	grantTime = 5 * time.Second // until the answer to a grant is lost
)

// Lease is a lease on another host, and after a move on another one.
type Lease struct {
	ID      string // as its clients know it: that of its first host
	Record  *record.Record
	gateway *Gateway
	request Request
	ctx     context.Context // ends with the lease, its cause says why
	end     context.CancelCauseFunc

	mu       sync.Mutex // guards the rest; a host's lock is taken before
	at       spot
	uses     int                  // requests that have entered
	left     wait.Broadcast       // one of them has ended
	moves    chan struct{}        // closed when the move is over; nil: it does not move
	isMoving bool                 // it moves, or waits for its turn
	carried  bool                 // its session has been read, so that its old host may end
	lost     *loss                // by the old host meanwhile; nil: none
	again    time.Time            // when it may move again
	hear     func(lines []string) // gets lines of notices; nil: they wait
	moved    func(from string)    // is called after a move from a host; nil: nobody wants to know
	heard    int                  // number of the last line
}

// Ended is closed when the lease has ended; then Why says why.
func (l *Lease) Ended() <-chan struct{} { return l.ctx.Done() }

// Why returns why the lease has ended.
func (l *Lease) Why() error { return context.Cause(l.ctx) }

// ErrReleased means that the holder has released the lease.
var ErrReleased = errors.New("released")

// listen has a function called with lines of notices, in their order and each once, and another one after each move.
func (l *Lease) listen(hear func(lines []string), moved func(from string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hear, l.moved = hear, moved
}

// host is another host on which the gateway has leases.
type host struct {
	gateway *Gateway
	region  string
	name    string
	url     string

	mu     sync.Mutex
	holds  remote.Holds
	leases map[string]*Lease // by their IDs there
	runs   bool              // a goroutine holds the leases
	moves  chan struct{}     // has one for each lease that moves away
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

// grant requests the lease of an offer, or without its ID of what is free at its host. The failure says what became of
// the request if there is an error.
func (g *Gateway) grant(ctx context.Context, o *remote.Offer, r Request) (*Lease, remote.Failure, error) {
	at := trim(o.URL)
	if err := g.check(at); err != nil {
		return nil, remote.Refused, fmt.Errorf("the host %s: %w", o.Host, err)
	}
	body := map[string]any{"pool": o.Pool, "holder": r.Holder, "timeout": "0s", "ttl": remote.EndTime.String()}
	if o.ID != "" {
		body["offer"] = o.ID
	} else {
		body["here"] = true
	}
	if r.Keep != "" {
		body["keep"] = g.id + " " + r.Keep
	}
	if r.State != nil {
		body["state"] = r.State
	}
	if r.Session != nil {
		body["session"] = r.Session
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(ctx, grantTime)
	defer cancel()
	var rec *record.Record
	status, err := g.call(ctx, at+"/lease", body, &rec)
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
	l := &Lease{ID: of.ID, Record: rec, gateway: g, request: r}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	g.mu.Lock()
	g.table.Reached(o.Host)
	h := g.hosts[at]
	if h == nil {
		h = &host{gateway: g, region: o.Region, name: o.Host, url: at, leases: map[string]*Lease{},
			moves: make(chan struct{}, maxMoves)}
		g.hosts[at] = h
	}
	g.mu.Unlock()
	l.at = spot{host: h, id: of.ID, url: trim(i.HTTPURL), instance: of.Instance}
	h.add(sent, l)
	return l, 0, nil
}

// maxAnswer is the greatest size of a host's answer, in bytes.
const maxAnswer = 1 << 20

// call sends a request to a host, and reads its answer into a value, unless that is nil. The status is 0 if there was
// no answer.
func (g *Gateway) call(ctx context.Context, address string, body, into any) (status int, err error) {
	resp, err := g.do(ctx, address, body)
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
	switch into := into.(type) {
	case nil:
	case **record.Record:
		*into, err = record.Parse(answer)
	default:
		err = json.Unmarshal(answer, into)
	}
	if err != nil {
		return resp.StatusCode, fmt.Errorf("its answer is not as it should be: %w", err)
	}
	return resp.StatusCode, nil
}

// do sends a request to a host: POST with a body, GET if that is nil.
func (g *Gateway) do(ctx context.Context, address string, body any) (*http.Response, error) {
	token, err := g.options.Token()
	if err != nil {
		return nil, err
	}
	method, b := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		if b, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	return g.options.HTTP.Do(r)
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

// hold holds the leases of the host as long as there are some.
func (h *host) hold() {
	for {
		h.mu.Lock()
		lost, again := h.holds.Lost(time.Now())
		h.loseLocked(lost, "no_answer", fmt.Errorf("the host %s has not answered for %v", h.name, remote.LossTime))
		p := pool.Holding{Leases: h.holds.Leases(), After: map[string]int{}, Wait: pool.HoldTime(remote.HoldTime)}
		if len(p.Leases) == 0 {
			h.runs = false
			h.mu.Unlock()
			h.gateway.forget(h)
			return
		}
		for id, l := range h.leases {
			l.mu.Lock()
			if l.heard > 0 {
				p.After[id] = l.heard
			}
			l.mu.Unlock()
		}
		h.mu.Unlock()
		sent := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), min(time.Until(again), 2*remote.HoldTime))
		var answer pool.Held
		_, err := h.gateway.call(ctx, h.url+"/hold", p, &answer)
		cancel()
		h.mu.Lock()
		if err == nil {
			h.hearLocked(answer)
			heard := slices.DeleteFunc(p.Leases, func(id string) bool { return slices.Contains(answer.Unheard, id) })
			for _, id := range h.holds.Answered(sent, heard, answer.Gone) {
				h.loseLocked([]string{id}, "ended", &EndedError{h.name, answer.Notices[id]})
			}
			h.moveLocked(answer.Move)
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

// hearLocked tells the holders of leases what has happened to their browsers.
func (h *host) hearLocked(answer pool.Held) {
	for id, n := range answer.Notices {
		if l := h.leases[id]; l != nil {
			l.hearAt(spot{host: h, id: id}, n)
		}
	}
}

// hearAt tells the holder of the lease what has happened at a place, unless it has moved since.
func (l *Lease) hearAt(at spot, n api.Notices) {
	l.mu.Lock()
	hear := l.hear
	is := l.isAtLocked(at) && hear != nil && n.Last > l.heard
	if is {
		l.heard = n.Last
	}
	l.mu.Unlock()
	if is {
		hear(n.Lines)
	}
}

// EndedError is why a lease has ended that its host has ended.
type EndedError struct {
	host string
	api.Notices
}

// Error says which host, and why if that is known.
func (e *EndedError) Error() string {
	text := "the host " + e.host + " has ended the lease"
	if e.Ended != "" {
		text += ": " + e.Ended
	}
	return text
}

// loseLocked ends leases that the host does not have.
func (h *host) loseLocked(ids []string, reason string, why error) {
	for _, id := range ids {
		if l := h.leases[id]; l != nil {
			delete(h.leases, id)
			l.loseAt(spot{host: h, id: id}, loss{reason, why})
		}
	}
}

// remove holds a lease no more.
func (h *host) remove(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds.Remove(id)
	delete(h.leases, id)
}

// Release ends the lease. It asks the host again until it answers or has ended the lease by itself.
func (l *Lease) Release(ctx context.Context) {
	l.mu.Lock()
	at := l.at
	l.end(ErrReleased) // a move does not go on
	l.mu.Unlock()
	at.host.remove(at.id)
	ctx, cancel := context.WithTimeout(ctx, remote.EndTime)
	defer cancel()
	at.host.ask(ctx, "/release", ofLease(at.id), nil)
}

func ofLease(id string) map[string]string { return map[string]string{"lease": id} }

// ask makes a request about the lease to its host, until that answers or the lease has ended. It is a GET of a path
// below the lease's address, or else a POST that names the lease.
func (l *Lease) ask(ctx context.Context, path string, get bool, into any) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(l.ctx, func() { stop(l.Why()) })()
	at, leave, err := l.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if get {
		return at.host.ask(ctx, strings.TrimPrefix(at.url, at.host.url)+path, nil, into)
	}
	return at.host.ask(ctx, path, ofLease(at.id), into)
}

// ask makes a request to the host, until that answers or the context ends.
func (h *host) ask(ctx context.Context, path string, body, into any) error {
	for {
		status, err := h.gateway.call(ctx, h.url+path, body, into)
		if status != 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(retryTime):
		}
	}
}
