package remote

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"btools/lib/pool/bus"
)

// world is a network with hosts and one gateway, in a time of its own. Its hosts serve their queues by age.
type world struct {
	t        *testing.T
	r        *rand.Rand
	now      time.Time
	events   events
	table    *Table
	hosts    []*modelHost
	leases   map[string]string // host by the request that has one there
	inFlight map[*Request]bool // requests that take an offer
	faults   float64           // part of the messages that are lost, repeated or late
	n        int
	calm     time.Time // since when there are no faults; zero: there are
}

type modelHost struct {
	name   string
	region string
	slots  int
	free   int
	idle   time.Time            // since when it has had a free slot
	broken bool                 // it cannot be reached by the gateway
	wants  map[string]time.Time // since when, by want
	offers map[string]time.Time // until when
}

type event struct {
	at time.Time
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func (w *world) after(d time.Duration, do func()) { heap.Push(&w.events, event{w.now.Add(d), do}) }

// send delivers a message as a network with faults does.
func (w *world) send(do func()) {
	late := time.Duration(w.r.IntN(int(2 * time.Millisecond)))
	switch {
	case w.r.Float64() >= w.faults:
		w.after(late, do)
	case w.r.IntN(3) == 0:
	case w.r.IntN(2) == 0:
		w.after(late, do)
		w.after(late+time.Duration(w.r.IntN(int(time.Second))), do)
	default:
		w.after(time.Duration(w.r.IntN(int(3*time.Second))), do)
	}
}

// serve offers the free slots of a host to its queue.
func (w *world) serve(h *modelHost) {
	for h.free > 0 && len(h.wants) > 0 {
		oldest, since := "", w.now.Add(time.Hour)
		for want, at := range h.wants {
			if at.Before(since) || at.Equal(since) && want < oldest {
				oldest, since = want, at
			}
		}
		delete(h.wants, oldest)
		o := w.offer(h, oldest)
		w.send(func() { w.offered(h, o) })
	}
}

// offer reserves a slot of a host.
func (w *world) offer(h *modelHost, want string) *Offer {
	h.free--
	w.n++
	o := &Offer{ID: fmt.Sprint("o", w.n), Region: h.region, Host: h.name, Pool: "p", Want: want}
	h.offers[o.ID] = w.now.Add(2 * time.Second)
	w.after(2*time.Second, func() { w.lapse(h, o.ID) })
	return o
}

func (w *world) lapse(h *modelHost, id string) {
	if _, is := h.offers[id]; is {
		delete(h.offers, id)
		h.free++
		w.serve(h)
	}
}

// offered is an offer's arrival at the gateway, which answers.
func (w *world) offered(h *modelHost, o *Offer) {
	r := w.table.Offered(w.now, o)
	if r == nil {
		w.send(func() { w.lapse(h, o.ID) })
		return
	}
	w.take(h, o, r)
}

// take requests the lease of an offer.
func (w *world) take(h *modelHost, o *Offer, r *Request) {
	switch {
	case w.inFlight[r]:
		w.t.Fatalf("%s takes two offers at once", r.ID)
	case w.leases[r.ID] != "" && h.name == "":
		w.t.Fatalf("%s takes an offer after its lease", r.ID)
	case slices.Contains(r.Not, o.Host):
		w.t.Fatalf("%s takes an offer of %s, which cannot serve it", r.ID, o.Host)
	}
	w.inFlight[r] = true
	if h.broken {
		w.after(time.Second, func() { w.failed(r, o, Unreachable) })
		return
	}
	w.after(time.Millisecond, func() {
		_, valid := h.offers[o.ID]
		lost := w.r.Float64() < w.faults/4
		switch {
		case !valid:
			w.after(time.Millisecond, func() { w.failed(r, o, Lapsed) })
			return
		case lost: // granted, and nobody holds it
			delete(h.offers, o.ID)
			w.after(EndTime, func() { h.free++; w.serve(h) })
			w.after(AnswerTime, func() { w.failed(r, o, Lost) })
			return
		}
		delete(h.offers, o.ID)
		w.after(time.Millisecond, func() { w.granted(h, r) })
	})
}

func (w *world) failed(r *Request, o *Offer, why Failure) {
	delete(w.inFlight, r)
	w.table.Failed(w.now, r, o, why)
}

func (w *world) granted(h *modelHost, r *Request) {
	delete(w.inFlight, r)
	held := time.Duration(w.r.IntN(int(time.Second)))
	w.after(held, func() { h.free++; w.serve(h) })
	if r.over {
		return // its client has left
	}
	w.steps(w.table.Leave(r))
}

// steps sends what the table says.
func (w *world) steps(steps []Step) {
	for _, s := range steps {
		switch s.Do {
		case Ask:
			w.ask(s)
		case Want:
			w.want(s)
		case Cancel:
			w.send(func() { delete(w.host(s.Host).wants, s.Want) })
		}
	}
}

func (w *world) host(name string) *modelHost {
	i := slices.IndexFunc(w.hosts, func(h *modelHost) bool { return h.name == name })
	return w.hosts[i]
}

// pick returns a random host of a region for which a condition holds.
func (w *world) pick(region string, is func(*modelHost) bool) *modelHost {
	var all []*modelHost
	for _, h := range w.hosts {
		if h.region == region && is(h) {
			all = append(all, h)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.r.IntN(len(all))]
}

func (w *world) ask(s Step) {
	not := w.table.Avoided(w.now, s.Request)
	h := w.pick(s.Region, func(h *modelHost) bool {
		return h.free > 0 && len(h.wants) == 0 && (s.Rank == "" || bus.RankOf(h.name) == s.Rank)
	})
	w.after(AnswerTime, func() { w.table.Asked(w.now, s.Seq, nil, false, false) })
	if h == nil {
		w.after(time.Millisecond, func() { w.table.Asked(w.now, s.Seq, nil, true, true) })
		return
	}
	w.send(func() {
		if h.free == 0 || slices.Contains(not, h.name) {
			w.send(func() { w.table.Asked(w.now, s.Seq, nil, true, false) })
			return
		}
		o := w.offer(h, "")
		w.send(func() {
			if r := w.table.Asked(w.now, s.Seq, o, true, false); r != nil {
				w.take(h, o, r)
			}
		})
	})
}

func (w *world) want(s Step) {
	h := w.pick(s.Region, func(h *modelHost) bool { return s.Host == "" || h.name == s.Host })
	w.after(AnswerTime, func() { w.table.Placed(w.now, s.Seq, "", 0, false) })
	if h == nil {
		w.after(time.Millisecond, func() { w.table.Placed(w.now, s.Seq, "", 0, true) })
		return
	}
	since := s.Request.Began
	w.send(func() {
		h.wants[s.Want] = since
		w.after(time.Minute, func() { delete(h.wants, s.Want) })
		w.send(func() { w.table.Placed(w.now, s.Seq, h.name, len(h.wants), false) })
		w.serve(h)
	})
}

// check checks what must be true at any time.
func (w *world) check() {
	t := w.table
	if len(t.wants) > window {
		w.t.Fatalf("%d wants have no answer", len(t.wants))
	}
	placed := 0
	for _, line := range t.lines {
		if !slices.IsSortedFunc(line, byAge) {
			w.t.Fatal("a line is not in the order of age")
		}
		for _, r := range line {
			for _, in := range r.reaches {
				if len(in.places) > morePlaces {
					w.t.Fatalf("%s has %d places", r.ID, len(in.places))
				}
				var hosts []string
				for _, p := range in.places {
					if p.in != in {
						w.t.Fatal("a place belongs to another request")
					}
					if p.host != "" {
						placed++
						hosts = append(hosts, p.host)
						if t.places[at{p.want, p.host}] != p {
							w.t.Fatal("a place is not found by its host")
						}
					}
				}
				slices.Sort(hosts)
				if len(slices.Compact(hosts)) != len(in.places)-count(in.places) {
					w.t.Fatalf("%s stands twice in one queue", r.ID)
				}
			}
		}
	}
	if placed != len(t.places) {
		w.t.Fatalf("%d places, of which %d are of requests", len(t.places), placed)
	}
}

// checkIdle checks that no slot is free for more than a second while a request could have it.
func (w *world) checkIdle() {
	for _, h := range w.hosts {
		if h.free == 0 {
			h.idle = time.Time{}
		} else if h.idle.IsZero() {
			h.idle = w.now
		}
		if w.calm.IsZero() || h.free == 0 || w.now.Sub(h.idle) < 1500*time.Millisecond {
			continue
		}
		if w.table.avoids(w.now.Add(-2*time.Second), h.name) {
			continue
		}
		for _, r := range w.table.lines["p"] {
			reaches := slices.ContainsFunc(r.reaches, func(in *reach) bool { return in.region == h.region })
			if reaches && r.taking == nil && !slices.Contains(r.Not, h.name) && w.now.Sub(w.calm) > 6*time.Second {
				w.t.Fatalf("%s waits, and %s has had a free slot since %v", r.ID, h.name, w.now.Sub(h.idle))
			}
		}
	}
}

// count returns how many places are only wanted.
func count(places []*place) (n int) {
	for _, p := range places {
		if p.host == "" {
			n++
		}
	}
	return n
}

// run lets the world go on for a time, and returns how many events there were.
func (w *world) run(d time.Duration) (n int) {
	for end := w.now.Add(d); ; n++ {
		steps, again := w.table.Due(w.now)
		w.steps(steps)
		next := end
		if !again.IsZero() && again.Before(next) {
			next = again
		}
		if len(w.events) > 0 && !w.events[0].at.After(next) {
			e := heap.Pop(&w.events).(event)
			w.now = e.at
			e.do()
		} else if w.now = next; next.Equal(end) {
			return n
		}
		if n%64 == 0 {
			w.check()
		}
		w.checkIdle()
	}
}

// steps returns the number of events: a million with LONG=1, otherwise 200,000.
func steps() int {
	if os.Getenv("LONG") != "" {
		return 1_000_000
	}
	return 200_000
}

// Events with faults of the network, of hosts and of the connection: no request takes two offers at once or
// stands twice in a queue, and when the faults are over, all requests are served in the order of their age, none of
// them more than a second after a slot was free.
func TestModel(t *testing.T) {
	t.Parallel()
	events := 0
	for seed := uint64(0); events < steps(); seed++ {
		events += testModel(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func testModel(t *testing.T, seed uint64) (events int) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{t: t, r: r, now: time.Unix(1e9, 0), leases: map[string]string{}, inFlight: map[*Request]bool{},
		faults: r.Float64() * 0.3}
	regions := []string{"near", "far"}[:1+r.IntN(2)]
	var ranks []string
	if r.IntN(2) == 0 {
		ranks = bus.Ranks
	}
	w.table = New(regions, 200*time.Millisecond, ranks, r)
	for n := range 1 + r.IntN(30) {
		h := &modelHost{name: fmt.Sprint("h", n), region: regions[r.IntN(len(regions))], slots: 1 + r.IntN(4),
			wants: map[string]time.Time{}, offers: map[string]time.Time{}}
		h.free = h.slots
		w.hosts = append(w.hosts, h)
	}
	var all []*Request
	for range 20 + r.IntN(400) {
		req := &Request{ID: fmt.Sprint("r", len(all)), Pool: "p", Began: w.now}
		if r.IntN(10) == 0 {
			req.Region = cmp.Or(w.hosts[r.IntN(len(w.hosts))].region, regions[0])
		}
		w.table.Enter(w.now, req)
		all = append(all, req)
		events += w.run(time.Duration(r.IntN(int(20 * time.Millisecond))))
		switch r.IntN(60) {
		case 0:
			w.hosts[r.IntN(len(w.hosts))].broken = true
		case 1:
			w.table.Gone(w.now, w.hosts[r.IntN(len(w.hosts))].name)
		case 2:
			w.table.Down()
			events += w.run(time.Duration(r.IntN(int(3 * time.Second))))
			w.table.Up(w.now)
		case 3:
			gone := all[r.IntN(len(all))]
			w.steps(w.table.Leave(gone))
		case 4:
			h := w.hosts[r.IntN(len(w.hosts))]
			w.table.Load(w.now, h.name, h.region, []string{"p"})
		}
	}
	w.faults, w.calm = 0, w.now
	for _, h := range w.hosts {
		h.broken = false
		w.table.Reached(h.name)
	}
	for _, req := range all {
		req.Not = nil
	}
	for range 600 {
		events += w.run(500 * time.Millisecond)
		if len(w.table.lines) == 0 {
			break
		}
	}
	if n := len(w.table.lines["p"]); n > 0 {
		t.Errorf("%d of %d requests are not served", n, len(all))
	}
	w.run(2 * time.Minute)
	w.check()
	if len(w.table.asks)+len(w.table.wants)+len(w.table.places)+len(w.table.timers) > 0 {
		t.Error("something is left of requests that are over")
	}
	return events
}
