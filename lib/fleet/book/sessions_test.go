package book

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// sessionModel says of a session what a person would: who uses it, and since when nobody does.
type sessionModel struct {
	state             State
	users             int
	left, spoke, idle time.Time // idle: since when it could be hibernated, but for its use
	visited           bool
	person            bool // has control of it
}

// policy is the one of the tests, with bounds that are soon met.
var policy = Policy{Grace: 10 * time.Second, Idle: time.Minute, Hibernate: 20 * time.Second, Max: 3, MaxUsers: 3}

// kinds are the sessions of the tests: each entry has the traits of one.
var kinds = []struct {
	Key
	Traits
}{
	{Key: Key{Name: "named"}},
	{Key: Key{Name: "profile"}, Traits: Traits{Profile: true}},
	{Key: Key{Name: "held"}, Traits: Traits{Held: true}},
	{Key: Key{Name: "lease"}, Traits: Traits{Held: true, Lasting: true}},
	{Key: Key{Name: "anonymous", Kind: Anonymous}},
	{Key: Key{Name: "single", Kind: Single}},
}

// world is a table and what a model says of it.
type world struct {
	t      *testing.T
	table  Table[int]
	now    time.Time
	models map[*Session[int]]*sessionModel
}

// do does what a byte says of one of the sessions.
func (w *world) do(op byte) {
	kind := kinds[int(op)%len(kinds)]
	e := w.table.Get(kind.Key)
	m := w.models[e]
	awake := 0
	for _, e := range w.table.sessions {
		if w.models[e].state != Asleep {
			awake++
		}
	}
	full := awake >= policy.Max
	switch what := int(op) / len(kinds); {
	case e == nil && what < 20:
		e = NewSession(kind.Key, kind.Traits, 0)
		m = &sessionModel{state: e.state}
		if err := w.table.Add(e); (err != nil) != (full && e.state == Creating) {
			w.t.Fatalf("%d are awake: %v", awake, err)
		} else if err != nil {
			return
		}
		w.models[e] = m
		w.enter(e, m)
	case what < 10 && e != nil:
		w.enter(e, m)
	case what < 20 && e != nil && m.state == Asleep:
		if err := w.table.Wake(e); errors.Is(err, ErrFull) != full {
			w.t.Fatalf("%d are awake: %v", awake, err)
		} else if err == nil {
			m.state = Waking
		}
	case what < 26 && e != nil && (m.state == Creating || m.state == Waking):
		m.state, m.spoke = Ready, w.now
		w.table.Opened(e, func() time.Time { return m.spoke })
	case what == 26 && e != nil && (m.state == Creating || m.state == Waking):
		if dropped := w.table.Failed(e); dropped != (m.state == Creating) {
			w.t.Fatalf("the failed opening of %v has dropped it: %v", e.Key, dropped)
		}
		m.state = Asleep
	case what < 30 && e != nil && (m.state == Ready || m.state == Saving):
		m.spoke = w.now
	case what < 36 && e != nil && m.users > 0:
		m.users--
		m.left = w.now
		want := m.users == 0 && (m.state == Creating || m.state == Waking && e.Lasting)
		if got := w.table.Leave(e, w.now); got != want {
			w.t.Fatalf("the last user has left %v: called off %v, want %v", e.Key, got, want)
		} else if got && m.state == Creating {
			w.table.Drop(e)
		} else if got {
			w.table.Sleep(e, time.Time{})
			m.state = Asleep
		}
	case what < 39 && e != nil && m.state == Saving:
		ok := what != 36
		want := ok && m.users == 0 && !m.visited // a person has visited, too
		if got := w.table.Saved(e, ok, w.now); got != want {
			w.t.Fatalf("%v is hibernated: %v, want %v", e.Key, got, want)
		}
		if m.state = Asleep; !want {
			m.state, m.idle = Ready, w.now
		}
	case what == 39 && e != nil && m.person:
		w.table.GiveBack(e, w.now)
		m.person, m.left = false, w.now
	case what == 39 && e != nil && (m.state == Ready || m.state == Saving):
		w.table.Take(e)
		m.person, m.visited = true, true
	case what >= 40:
		w.now = w.now.Add(time.Duration(op%7) * 5 * time.Second)
	}
}

func (w *world) enter(e *Session[int], m *sessionModel) {
	err := w.table.Enter(e)
	if errors.Is(err, ErrUsers) != (m.users == policy.MaxUsers) {
		w.t.Fatalf("%d users of %v: %v", m.users, e.Key, err)
	}
	if err == nil {
		m.users++
		m.visited = true
	}
}

// isOver reports whether a session has to end.
func (w *world) isOver(e *Session[int], m *sessionModel) bool {
	switch {
	case m.state == Creating || e.Held:
		return false
	case e.Kind == Named:
		return w.now.Sub(m.spoke) >= policy.Idle
	case e.Kind == Anonymous:
		return m.users == 0 && !m.person && w.now.Sub(m.left) >= policy.Grace
	}
	return m.users == 0 && !m.person
}

// isDrowsy reports whether a session is to be hibernated.
func (w *world) isDrowsy(e *Session[int], m *sessionModel) bool {
	return m.state == Ready && e.Kind == Named && !e.Profile && m.users == 0 && !m.person &&
		w.now.Sub(m.left) >= Settle &&
		w.now.Sub(m.spoke) >= policy.Hibernate && w.now.Sub(m.idle) >= policy.Hibernate
}

// check compares what is due with the model, and asks again just before the next time.
func (w *world) check() {
	for range 2 {
		before := map[*Session[int]]bool{}
		for _, e := range w.table.sessions {
			before[e] = true
		}
		over, drowsy, again := w.table.Due(w.now)
		for e := range before {
			m := w.models[e]
			if got, want := slices.Contains(over, e), w.isOver(e, m); got != want || w.table.Has(e) == got {
				w.t.Fatalf("%v has ended: %v, want %v: %+v", e.Key, got, want, m)
			}
			if got, want := slices.Contains(drowsy, e), !w.isOver(e, m) && w.isDrowsy(e, m); got != want {
				w.t.Fatalf("%v is hibernated: %v, want %v: %+v", e.Key, got, want, m)
			} else if got {
				m.state, m.visited = Saving, false
			}
			if e.State() != m.state || e.users != m.users || e.IsTaken() != m.person || e.IsVisited() != m.visited {
				w.t.Fatalf("%v is %v with %d users, want %v with %d", e.Key, e.state, e.users, m.state, m.users)
			}
		}
		if again.IsZero() {
			break
		}
		if !again.After(w.now) {
			w.t.Fatal("the next time has passed")
		}
		soon := w.now
		w.now = again.Add(-1)
		for _, e := range w.table.sessions {
			if m := w.models[e]; w.isOver(e, m) || w.isDrowsy(e, m) {
				w.t.Fatalf("%v is due before %v", e.Key, again)
			}
		}
		w.now = soon
	}
}

func newWorld(t *testing.T) *world {
	return &world{t: t, now: time.Unix(1000, 0), models: map[*Session[int]]*sessionModel{},
		table: Table[int]{Policy: policy}}
}

// FuzzTable does what the bytes say: any order of users, openings, traffic and time. A
// session is there as long as somebody may rely on it, and no longer.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 120, 190, 240, 241, 242, 243, 216, 0, 60})
	f.Fuzz(func(t *testing.T, ops []byte) {
		w := newWorld(t)
		for _, op := range ops {
			w.do(op)
			w.check()
		}
	})
}

// TestTableAgainstModel takes random steps: a million with LONG=1, otherwise 200,000.
func TestTableAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range seeds() {
		w, random := newWorld(t), rand.New(rand.NewPCG(seed, 0))
		for range 10_000 {
			w.do(byte(random.UintN(256)))
			w.check()
		}
	}
}
