package source

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)

func second(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }

// newTable has sessions that need places.
func newTable(most int, keys ...string) *table[string] {
	t := &table[string]{most: most, keep: 5 * time.Second}
	for _, k := range keys {
		t.set(k, rules{place: true})
	}
	return t
}

// dueKeys returns the sessions with which something is to be done.
func dueKeys(p *table[string], now time.Time) (keys []string, next time.Time) {
	all, next := p.due(now)
	for _, d := range all {
		keys = append(keys, d.key)
	}
	return keys, next
}

func TestFirstInFirstOut(t *testing.T) {
	p := newTable(2, "a", "b", "c", "d", "e")
	for _, k := range []string{"a", "b"} {
		if p.begin(k); !p.ready(k) {
			t.Errorf("%s waits for a free place", k)
		}
	}
	for i, k := range []string{"c", "d", "e"} {
		if p.begin(k); p.ready(k) {
			t.Errorf("%s has a third place", k)
		}
		if n, waits := p.ahead(k); n != i || !waits {
			t.Errorf("%d wait before %s, want %d", n, k, i)
		}
	}
	p.remove("b")
	if !p.ready("c") || p.ready("d") {
		t.Error("the first that waited has not got the place")
	}
	p.finish("d", second(1)) // it waits no longer
	p.remove("a")
	if !p.ready("e") || p.waiting() != 0 {
		t.Error("the one after who gave up has not got the place")
	}
}

func TestUnusedPlacesAreVacated(t *testing.T) {
	p := newTable(3, "a", "b", "c", "used")
	for i, k := range []string{"a", "b", "used"} {
		if p.begin(k); k != "used" {
			p.finish(k, second(i))
		}
	}
	if all, next := dueKeys(p, second(60)); all != nil || !next.IsZero() {
		t.Errorf("%v have to leave at %v, but nobody waits", all, next)
	}
	p.begin("c")
	if all, next := dueKeys(p, second(4)); all != nil || next != second(5) {
		t.Errorf("%v have to leave, the next at %v, want a at 5 s", all, next)
	}
	if all, _ := dueKeys(p, second(7)); !slices.Equal(all, []string{"a"}) {
		t.Errorf("%v have to leave for one that waits, want a", all)
	}
	if all, _ := dueKeys(p, second(7)); all != nil {
		t.Errorf("%v have to leave although a does", all)
	}
	if p.begin("a"); p.ready("a") {
		t.Error("a call uses a while its place is vacated")
	}
	p.done("a", restStep, time.Time{})
	if !p.ready("c") {
		t.Error("c has not got the place of a")
	}
	if n, waits := p.ahead("a"); n != 0 || !waits {
		t.Error("a, which has been used meanwhile, does not wait")
	}
	if all, _ := dueKeys(p, second(8)); !slices.Equal(all, []string{"b"}) {
		t.Errorf("%v have to leave for a, want b", all)
	}
	p.done("b", restStep, second(8))
	if all, next := dueKeys(p, second(9)); all != nil || next != second(13) {
		t.Errorf("%v have to leave after b could not, the next at %v, want b at 13 s", all, next)
	}
}

// A session is given up step by step. What keeps it from rest does not keep it for ever; what uses it does.
func TestSteps(t *testing.T) {
	p := &table[string]{}
	p.set("a", rules{rest: 10 * time.Second, end: time.Minute})
	wants := func(now int, step step, next int) {
		t.Helper()
		all, when := p.due(second(now))
		switch {
		case step == noStep && len(all) > 0, step != noStep && (len(all) != 1 || all[0].step != step):
			t.Errorf("at %d s: %v, want step %d", now, all, step)
		case next > 0 && when != second(next), next == 0 && !when.IsZero():
			t.Errorf("at %d s: it looks again at %v, want %d s", now, when, next)
		}
	}
	wants(1000, noStep, 0) // it has never been used
	p.begin("a")
	wants(1000, noStep, 0)
	p.finish("a", second(1000))
	wants(1009, noStep, 1010)
	wants(1010, restStep, 0)
	p.done("a", restStep, second(1010)) // they are busy
	wants(1010, noStep, 1020)
	wants(1020, restStep, 0)
	p.begin("a")
	if p.ready("a") {
		t.Error("a call is on children that are being stopped")
	}
	p.done("a", restStep, time.Time{})
	if !p.ready("a") {
		t.Error("a call waits after its children have been stopped")
	}
	p.finish("a", second(1021))
	wants(1031, restStep, 0)
	p.done("a", restStep, time.Time{})
	wants(1031, noStep, 1081)
	wants(1081, endStep, 0)
	p.done("a", endStep, second(1082)) // it is busy
	wants(1090, noStep, 1142)
	if !p.start("a", endStep) || p.start("a", endStep) || p.start("a", restStep) {
		t.Error("what is being ended is not ended once")
	}
	if p.done("a", restStep, time.Time{}); !p.ending("a") {
		t.Error("it does not end, as a step before has been taken")
	}
	if p.done("a", endStep, time.Time{}); p.knows("a") {
		t.Error("it has ended and is known")
	}
}

// What has nothing left in it ends with its calls.
func TestHurry(t *testing.T) {
	p := &table[string]{}
	p.set("a", rules{})
	p.begin("a")
	p.hurry("a")
	if all, _ := p.due(second(0)); all != nil {
		t.Errorf("%v are due under a call", all)
	}
	p.finish("a", second(1))
	if all, _ := p.due(second(1)); len(all) != 1 || !all[0].hurried || all[0].step != endStep {
		t.Errorf("%v are due, want that it ends", all)
	}
	p.done("a", endStep, second(2))
	if all, _ := p.due(second(1000)); all != nil {
		t.Errorf("%v are due, want that it is over", all)
	}
}

func TestNoLimit(t *testing.T) {
	p := table[int]{}
	for k := range 1000 {
		p.set(k, rules{place: true})
		if p.begin(k); !p.ready(k) {
			t.Fatalf("the user %d waits", k)
		}
		p.finish(k, second(0))
	}
	if !p.start(7, restStep) || p.start(7, restStep) || p.ready(7) {
		t.Error("an unused place can be vacated once")
	}
	p.begin(8)
	if p.start(8, restStep) {
		t.Error("a place that is used can be vacated")
	}
	p.done(7, restStep, time.Time{})
	if p.begin(7); !p.ready(7) {
		t.Error("who has left waits for a place, of which there is no end")
	}
}

// model is what becomes of the sessions 0 to 7, said in another way than the table does: what has happened to each,
// and when.
type model struct {
	calls   [8]int
	known   [8]bool
	busy    [8]step // under way
	used    [8]time.Time
	kept    [8]time.Time // from rest
	awake   [8]bool      // 6 and 7: they need no place
	hurried [8]bool
	seats   []byte
	queue   []byte
	rest    [8]time.Duration
	end     [8]time.Duration
}

const (
	mostSeats = 2
	mostKept  = 5 * time.Second
)

// seat has those that wait take the free places.
func (m *model) seat() {
	for len(m.seats) < mostSeats && len(m.queue) > 0 {
		m.seats, m.queue = append(m.seats, m.queue[0]), m.queue[1:]
	}
}

func (m *model) leave(k byte) {
	is := func(o byte) bool { return o == k }
	m.seats, m.queue = slices.DeleteFunc(m.seats, is), slices.DeleteFunc(m.queue, is)
}

func (m *model) has(k byte) bool { return slices.Contains(m.seats, k) }

// when is when a session's step is due; the zero time: it is not.
func (m *model) when(k byte, s step) time.Time {
	since := m.used[k]
	if m.kept[k].After(since) {
		since = m.kept[k]
	}
	switch {
	case !m.known[k] || m.calls[k] > 0 || m.busy[k] != noStep:
	case s == endStep && m.hurried[k] && !m.used[k].IsZero():
		return m.used[k]
	case m.hurried[k], m.used[k].IsZero():
	case s == restStep && m.has(k) && m.wanted() > 0 && (m.rest[k] == 0 || m.rest[k] > mostKept):
		return since.Add(mostKept)
	case s == restStep && (m.awake[k] || m.has(k)) && m.rest[k] > 0:
		return since.Add(m.rest[k])
	case s == endStep && m.end[k] > 0:
		return m.used[k].Add(m.end[k])
	}
	return time.Time{}
}

// wanted is how many places are waited for that nobody is about to leave.
func (m *model) wanted() int {
	n := len(m.queue)
	for _, k := range m.seats {
		if m.busy[k] >= restStep {
			n--
		}
	}
	return n
}

// check checks what is said to be due, one after the other, and that nothing else is.
func (m *model) check(t *testing.T, now time.Time, all []due[byte], next time.Time) {
	for i := 0; ; i++ {
		var soonest time.Time
		for k := range byte(8) {
			for s := restStep; s <= endStep; s++ {
				when := m.when(k, s)
				if when.IsZero() {
					continue
				}
				if soonest.IsZero() || when.Before(soonest) {
					soonest = when
				}
			}
		}
		if soonest.IsZero() || soonest.After(now) {
			if i < len(all) || next != soonest {
				t.Fatalf("%v are due, the next at %v, want %d of them, the next at %v", all, next, i, soonest)
			}
			return
		}
		if i == len(all) {
			t.Fatalf("only %v are due, another one is since %v", all, soonest)
		}
		d := all[i]
		if m.when(d.key, d.step) != soonest || d.unused != now.Sub(m.used[d.key]) || d.hurried != m.hurried[d.key] {
			t.Fatalf("%v is due as number %d, want one that is since %v", d, i, soonest)
		}
		m.busy[d.key], m.hurried[d.key] = d.step, false
	}
}

// Whatever happens: no step is taken under a call but an end that was asked for, no call uses a session during a step,
// each step is taken when its time has come, there are never more places than there may be, none is free while
// somebody waits, places are given in the order of arrival, and none is taken from who uses it.
func FuzzTable(f *testing.F) {
	f.Add([]byte("b0b1b2b3f0t6d0b0t9d1b2f3t9t9t9d0d1d2"))
	f.Add([]byte("b0b1f0f1b2b3t9b0b1d0k1b4f4f2t9"))
	long := make([]byte, 200_000)
	for i := range long {
		long[i] = "bfbftdkrveh01234567"[rand.IntN(19)]
	}
	f.Add(long)
	f.Fuzz(func(t *testing.T, ops []byte) {
		p, m := table[byte]{most: mostSeats, keep: 5 * time.Second}, &model{}
		seconds := 0
		for i := 0; i+1 < len(ops); i += 2 {
			k := ops[i+1] % 8
			if seconds++; !m.known[k] {
				m.known[k], m.rest[k] = true, time.Duration(k%3)*4*time.Second
				m.end[k] = time.Duration(k%4) * 7 * time.Second
				p.set(k, rules{rest: m.rest[k], end: m.end[k], place: k < 6})
			}
			now := second(seconds)
			switch ops[i] {
			case 'b':
				m.calls[k]++
				m.awake[k] = k >= 6
				if p.begin(k); k < 6 && !m.has(k) && !slices.Contains(m.queue, k) {
					m.queue = append(m.queue, k)
				}
			case 'f':
				if m.calls[k] == 0 {
					continue
				}
				p.finish(k, now)
				if m.calls[k]--; m.calls[k] == 0 {
					m.used[k] = now
					m.queue = slices.DeleteFunc(m.queue, func(o byte) bool { return o == k })
				}
			case 't':
				seconds += int(k)
				all, next := p.due(second(seconds))
				m.check(t, second(seconds), all, next)
			case 'd', 'k':
				s := m.busy[k]
				if s == noStep {
					p.done(k, endStep, time.Time{}) // of a step that is over
					continue
				}
				kept := time.Time{}
				if m.busy[k] = noStep; ops[i] == 'k' {
					kept = now
				}
				p.done(k, s, kept)
				switch {
				case s == endStep && ops[i] == 'k':
					m.used[k] = now
				case ops[i] == 'k':
					m.kept[k] = now
				case s == restStep && k >= 6:
					m.awake[k] = m.calls[k] > 0
				case s == restStep:
					if m.leave(k); m.calls[k] > 0 {
						m.queue = append(m.queue, k)
					}
				default:
					m.forget(k)
				}
			case 'r':
				p.remove(k)
				m.forget(k)
			case 'v':
				free := m.busy[k] == noStep && m.calls[k] == 0 && (m.has(k) || m.awake[k])
				if p.start(k, restStep) != free {
					t.Fatalf("the place of %d can be vacated: want %v", k, free)
				}
				if free {
					m.busy[k] = restStep
				}
			case 'e':
				if p.start(k, endStep) != (m.busy[k] != endStep) {
					t.Fatalf("%d, with which step %d is under way, can be ended or not", k, m.busy[k])
				}
				m.busy[k] = endStep
			case 'h':
				p.hurry(k)
				m.hurried[k] = true
			}
			m.seat()
			if !slices.Equal(m.queue, p.queue) || len(m.seats) != p.taken {
				t.Fatalf("%v wait, want %v; %d places are taken, want %v", p.queue, m.queue, p.taken, m.seats)
			}
			for k := range byte(8) {
				ready := m.known[k] && m.busy[k] == noStep && (m.awake[k] || m.has(k))
				if p.ready(k) != ready || p.knows(k) != m.known[k] || p.calls(k) != m.calls[k] ||
					p.ending(k) != (!m.known[k] || m.busy[k] == endStep) {
					t.Fatalf("%d: ready %v, want %v; known %v, %d calls, ending %v, the model is %+v", k, p.ready(k),
						ready, p.knows(k), p.calls(k), p.ending(k), m)
				}
			}
		}
	})
}

func (m *model) forget(k byte) {
	m.leave(k)
	m.known[k], m.calls[k], m.busy[k], m.awake[k], m.hurried[k] = false, 0, noStep, false, false
	m.used[k], m.kept[k] = time.Time{}, time.Time{}
}
