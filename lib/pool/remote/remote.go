// Package remote decides how requests find a browser on one of many hosts: which hosts are asked, in whose queues a
// request stands, which request takes an offer, and when a lease on another host is lost. It has no lock, no
// goroutine, no I/O and no clock: its caller sends what Due returns, and tells it what came back.
//
// A message may be lost, repeated, late or out of order. Nothing here believes that a lease exists before its host has
// granted it.
package remote

import (
	"cmp"
	"container/heap"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// Numbers and times of requests. Those without a reason were measured with 1,000 hosts and 20 gateways.
const (
	// fewPlaces is the number of hosts of a region in whose queues a request stands. With 8, a burst of 5,000 requests
	// fed itself on a busy machine: 51,491 offers lapsed in 15 s.
	fewPlaces = 4
	// morePlaces is the number if at most fewHosts are known to have the pool.
	morePlaces = 8
	fewHosts   = 16
	// window is the number of wants without an answer.
	window = 64

	// AnswerTime is how long a host may take to answer an ask or a want. An offer that comes later is taken as well.
	AnswerTime = 500 * time.Millisecond
	// OfferTime is the time until an offer lapses.
	OfferTime = 2 * time.Second
	// maxLate is the number of asks in a row without an answer before a request waits.
	maxLate = 3
	// maxNone is the number of hosts in a row without room before a request waits.
	maxNone = 2

	backstop       = time.Second            // between two asks of a request that waits
	twiceTime      = AnswerTime / 5         // until another want after two for one host; each time twice as long
	firstRepeat    = 5 * time.Second        // until a want is repeated; each time twice as long
	lastRepeat     = 80 * time.Second       // at most
	lapseJitter    = 200 * time.Millisecond // until a request goes on whose offer had lapsed, at most
	reconnectTime  = time.Second            // in which all requests ask again after a reconnection, at most
	reconnectPause = 2 * time.Millisecond   // between two of them, at most
	firstTime      = time.Second            // until requests begin with the first rank again
	slowAvoidance  = 2 * time.Second        // of a host, or the ranks up to its own, that does not answer
	firstAvoidance = 30 * time.Second       // of a host that cannot be reached; each time twice as long
	lastAvoidance  = 5 * time.Minute        // at most
	forgetTime     = time.Minute            // until a host is forgotten that says nothing
	maxAvoided     = 64                     // hosts that an ask names
)

// Table is the requests of one gateway. Create it with New.
type Table struct {
	regions  []string // its own first
	farAfter time.Duration
	ranks    []string // in the order in which hosts are asked; none: at random
	random   *rand.Rand
	begins   map[served]begin
	lines    map[string][]*Request // by pool, the oldest first
	asks     map[uint64]*reach     // without an answer
	wants    map[uint64]*place     // without an answer
	places   map[at]*place         // in queues
	hosts    map[string]*host
	cleaned  time.Time             // when hosts were forgotten
	avoided  map[string]*avoidance // of hosts
	known    map[served]int        // hosts that have a pool
	asked    map[served]time.Time  // last ask of a request that waits
	timers   timers
	narrow   []*Request // requests that wait for the window
	seq      uint64
	down     bool // without a connection
}

// at is a place in the queue of a host.
type at struct{ want, host string }

// served is a pool in a region.
type served struct{ region, pool string }

// begin is the rank with which requests begin.
type begin struct {
	rank  int
	until time.Time // then with the first one
}

// host is a host as it tells of itself.
type host struct {
	region string
	pools  []string
	seen   time.Time // when it told last
}

// avoidance is that of a host.
type avoidance struct {
	until time.Time
	last  time.Duration // how long it took the last time
}

// New returns a table without requests. A request looks in the first region, and after each farAfter without an offer
// in one more. In a region it asks the hosts of one rank after the other; without ranks, any. The random numbers are
// for jitters.
func New(regions []string, farAfter time.Duration, ranks []string, random *rand.Rand) *Table {
	return &Table{regions: regions, farAfter: farAfter, ranks: ranks, random: random, lines: map[string][]*Request{},
		asks: map[uint64]*reach{}, wants: map[uint64]*place{}, places: map[at]*place{}, hosts: map[string]*host{},
		avoided: map[string]*avoidance{}, known: map[served]int{}, asked: map[served]time.Time{},
		begins: map[served]begin{}}
}

// Request is a request for a browser. Set its fields before Enter.
type Request struct {
	ID     string // random: who knows it can cancel its places
	Pool   string
	Began  time.Time
	Region string   // the only region; "": all of the table
	Not    []string // hosts that cannot serve it

	reaches []*reach
	taking  *Offer
	heir    *Request  // gets its places after the grant
	paused  time.Time // end of a pause
	over    bool
	due     time.Time
	index   int // in Table.timers; -1: none
	narrow  bool
}

// reach is a request in one region.
type reach struct {
	of      *Request
	region  string
	ask     uint64    // without an answer; 0: none
	askAt   time.Time // of the next ask
	begin   int       // rank that was asked first
	full    int       // ranks without room from there on
	late    int       // asks in a row without an answer
	none    int       // hosts in a row without room
	waits   bool      // in queues
	places  []*place
	placeAt time.Time // of the next wants
	twice   int       // times in a row that two wants had one host
}

// place is a place, or a want for one, in the queue of a host.
type place struct {
	in     *reach
	want   string // ID of the request for which it was made
	host   string // "": it has no answer yet
	before int    // requests before it, as the host said
	seq    uint64 // of the want without an answer; 0: none
	again  time.Time
	every  time.Duration
}

// Offer is a slot that a host has reserved for a short time.
type Offer struct {
	ID     string
	Region string
	Host   string
	Pool   string
	Want   string // the want that it answers; "": none
	URL    string // of the host
}

// Do is a kind of message.
type Do int

// The kinds of messages.
const (
	Ask    Do = iota // asks one host with room; its answer is for Asked
	Want             // asks for a place in a queue; its answer is for Placed
	Cancel           // gives a place up; it has no answer
)

// Step is a message to be sent.
type Step struct {
	Do      Do
	Request *Request
	Region  string
	Host    string // the receiver; "": any one
	Rank    string // of the receivers of an ask; "": any
	Want    string // ID of the place
	Seq     uint64 // number of the message, for its answer
}

// Enter adds a request.
func (t *Table) Enter(now time.Time, r *Request) {
	line := t.lines[r.Pool]
	i, _ := slices.BinarySearchFunc(line, r, byAge)
	t.lines[r.Pool] = slices.Insert(line, i, r)
	r.index = -1
	region := cmp.Or(r.Region, t.regions[0])
	r.reaches = []*reach{{of: r, region: region, askAt: now}}
	t.wake(r, now)
}

func byAge(a, b *Request) int { return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.ID, b.ID)) }

// Leave removes a request, because it has been served or given up.
func (t *Table) Leave(r *Request) (steps []Step) {
	if r.over {
		return nil
	}
	r.over = true
	t.lines[r.Pool] = slices.DeleteFunc(t.lines[r.Pool], func(o *Request) bool { return o == r })
	if len(t.lines[r.Pool]) == 0 {
		delete(t.lines, r.Pool)
		for _, in := range r.reaches {
			delete(t.asked, in.served())
		}
	}
	if r.index >= 0 {
		heap.Remove(&t.timers, r.index)
	}
	for _, in := range r.reaches {
		delete(t.asks, in.ask)
		for _, p := range in.places {
			if !t.inherit(r.heir, p) {
				t.drop(p)
				if p.host != "" {
					steps = append(steps, Step{Do: Cancel, Request: r, Region: in.region, Host: p.host, Want: p.want})
				}
			}
		}
		in.places = nil
	}
	return steps
}

// inherit gives a place to a request if it has too few in its region, and reports whether it has.
func (t *Table) inherit(r *Request, p *place) bool {
	if r == nil || r.over {
		return false
	}
	in := r.in(p.in.region)
	if in == nil || !in.waits || len(in.places) >= t.most(in) || p.host != "" && in.stands(p.host) {
		return false
	}
	p.in = in
	in.places = append(in.places, p)
	t.wake(r, p.again)
	return true
}

// in returns the request in a region, or nil.
func (r *Request) in(region string) *reach {
	for _, in := range r.reaches {
		if in.region == region {
			return in
		}
	}
	return nil
}

func (in *reach) served() served { return served{in.region, in.of.Pool} }

// stands reports whether a request has a place in the queue of a host.
func (in *reach) stands(host string) bool {
	return slices.ContainsFunc(in.places, func(p *place) bool { return p.host == host })
}

// drop forgets a place; its request still has it in its list.
func (t *Table) drop(p *place) {
	if t.wants[p.seq] == p {
		delete(t.wants, p.seq)
		t.widen()
	}
	if t.places[at{p.want, p.host}] == p {
		delete(t.places, at{p.want, p.host})
	}
}

// lose takes a place away from its request, which looks for another one at a time.
func (t *Table) lose(p *place, next time.Time) {
	t.drop(p)
	in := p.in
	in.places = slices.DeleteFunc(in.places, func(o *place) bool { return o == p })
	if next.After(in.placeAt) {
		in.placeAt = next
	}
	t.wake(in.of, next)
}

// most returns the number of places that a request has in a region.
func (t *Table) most(in *reach) int {
	known := t.known[in.served()]
	if 0 < known && known <= fewHosts {
		return morePlaces
	}
	return fewPlaces
}

// Pools returns the pools of all requests.
func (t *Table) Pools() iter.Seq[string] { return maps.Keys(t.lines) }

// Waits reports whether a request of a pool waits in a region, so that any host's offer is welcome.
func (t *Table) Waits(pool, region string) bool { return t.waiting(served{region, pool}, false) != nil }

// waiting returns the oldest request that waits, with byAny one that any host could serve, or nil.
func (t *Table) waiting(of served, byAny bool) *reach {
	for _, r := range t.lines[of.pool] {
		if in := r.in(of.region); r.taking == nil && in != nil && in.waits && !(byAny && len(r.Not) > 0) {
			return in
		}
	}
	return nil
}

// Asked notes the answer to an ask: an offer, none because the host had no room, or no answer. With full, no host has
// room. It returns the request that takes the offer, which may be another one; nil: none.
func (t *Table) Asked(now time.Time, seq uint64, offer *Offer, answered, full bool) (taker *Request) {
	if offer != nil {
		taker = t.Offered(now, offer)
	}
	in := t.asks[seq]
	if in == nil {
		return taker
	}
	delete(t.asks, seq)
	if in.ask = 0; taker != nil && taker != in.of && t.swap(taker, in) {
		return taker
	}
	if len(t.ranks) > 0 && !in.waits && !t.ranked(now, in, offer != nil, answered || full) {
		in.askAt = now
		t.wake(in.of, now)
		return taker
	}
	switch {
	case taker != nil:
		in.late, in.none = 0, 0
	case full:
		in.waits = true
	case answered: // that there is no room, or with an offer that nobody can use
		in.late = 0
		in.none++
	default:
		in.late++
	}
	if in.late >= maxLate || in.none >= maxNone {
		in.waits = true
	}
	if in.askAt = now; in.waits {
		in.askAt = now.Add(t.again())
	}
	if taker != nil && in.waits {
		t.askAgain(now, in.served())
	}
	t.wake(in.of, now)
	return taker
}

// swap gives the ask of a request that has taken the offer of another one to that one, and reports whether there is an
// ask: else there would be more asks than requests.
func (t *Table) swap(taker *Request, to *reach) bool {
	from := taker.in(to.region)
	if from == nil || from.ask == 0 {
		return false
	}
	to.ask, to.begin, to.full, from.ask = from.ask, from.begin, from.full, 0
	t.asks[to.ask] = to
	return true
}

// askAgain has the oldest request that waits ask at once: a host had room, and others may.
func (t *Table) askAgain(now time.Time, of served) {
	delete(t.asked, of)
	if in := t.waiting(of, false); in != nil {
		in.askAt = now
		t.wake(in.of, now)
	}
}

// ranked notes the answer of a rank of hosts, and reports whether it is that of all.
func (t *Table) ranked(now time.Time, in *reach, offered, answered bool) bool {
	at := in.served()
	rank := (in.begin + in.full) % len(t.ranks)
	switch {
	case offered:
		t.begins[at] = begin{max(rank-1, 0), t.begins[at].until}
	case !answered:
		t.begins[at] = begin{(rank + 1) % len(t.ranks), now.Add(slowAvoidance)}
	default:
		if in.full++; in.full < len(t.ranks) {
			return false
		}
	}
	in.full = 0
	return true
}

// rank returns the rank that a request asks next in a region; "": any.
func (t *Table) rank(now time.Time, in *reach) string {
	if len(t.ranks) == 0 || in.waits {
		return ""
	}
	if at := in.served(); in.full == 0 {
		if !t.begins[at].until.After(now) {
			t.begins[at] = begin{0, now.Add(firstTime)}
		}
		in.begin = t.begins[at].rank
	}
	return t.ranks[(in.begin+in.full)%len(t.ranks)]
}

// Offered decides who takes an offer: the oldest request of the pool that can, whichever the host has named. It
// returns nil if none can. The caller tells with Leave that the request has been granted the lease, or else with
// Failed.
func (t *Table) Offered(now time.Time, o *Offer) *Request {
	var named *Request
	if p := t.places[at{o.Want, o.Host}]; p != nil {
		named = p.in.of
		// The host has used this place up. What the request lacks now it inherits from the one that takes the offer.
		t.lose(p, now.Add(backstop))
	}
	if t.avoids(now, o.Host) {
		return nil
	}
	for _, r := range t.lines[o.Pool] {
		if r.taking == nil && !r.paused.After(now) && !slices.Contains(r.Not, o.Host) &&
			(r.Region == "" || r.Region == o.Region) {
			if r.taking = o; named != r {
				r.heir = named
			}
			return r
		}
	}
	return nil
}

// Failure is why a request that took an offer did not get the lease.
type Failure int

// The failures.
const (
	Lapsed      Failure = iota // the offer was too old
	Lost                       // there is no answer yet: the host may have granted it, and ends it by itself
	Unreachable                // no connection to the host
	Refused                    // by the host: not for this request
)

// Failed notes that a request did not get the lease of an offer that it took. After Lost it may still get it, or have
// another failure.
func (t *Table) Failed(now time.Time, r *Request, o *Offer, why Failure) {
	next := now
	switch why {
	case Lapsed:
		next = now.Add(t.jitter(lapseJitter))
	case Lost:
		if a, until := t.avoid(o.Host), now.Add(slowAvoidance); until.After(a.until) {
			a.until = until
		}
	case Unreachable:
		if a := t.avoid(o.Host); a.last == 0 || !a.until.After(now) { // unless another request has found it
			a.last = min(max(firstAvoidance, 2*a.last), lastAvoidance)
			a.until = now.Add(a.last)
		}
	case Refused:
		r.Not = append(r.Not, o.Host)
	}
	if r.over || r.taking != o {
		return
	}
	r.taking, r.heir, r.paused = nil, nil, next
	for _, in := range r.reaches {
		in.askAt, in.none, in.late = next, 0, 0
	}
	t.wake(r, next)
}

// Reached notes that a host can be reached.
func (t *Table) Reached(host string) { delete(t.avoided, host) }

// Exclude has a host never be used.
func (t *Table) Exclude(now time.Time, host string) { t.avoid(host).until = now.Add(never) }

// never is longer than any gateway runs.
const never = 100 * 365 * 24 * time.Hour

// avoid returns the avoidance of a host.
func (t *Table) avoid(host string) *avoidance {
	if t.avoided[host] == nil {
		t.avoided[host] = &avoidance{}
	}
	return t.avoided[host]
}

func (t *Table) avoids(now time.Time, host string) bool {
	a := t.avoided[host]
	return a != nil && a.until.After(now)
}

// Avoided returns hosts that a request must not get: those that cannot serve it or cannot be reached.
func (t *Table) Avoided(now time.Time, r *Request) []string {
	not := slices.Clone(r.Not)
	for name, a := range t.avoided {
		switch {
		case a.until.After(now) && !slices.Contains(not, name):
			not = append(not, name)
		case now.Sub(a.until) > lastAvoidance:
			delete(t.avoided, name)
		}
	}
	slices.Sort(not)
	return not[:min(len(not), maxAvoided)]
}

// Placed notes the answer to a want: the host in whose queue the request stands, and how many are before it. Without a
// host there was no answer, or with none there is no host.
func (t *Table) Placed(now time.Time, seq uint64, host string, before int, none bool) {
	p := t.wants[seq]
	if p == nil {
		return
	}
	delete(t.wants, seq)
	p.seq = 0
	t.widen()
	switch {
	case none && p.host == "":
		t.lose(p, now.Add(backstop)) // no host has the pool
	case host == "", p.host != "" && p.host != host:
		t.lose(p, now) // another host in its place
	case p.host == "" && (p.in.stands(host) || t.places[at{p.want, host}] != nil):
		// Chance has chosen the same host twice. There may be no other one.
		next := now.Add(firstRepeat)
		stands := 0
		for _, o := range p.in.places {
			stands += min(1, len(o.host))
		}
		switch known := t.known[p.in.served()]; {
		case known > stands:
			next = now.Add(twiceTime)
		case known == 0: // no host has told yet
			if !p.in.placeAt.After(now) {
				p.in.twice = min(p.in.twice+1, 6)
			}
			next = now.Add(min(twiceTime<<p.in.twice/2, firstRepeat))
		}
		t.lose(p, next)
	default:
		p.host, p.before = host, before
		t.places[at{p.want, host}] = p
		p.every = min(max(firstRepeat, 2*p.every), lastRepeat)
		p.again = now.Add(p.every)
		t.wake(p.in.of, p.again)
	}
}

// Load notes what a host says of itself. After a while without a word it is forgotten.
func (t *Table) Load(now time.Time, name, region string, pools []string) {
	t.forget(name)
	t.hosts[name] = &host{region, pools, now}
	for _, pool := range pools {
		t.known[served{region, pool}]++
	}
	if now.Sub(t.cleaned) > forgetTime {
		t.cleaned = now
		for name, h := range t.hosts {
			if now.Sub(h.seen) > forgetTime {
				t.forget(name)
			}
		}
	}
}

func (t *Table) forget(name string) {
	if h := t.hosts[name]; h != nil {
		for _, pool := range h.pools {
			t.known[served{h.region, pool}]--
		}
		delete(t.hosts, name)
	}
}

// Gone notes that a host grants no leases any more: all its places are lost.
func (t *Table) Gone(now time.Time, name string) {
	t.forget(name)
	for key, p := range t.places {
		if key.host == name {
			t.lose(p, now)
		}
	}
}

// Down notes that the connection is gone: no message has an answer any more.
func (t *Table) Down() {
	t.down = true
	for _, in := range t.asks {
		in.ask = 0
	}
	clear(t.asks)
	t.eachPlace(func(p *place) { p.seq = 0 })
	clear(t.wants)
}

// Up notes that there is a connection again. Hosts may have forgotten all places, so all requests ask and want anew,
// one after the other, the oldest first.
func (t *Table) Up(now time.Time) {
	t.down = false
	clear(t.places)
	for _, line := range t.lines {
		pause := min(reconnectTime/time.Duration(len(line)), reconnectPause)
		for i, r := range line {
			next := now.Add(time.Duration(i)*pause + t.jitter(pause))
			for _, in := range r.reaches {
				in.places, in.askAt, in.placeAt, in.late, in.none, in.twice = nil, next, next, 0, 0, 0
			}
			t.wake(r, next)
		}
	}
}

func (t *Table) eachPlace(do func(*place)) {
	for _, line := range t.lines {
		for _, r := range line {
			for _, in := range r.reaches {
				for _, p := range in.places {
					do(p)
				}
			}
		}
	}
}

// Before returns the hosts in whose queues a request stands, and the smallest number of requests before it in one.
func (t *Table) Before(r *Request) (hosts []string, before int) {
	for _, in := range r.reaches {
		for _, p := range in.places {
			if p.host != "" {
				if len(hosts) == 0 || p.before < before {
					before = p.before
				}
				hosts = append(hosts, p.host)
			}
		}
	}
	slices.Sort(hosts)
	return hosts, before
}

// Due returns the messages that are to be sent now, and when it must be called again; the zero time: after the next
// event.
func (t *Table) Due(now time.Time) (steps []Step, again time.Time) {
	for !t.down && len(t.timers) > 0 && !t.timers[0].due.After(now) {
		r := heap.Pop(&t.timers).(*Request)
		steps = append(steps, t.step(now, r)...)
	}
	if !t.down && len(t.timers) > 0 {
		again = t.timers[0].due
	}
	return steps, again
}

// step returns the messages of one request.
func (t *Table) step(now time.Time, r *Request) (steps []Step) {
	if r.taking != nil {
		return nil // Failed goes on
	}
	if r.paused.After(now) {
		t.wake(r, r.paused)
		return nil
	}
	if n := len(r.reaches); r.Region == "" && n < len(t.regions) && r.reaches[n-1].waits {
		if far := r.Began.Add(time.Duration(n) * t.farAfter); far.After(now) {
			t.wake(r, far)
		} else {
			r.reaches = append(r.reaches, &reach{of: r, region: t.regions[n], askAt: now})
		}
	}
	for _, in := range r.reaches {
		steps = append(steps, t.ask(now, in)...)
		steps = append(steps, t.want(now, in)...)
	}
	return steps
}

// ask returns the ask of a request in a region, if it is due.
func (t *Table) ask(now time.Time, in *reach) []Step {
	if in.ask != 0 {
		return nil // Asked goes on
	}
	if in.askAt.After(now) {
		t.wake(in.of, in.askAt)
		return nil
	}
	if len(in.of.Not) == 0 && t.waiting(in.served(), true) != nil { // as those before it were told
		in.waits = true
	}
	if in.waits {
		// Another one asks for all.
		if next := t.asked[in.served()].Add(t.again()); len(in.of.Not) == 0 && next.After(now) {
			in.askAt = next
			t.wake(in.of, next)
			return nil
		}
		t.asked[in.served()] = now
	}
	t.seq++
	in.ask = t.seq
	t.asks[t.seq] = in
	return []Step{{Do: Ask, Request: in.of, Region: in.region, Rank: t.rank(now, in), Seq: t.seq}}
}

// want returns the wants of a request in a region that are due: repeats of those at hosts, and new ones.
func (t *Table) want(now time.Time, in *reach) (steps []Step) {
	if !in.waits {
		return nil
	}
	send := func(p *place) {
		t.seq++
		p.seq = t.seq
		t.wants[t.seq] = p
		steps = append(steps, Step{Do: Want, Request: in.of, Region: in.region, Host: p.host, Want: p.want, Seq: t.seq})
	}
	missing := t.most(in) - len(in.places)
	if missing > 0 && in.placeAt.After(now) {
		t.wake(in.of, in.placeAt)
		missing = 0
	}
	for _, p := range in.places {
		switch {
		case p.seq != 0:
		case p.again.After(now):
			t.wake(in.of, p.again)
		case len(t.wants) < window:
			send(p)
		default:
			t.await(in.of)
		}
	}
	for range missing {
		if len(t.wants) >= window {
			t.await(in.of)
			break
		}
		p := &place{in: in, want: in.of.ID}
		in.places = append(in.places, p)
		send(p)
	}
	return steps
}

// await notes that a request has a want for which the window has no room.
func (t *Table) await(r *Request) {
	if !r.narrow {
		r.narrow = true
		i, _ := slices.BinarySearchFunc(t.narrow, r, byAge)
		t.narrow = slices.Insert(t.narrow, i, r)
	}
}

// widen gives room in the window to the oldest request that waits for it.
func (t *Table) widen() {
	for len(t.narrow) > 0 {
		r := t.narrow[0]
		t.narrow = t.narrow[1:]
		if r.narrow = false; !r.over {
			t.wake(r, time.Time{})
			return
		}
	}
}

// wake notes that a request may have something to send at a time.
func (t *Table) wake(r *Request, when time.Time) {
	switch {
	case r.over:
	case r.index < 0:
		r.due = when
		heap.Push(&t.timers, r)
	case when.Before(r.due):
		r.due = when
		heap.Fix(&t.timers, r.index)
	}
}

// again returns the time between two asks of requests that wait.
func (t *Table) again() time.Duration { return t.jitter(backstop/2) + backstop*3/4 }

// jitter returns a random time below a bound.
func (t *Table) jitter(most time.Duration) time.Duration {
	return time.Duration(t.random.Int64N(int64(most)))
}

// timers is a heap of requests, the next one that is due first.
type timers []*Request

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h timers) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }

// Push adds a request at the end.
func (h *timers) Push(r any) {
	r.(*Request).index = len(*h)
	*h = append(*h, r.(*Request))
}

// Pop removes the last request.
func (h *timers) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	r.index = -1
	*h = (*h)[:last]
	return r
}
