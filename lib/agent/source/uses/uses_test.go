package uses

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// newTable has sessions that need places.
func newTable(most int, keys ...string) *Table[string] {
	t := &Table[string]{Max: most, Keep: 5 * time.Second}
	for _, k := range keys {
		t.Set(k, Rules{Place: true})
	}
	return t
}

// due are the sessions with which something is to be done.
func due(p *Table[string], now time.Time) (keys []string, next time.Time) {
	all, next := p.Due(now)
	for _, d := range all {
		keys = append(keys, d.Key)
	}
	return keys, next
}

func TestFirstInFirstOut(t *testing.T) {
	p := newTable(2, "a", "b", "c", "d", "e")
	for _, k := range []string{"a", "b"} {
		if p.Begin(k); !p.Ready(k) {
			t.Errorf("%s waits for a free place", k)
		}
	}
	for i, k := range []string{"c", "d", "e"} {
		if p.Begin(k); p.Ready(k) {
			t.Errorf("%s has a third place", k)
		}
		if n, waits := p.Ahead(k); n != i || !waits {
			t.Errorf("%d wait before %s, want %d", n, k, i)
		}
	}
	p.Remove("b")
	if !p.Ready("c") || p.Ready("d") {
		t.Error("the first that waited has not got the place")
	}
	p.Finish("d", at(1)) // it waits no longer
	p.Remove("a")
	if !p.Ready("e") || p.Waiting() != 0 {
		t.Error("the one after who gave up has not got the place")
	}
}

func TestUnusedPlacesAreVacated(t *testing.T) {
	p := newTable(3, "a", "b", "c", "used")
	for i, k := range []string{"a", "b", "used"} {
		if p.Begin(k); k != "used" {
			p.Finish(k, at(i))
		}
	}
	if all, next := due(p, at(60)); all != nil || !next.IsZero() {
		t.Errorf("%v have to leave at %v, but nobody waits", all, next)
	}
	p.Begin("c")
	if all, next := due(p, at(4)); all != nil || next != at(5) {
		t.Errorf("%v have to leave, the next at %v, want a at 5 s", all, next)
	}
	if all, _ := due(p, at(7)); !slices.Equal(all, []string{"a"}) {
		t.Errorf("%v have to leave for one that waits, want a", all)
	}
	if all, _ := due(p, at(7)); all != nil {
		t.Errorf("%v have to leave although a does", all)
	}
	if p.Begin("a"); p.Ready("a") {
		t.Error("a call uses a while its place is vacated")
	}
	p.Done("a", Rest, time.Time{})
	if !p.Ready("c") {
		t.Error("c has not got the place of a")
	}
	if n, waits := p.Ahead("a"); n != 0 || !waits {
		t.Error("a, which has been used meanwhile, does not wait")
	}
	if all, _ := due(p, at(8)); !slices.Equal(all, []string{"b"}) {
		t.Errorf("%v have to leave for a, want b", all)
	}
	p.Done("b", Rest, at(8))
	if all, next := due(p, at(9)); all != nil || next != at(13) {
		t.Errorf("%v have to leave after b could not, the next at %v, want b at 13 s", all, next)
	}
}

// A session is given up step by step. What keeps it from rest does not keep it for ever; what uses it does.
func TestSteps(t *testing.T) {
	p := &Table[string]{}
	p.Set("a", Rules{Rest: 10 * time.Second, End: time.Minute})
	wants := func(now int, step Step, next int) {
		t.Helper()
		all, when := p.Due(at(now))
		switch {
		case step == None && len(all) > 0, step != None && (len(all) != 1 || all[0].Step != step):
			t.Errorf("at %d s: %v, want step %d", now, all, step)
		case next > 0 && when != at(next), next == 0 && !when.IsZero():
			t.Errorf("at %d s: it looks again at %v, want %d s", now, when, next)
		}
	}
	wants(1000, None, 0) // it has never been used
	p.Begin("a")
	wants(1000, None, 0)
	p.Finish("a", at(1000))
	wants(1009, None, 1010)
	wants(1010, Rest, 0)
	p.Done("a", Rest, at(1010)) // they are busy
	wants(1010, None, 1020)
	wants(1020, Rest, 0)
	p.Begin("a")
	if p.Ready("a") {
		t.Error("a call is on children that are being stopped")
	}
	p.Done("a", Rest, time.Time{})
	if !p.Ready("a") {
		t.Error("a call waits after its children have been stopped")
	}
	p.Finish("a", at(1021))
	wants(1031, Rest, 0)
	p.Done("a", Rest, time.Time{})
	wants(1031, None, 1081)
	wants(1081, End, 0)
	p.Done("a", End, at(1082)) // it is busy
	wants(1090, None, 1142)
	if !p.Start("a", End) || p.Start("a", End) || p.Start("a", Rest) {
		t.Error("what is being ended is not ended once")
	}
	if p.Done("a", Rest, time.Time{}); !p.Ending("a") {
		t.Error("it does not end, as a step before has been taken")
	}
	if p.Done("a", End, time.Time{}); p.Knows("a") {
		t.Error("it has ended and is known")
	}
}

// What has nothing left in it ends with its calls.
func TestHurry(t *testing.T) {
	p := &Table[string]{}
	p.Set("a", Rules{})
	p.Begin("a")
	p.Hurry("a")
	if all, _ := p.Due(at(0)); all != nil {
		t.Errorf("%v are due under a call", all)
	}
	p.Finish("a", at(1))
	if all, _ := p.Due(at(1)); len(all) != 1 || !all[0].Hurried || all[0].Step != End {
		t.Errorf("%v are due, want that it ends", all)
	}
	p.Done("a", End, at(2))
	if all, _ := p.Due(at(1000)); all != nil {
		t.Errorf("%v are due, want that it is over", all)
	}
}

func TestNoLimit(t *testing.T) {
	p := Table[int]{}
	for k := range 1000 {
		p.Set(k, Rules{Place: true})
		if p.Begin(k); !p.Ready(k) {
			t.Fatalf("the user %d waits", k)
		}
		p.Finish(k, at(0))
	}
	if !p.Start(7, Rest) || p.Start(7, Rest) || p.Ready(7) {
		t.Error("an unused place can be vacated once")
	}
	p.Begin(8)
	if p.Start(8, Rest) {
		t.Error("a place that is used can be vacated")
	}
	p.Done(7, Rest, time.Time{})
	if p.Begin(7); !p.Ready(7) {
		t.Error("who has left waits for a place, of which there is no end")
	}
}

// model is what becomes of the sessions 0 to 7, said in another way than the table does: what has happened to each,
// and when.
type model struct {
	calls   [8]int
	known   [8]bool
	busy    [8]Step // under way
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
func (m *model) when(k byte, s Step) time.Time {
	since := m.used[k]
	if m.kept[k].After(since) {
		since = m.kept[k]
	}
	switch {
	case !m.known[k] || m.calls[k] > 0 || m.busy[k] != None:
	case s == End && m.hurried[k] && !m.used[k].IsZero():
		return m.used[k]
	case m.hurried[k], m.used[k].IsZero():
	case s == Rest && m.has(k) && m.wanted() > 0 && (m.rest[k] == 0 || m.rest[k] > mostKept):
		return since.Add(mostKept)
	case s == Rest && (m.awake[k] || m.has(k)) && m.rest[k] > 0:
		return since.Add(m.rest[k])
	case s == End && m.end[k] > 0:
		return m.used[k].Add(m.end[k])
	}
	return time.Time{}
}

// wanted is how many places are waited for that nobody is about to leave.
func (m *model) wanted() int {
	n := len(m.queue)
	for _, k := range m.seats {
		if m.busy[k] >= Rest {
			n--
		}
	}
	return n
}

// check checks what is said to be due, one after the other, and that nothing else is.
func (m *model) check(t *testing.T, now time.Time, all []Due[byte], next time.Time) {
	for i := 0; ; i++ {
		var soonest time.Time
		for k := range byte(8) {
			for s := Rest; s <= End; s++ {
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
		if m.when(d.Key, d.Step) != soonest || d.Unused != now.Sub(m.used[d.Key]) || d.Hurried != m.hurried[d.Key] {
			t.Fatalf("%v is due as number %d, want one that is since %v", d, i, soonest)
		}
		m.busy[d.Key], m.hurried[d.Key] = d.Step, false
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
		p, m := Table[byte]{Max: mostSeats, Keep: 5 * time.Second}, &model{}
		seconds := 0
		for i := 0; i+1 < len(ops); i += 2 {
			k := ops[i+1] % 8
			if seconds++; !m.known[k] {
				m.known[k], m.rest[k] = true, time.Duration(k%3)*4*time.Second
				m.end[k] = time.Duration(k%4) * 7 * time.Second
				p.Set(k, Rules{Rest: m.rest[k], End: m.end[k], Place: k < 6})
			}
			now := at(seconds)
			switch ops[i] {
			case 'b':
				m.calls[k]++
				m.awake[k] = k >= 6
				if p.Begin(k); k < 6 && !m.has(k) && !slices.Contains(m.queue, k) {
					m.queue = append(m.queue, k)
				}
			case 'f':
				if m.calls[k] == 0 {
					continue
				}
				p.Finish(k, now)
				if m.calls[k]--; m.calls[k] == 0 {
					m.used[k] = now
					m.queue = slices.DeleteFunc(m.queue, func(o byte) bool { return o == k })
				}
			case 't':
				seconds += int(k)
				all, next := p.Due(at(seconds))
				m.check(t, at(seconds), all, next)
			case 'd', 'k':
				s := m.busy[k]
				if s == None {
					p.Done(k, End, time.Time{}) // of a step that is over
					continue
				}
				kept := time.Time{}
				if m.busy[k] = None; ops[i] == 'k' {
					kept = now
				}
				p.Done(k, s, kept)
				switch {
				case s == End && ops[i] == 'k':
					m.used[k] = now
				case ops[i] == 'k':
					m.kept[k] = now
				case s == Rest && k >= 6:
					m.awake[k] = m.calls[k] > 0
				case s == Rest:
					if m.leave(k); m.calls[k] > 0 {
						m.queue = append(m.queue, k)
					}
				default:
					m.forget(k)
				}
			case 'r':
				p.Remove(k)
				m.forget(k)
			case 'v':
				free := m.busy[k] == None && m.calls[k] == 0 && (m.has(k) || m.awake[k])
				if p.Start(k, Rest) != free {
					t.Fatalf("the place of %d can be vacated: want %v", k, free)
				}
				if free {
					m.busy[k] = Rest
				}
			case 'e':
				if p.Start(k, End) != (m.busy[k] != End) {
					t.Fatalf("%d, with which step %d is under way, can be ended or not", k, m.busy[k])
				}
				m.busy[k] = End
			case 'h':
				p.Hurry(k)
				m.hurried[k] = true
			}
			m.seat()
			if !slices.Equal(m.queue, p.queue) || len(m.seats) != p.taken {
				t.Fatalf("%v wait, want %v; %d places are taken, want %v", p.queue, m.queue, p.taken, m.seats)
			}
			for k := range byte(8) {
				ready := m.known[k] && m.busy[k] == None && (m.awake[k] || m.has(k))
				if p.Ready(k) != ready || p.Knows(k) != m.known[k] || p.Calls(k) != m.calls[k] ||
					p.Ending(k) != (!m.known[k] || m.busy[k] == End) {
					t.Fatalf("%d: ready %v, want %v; known %v, %d calls, ending %v, the model is %+v", k, p.Ready(k),
						ready, p.Knows(k), p.Calls(k), p.Ending(k), m)
				}
			}
		}
	})
}

func (m *model) forget(k byte) {
	m.leave(k)
	m.known[k], m.calls[k], m.busy[k], m.awake[k], m.hurried[k] = false, 0, None, false, false
	m.used[k], m.kept[k] = time.Time{}, time.Time{}
}
