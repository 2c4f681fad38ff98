// Package gateway leases browsers of other hosts: it asks for them on NATS, takes what a host offers by HTTPS, holds
// the lease there, and serves it on this machine. Which host is asked when is package remote's to say.
package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/pool/bus"
	"btools/lib/pool/remote"
	"btools/lib/spell"
)

// Gateway leases browsers. Create it with New.
type Gateway struct {
	options Options
	id      string // of this process in subjects

	mu      sync.Mutex
	table   *remote.Table
	waits   map[*remote.Request]*waiting
	hosts   map[string]*host // where it has leases, by URL
	pinned  map[string]int   // requests, by their only region if it is another one than those of the options
	open    map[place]func() // ends a subscription to the open slots of a pool or, with "", to the loads of a region
	cancels []remote.Step    // to be sent
	changed chan struct{}
	running sync.WaitGroup
	ctx     context.Context
	left    chan struct{} // closed when it needs the bus no more
}

// place is a pool in a region.
type place struct{ region, pool string }

// Options are those of a gateway.
type Options struct {
	Bus      bus.Bus
	Down     func() (since time.Time, last error) // of the connection
	Self     string                               // name of the host that this process is; "": none
	User     string                               // of NATS
	Regions  []string                             // its own first
	FarAfter time.Duration                        // of a request that waits, until the next region
	First    bool                                 // hosts are asked in the order of the numbers of their names
	Token    func() (string, error)               // for the hosts
	HTTP     *http.Client                         // to the hosts
	Plain    bool                                 // hosts at private addresses may have no encryption
	Log      *slog.Logger
	Count    func(event Event, result string) // counts what happens; nil: nobody counts
}

// Event is a kind of event that is counted by its result.
type Event string

// The events, and their results.
const (
	AskAnswered Event = "ask"
	LeaseLost   Event = "lost"
	LeaseMoved  Event = "moved"
)

// Results are the results of each event.
var Results = map[Event][]string{
	AskAnswered: {"offer", "none", "full", "late", "refused"},
	LeaseLost:   {"no_answer", "ended"},
	LeaseMoved:  {"moved", "stayed"},
}

// Request is a request for a lease.
type Request struct {
	Pool    string
	Region  string // the only one; "": all
	Holder  string
	State   json.RawMessage // the name of one on the host, or a state; nil: none
	Keep    string          // the next lease of this gateway that says the same gets what this one leaves; "": none
	Timeout time.Duration
	Not     []string        // hosts that must not serve it
	Session json.RawMessage // that another host has saved, with which the lease begins; nil: none
}

// waiting is a request that waits.
type waiting struct {
	request Request
	result  chan result // of capacity 1
	refused error       // by the last host
}

type result struct {
	lease *Lease
	err   error
}

// New returns a gateway that runs until the context ends. Wait waits until it has ended.
func New(ctx context.Context, o Options) (*Gateway, error) {
	if o.Count == nil {
		o.Count = func(Event, string) {}
	}
	g := &Gateway{options: o, id: rand.Text()[:12], ctx: ctx, waits: map[*remote.Request]*waiting{},
		hosts: map[string]*host{}, pinned: map[string]int{}, open: map[place]func(){}, changed: make(chan struct{}, 1),
		left: make(chan struct{})}
	var ranks []string
	if o.First {
		ranks = bus.Ranks
	}
	random := mathrand.New(mathrand.NewPCG(mathrand.Uint64(), mathrand.Uint64()))
	g.table = remote.New(o.Regions, o.FarAfter, ranks, random)
	if o.Self != "" { // it has leased what it has itself
		g.table.Exclude(time.Now(), o.Self)
	}
	stop, err := o.Bus.Subscribe(bus.OfferSubject(bus.All, bus.Token(o.User), g.id, bus.All), "", g.offered)
	if err != nil {
		return nil, err
	}
	g.running.Go(func() {
		defer close(g.left)
		defer stop()
		g.run()
	})
	return g, nil
}

// Wait waits until the gateway and its leases have ended, after its context.
func (g *Gateway) Wait() { g.running.Wait() }

// Left waits until the gateway leases no more, after its context. Its leases go on.
func (g *Gateway) Left() { <-g.left }

// Changed tells the gateway that the connection is up or down.
func (g *Gateway) Changed(up bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if up {
		g.table.Up(time.Now())
	} else {
		g.table.Down()
	}
	g.wakeLocked()
}

// wakeLocked has run look at the table.
func (g *Gateway) wakeLocked() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// run sends what the table says, until the context ends.
func (g *Gateway) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		g.mu.Lock()
		steps, again := g.table.Due(time.Now())
		steps, g.cancels = append(g.cancels, steps...), nil
		g.listenLocked()
		over := g.ctx.Err() != nil
		if over {
			for _, stop := range g.open {
				stop()
			}
		}
		g.mu.Unlock()
		g.send(steps)
		if over {
			return
		}
		if again.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(again))
		}
		select {
		case <-g.ctx.Done():
		case <-g.changed:
		case <-timer.C:
		}
	}
}

// listenLocked listens to the open slots of the pools for which a request waits, and to the loads of hosts meanwhile.
func (g *Gateway) listenLocked() {
	want := map[place]bool{}
	for pool := range g.table.Pools() {
		for _, region := range slices.AppendSeq(slices.Clone(g.options.Regions), maps.Keys(g.pinned)) {
			if g.table.Waits(pool, region) {
				want[place{region, pool}], want[place{region, ""}] = true, true
			}
		}
	}
	for at, stop := range g.open {
		if !want[at] {
			stop()
			delete(g.open, at)
		}
	}
	for at := range want {
		if g.open[at] != nil {
			continue
		}
		subject, group, serve := bus.OpenSubject(at.region, at.pool, bus.All), bus.WaitingGroup, g.offered
		if at.pool == "" {
			subject, group, serve = bus.LoadSubject(at.region, bus.All), "", g.loaded
		}
		if stop, err := g.options.Bus.Subscribe(subject, group, serve); err == nil {
			g.open[at] = stop
		}
	}
}

// loaded notes the load of a host.
func (g *Gateway) loaded(m *bus.Message) {
	var l bus.Load
	tokens := m.Tokens() // btools.v1.REGION.load.HOST
	if m.Read(&l) != nil || len(tokens) != 5 {
		return
	}
	region, host := bus.Name(tokens[2]), bus.Name(tokens[4])
	var pools []string
	for _, p := range l.Pools {
		pools = append(pools, p.Name)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.table.Load(now, host, region, pools); l.Gone || l.Draining {
		g.table.Gone(now, host)
	}
	g.wakeLocked()
}

// send sends messages, each with a goroutine that waits for its answer.
func (g *Gateway) send(steps []remote.Step) {
	for _, s := range steps {
		switch s.Do {
		case remote.Cancel:
			g.options.Bus.Publish(bus.HostSubject(s.Region, s.Host, "cancel", g.user(), g.id),
				bus.Cancel{Wants: []string{s.Want}})
		case remote.Ask:
			g.running.Go(func() { g.ask(s) })
		case remote.Want:
			g.running.Go(func() { g.want(s) })
		}
	}
}

func (g *Gateway) user() string { return bus.Token(g.options.User) }

// ask asks one host with room.
func (g *Gateway) ask(s remote.Step) {
	g.mu.Lock()
	body := bus.Ask{Want: s.Request.ID, Pool: s.Request.Pool, Not: g.table.Avoided(time.Now(), s.Request)}
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(g.ctx, remote.OfferTime)
	defer cancel()
	late := time.AfterFunc(remote.AnswerTime, func() { g.asked(s, nil, bus.ErrLate) })
	defer late.Stop()
	var answer bus.Offer
	subject := bus.FreeSubject(s.Region, s.Request.Pool, cmp.Or(s.Rank, bus.Any), g.user(), g.id)
	err := g.options.Bus.Request(ctx, subject, body, &answer)
	g.options.Count(AskAnswered, askResult(answer, err))
	var o *remote.Offer
	if err == nil && answer.ID != "" {
		o = &remote.Offer{ID: answer.ID, Region: s.Region, Host: answer.Host, Pool: s.Request.Pool, URL: answer.URL}
	}
	if !g.asked(s, o, err) && o != nil {
		g.options.Bus.Publish(bus.HostSubject(s.Region, o.Host, "cancel", g.user(), g.id),
			bus.Cancel{Offers: []string{o.ID}})
	}
}

// askResult returns what is counted of the answer to an ask.
func askResult(answer bus.Offer, err error) string {
	switch {
	case errors.Is(err, bus.ErrNobody):
		return "full"
	case errors.Is(err, bus.ErrRefused):
		return "refused"
	case err != nil:
		return "late"
	case answer.ID == "":
		return "none"
	}
	return "offer"
}

// asked notes the answer to an ask, and reports whether a request has taken the offer in it.
func (g *Gateway) asked(s remote.Step, o *remote.Offer, err error) (taken bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.table.Asked(time.Now(), s.Seq, o, err == nil, errors.Is(err, bus.ErrNobody))
	if r != nil {
		g.takeLocked(r, o)
	}
	if errors.Is(err, bus.ErrRefused) && (s.Region == s.Request.Region || s.Region == g.options.Regions[0]) {
		err = control.Errorf(control.BadConfig, "cannot lease from another host: %v", err)
		g.endLocked(s.Request, result{err: err})
	}
	g.wakeLocked()
	return r != nil
}

// want asks for a place in a queue.
func (g *Gateway) want(s remote.Step) {
	w := g.waitingOf(s.Request)
	if w == nil {
		return
	}
	age := time.Since(s.Request.Began)
	body := bus.Want{Age: age.Milliseconds(), Timeout: (w.request.Timeout - age).Milliseconds(), Want: s.Want}
	subject := bus.WantSubject(s.Region, s.Request.Pool, g.user(), g.id)
	if s.Host != "" {
		subject, body.Pool = bus.HostSubject(s.Region, s.Host, "want", g.user(), g.id), s.Request.Pool
	}
	ctx, cancel := context.WithTimeout(g.ctx, remote.AnswerTime)
	defer cancel()
	var answer bus.Placed
	err := g.options.Bus.Request(ctx, subject, body, &answer)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		answer.Host = ""
	}
	g.table.Placed(time.Now(), s.Seq, answer.Host, answer.Before, errors.Is(err, bus.ErrNobody))
	g.wakeLocked()
}

func (g *Gateway) waitingOf(r *remote.Request) *waiting {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waits[r]
}

// offered answers an offer of a host.
func (g *Gateway) offered(m *bus.Message) {
	var b bus.Offer
	tokens := m.Tokens() // btools.v1.REGION.…
	if m.Read(&b) != nil || b.ID == "" || len(tokens) < 3 {
		return
	}
	// The server vouches for the host in the subject, its last token.
	o := &remote.Offer{ID: b.ID, Region: bus.Name(tokens[2]), Host: bus.Name(tokens[len(tokens)-1]), Pool: b.Pool,
		Want: b.Want, URL: b.URL}
	answer := bus.Answer{By: g.user() + "." + g.id}
	g.mu.Lock()
	if g.ctx.Err() == nil {
		r := g.table.Offered(time.Now(), o)
		if answer.Yes = r != nil; answer.Yes {
			g.takeLocked(r, o)
		} else if !g.table.Waits(o.Pool, o.Region) {
			answer.Left = new(int)
		}
		g.wakeLocked()
	}
	g.mu.Unlock()
	m.Answer(answer)
}

// takeLocked has a request take an offer. If the host is slow, the request goes on as well, and takes what it gets
// first.
func (g *Gateway) takeLocked(r *remote.Request, o *remote.Offer) {
	w := g.waits[r]
	failed := func(why remote.Failure, err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		w.refused = err
		g.table.Failed(time.Now(), r, o, why)
		g.wakeLocked()
	}
	slow := time.AfterFunc(slowTime, func() { failed(remote.Lost, fmt.Errorf("the host %s has not answered", o.Host)) })
	g.running.Go(func() {
		lease, failure, err := g.grant(context.WithoutCancel(g.ctx), o, w.request)
		slow.Stop()
		if err != nil {
			failed(failure, err)
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.waits[r] == nil { // its client has left, or has another lease
			g.running.Go(func() { lease.Release(context.WithoutCancel(g.ctx)) })
		}
		g.endLocked(r, result{lease: lease})
	})
}

// pinLocked counts requests of a region.
func (g *Gateway) pinLocked(region string, n int) {
	if region == "" || slices.Contains(g.options.Regions, region) {
		return
	}
	if g.pinned[region] += n; g.pinned[region] == 0 {
		delete(g.pinned, region)
	}
}

// endLocked ends a request.
func (g *Gateway) endLocked(r *remote.Request, result result) {
	w := g.waits[r]
	if w == nil {
		return
	}
	delete(g.waits, r)
	g.pinLocked(r.Region, -1)
	g.cancels = append(g.cancels, g.table.Leave(r)...)
	g.wakeLocked()
	w.result <- result
}

// Lease leases a browser of any host. The context is its client's.
func (g *Gateway) Lease(ctx context.Context, r Request) (*Lease, error) {
	if _, err := g.options.Token(); err != nil {
		return nil, control.Errorf(control.BadConfig, "cannot read the token for the hosts: %v", err)
	}
	r.Timeout = max(r.Timeout, remote.AnswerTime) // one ask at least
	w := &waiting{request: r, result: make(chan result, 1)}
	wanted := &remote.Request{ID: rand.Text(), Pool: r.Pool, Region: r.Region, Began: time.Now(), Not: r.Not}
	g.mu.Lock()
	g.waits[wanted] = w
	g.pinLocked(r.Region, 1)
	g.table.Enter(wanted.Began, wanted)
	g.wakeLocked()
	g.mu.Unlock()
	over := time.NewTimer(r.Timeout)
	defer over.Stop()
	var err error
	select {
	case got := <-w.result:
		return got.lease, got.err
	case <-over.C:
		err = g.timeoutError(wanted, w)
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-g.ctx.Done():
		err = context.Cause(g.ctx)
	}
	g.mu.Lock()
	g.endLocked(wanted, result{err: err})
	g.mu.Unlock()
	got := <-w.result // which may have come just now
	return got.lease, got.err
}

// timeoutError returns the error of a request that has waited long enough.
func (g *Gateway) timeoutError(r *remote.Request, w *waiting) error {
	if since, last := g.options.Down(); !since.IsZero() {
		text := fmt.Sprintf("cannot lease from another host: no NATS server has answered for %v",
			time.Since(since).Round(100*time.Millisecond))
		if last != nil {
			text += ": " + last.Error()
		}
		return control.Errorf(control.NoNATS, "%s", text)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	hosts := "hosts"
	if r.Region != "" {
		hosts += " of region " + r.Region
	}
	text := fmt.Sprintf("cannot lease an instance of pool %s: none of the %s has had one within %v", r.Pool, hosts,
		w.request.Timeout)
	if queues, _ := g.table.Before(r); w.refused != nil {
		text += ": " + w.refused.Error()
	} else if len(queues) == 0 {
		text += "; none has answered that it has the pool"
	}
	return control.Errorf(control.LeaseTimeout, "%s", text)
}

// Waiting describes what the requests for each pool wait for, by its name: the hosts in whose queues the oldest one
// stands, the least number before it, and why a host has not leased to it.
func (g *Gateway) Waiting() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	oldest := map[string]*remote.Request{}
	for r := range g.waits {
		if o := oldest[r.Pool]; o == nil || r.Began.Before(o.Began) {
			oldest[r.Pool] = r
		}
	}
	texts := map[string]string{}
	for name, r := range oldest {
		hosts, before := g.table.Before(r)
		hosts = slices.DeleteFunc(hosts, func(name string) bool { return name == g.options.Self })
		texts[name] = fmt.Sprintf("in the queues of %s, with %d or more before it", list(hosts), before)
		if down, _ := g.options.Down(); !down.IsZero() {
			texts[name] = "no NATS server answers"
		} else if len(hosts) == 0 {
			texts[name] = "no host has answered that it has the pool"
		}
		if why := g.waits[r].refused; why != nil {
			texts[name] += "; " + why.Error()
		}
	}
	return texts
}

// list lists the first of some hosts.
func list(hosts []string) string {
	const most = 3
	if more := len(hosts) - most; more > 0 {
		hosts = append(slices.Clone(hosts[:most]), spell.Count(more, "other host"))
	}
	return strings.Join(hosts, ", ")
}

func trim(address string) string { return strings.TrimSuffix(address, "/") }
