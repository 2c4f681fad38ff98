package book

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// leaseModel says of one lease what a person would.
type leaseModel struct {
	number       int
	until        time.Time // zero: for ever
	rests        time.Time // zero: it is used
	yields       time.Time // zero: the same
	ceding, over bool
	retired      bool
}

// office is the leases of a pool, and what a model says of them.
type office struct {
	t       *testing.T
	leases  Leases[int]
	now     time.Time
	all     map[*Lease[int]]*leaseModel
	waiting []want
	up      [instances]bool // which instances requests may get
	next    int
}

const instances = 4

func newOffice(t *testing.T) *office {
	o := &office{t: t, now: time.Unix(1000, 0), all: map[*Lease[int]]*leaseModel{}}
	for n := range instances {
		o.up[n] = true
		o.leases.Put(n)
	}
	return o
}

// at returns the lease of an instance, also one that has ended and is not free.
func (o *office) at(number int) (*Lease[int], *leaseModel) {
	for l, m := range o.all {
		if m.number == number && !m.retired {
			return l, m
		}
	}
	return nil, nil
}

// hold gives an instance to a new lease.
func (o *office) hold(number int) {
	if l, _ := o.at(number); l != nil {
		o.t.Fatalf("instance %d has two leases", number)
	}
	m := &leaseModel{number: number}
	if o.next++; o.next%5 > 0 {
		m.until = o.now.Add(time.Duration(o.next%7+1) * 10 * time.Second)
	}
	o.all[o.leases.Hold(number, o.next, m.until)] = m
}

// free frees the instance of a lease that has ended.
func (o *office) free(l *Lease[int], m *leaseModel) {
	o.leases.Free(l)
	delete(o.all, l)
	if !m.retired && o.up[m.number] {
		o.leases.Put(m.number)
	}
}

// request asks for an instance.
func (o *office) request(n int) {
	if got, ok := o.leases.Take(n); ok {
		o.hold(got)
		return
	}
	id := o.next*1000 + len(o.waiting)
	o.leases.Wait(n, 5, time.Time{}, time.Time{}, func(got int, err error) {
		o.waiting = slices.DeleteFunc(o.waiting, func(w want) bool { return w.id == id })
		o.hold(got)
	})
	if o.leases.Waiting() > len(o.waiting) {
		o.waiting = append(o.waiting, want{id: id, n: n})
	}
}

// do does what two bytes say.
func (o *office) do(what, who byte) {
	number := int(who) % instances
	l, m := o.at(number)
	switch what % 12 {
	case 0, 1:
		o.request(Any)
	case 2:
		o.request(number)
	case 3, 4:
		if l != nil && !m.over {
			if off := o.leases.Rest(l, o.now, 20*time.Second); off != m.ceding {
				o.t.Fatalf("rest calls off %v, want %v", off, m.ceding)
			}
			m.rests, m.yields, m.ceding = o.now, o.now.Add(20*time.Second), false
		}
	case 5:
		if l != nil && !m.over {
			until := o.now.Add(time.Minute)
			if off := o.leases.Extend(l, until); off != m.ceding {
				o.t.Fatalf("renewal calls off %v, want %v", off, m.ceding)
			}
			m.until, m.rests, m.yields, m.ceding = until, time.Time{}, time.Time{}, false
		}
	case 6:
		if l != nil && !m.over {
			o.leases.Release(l)
			m.over, m.ceding = true, false
		}
	case 7:
		if l != nil && m.over {
			o.free(l, m)
		}
		for l, m := range o.all {
			if m.retired && m.over {
				o.free(l, m)
			}
		}
	case 8:
		o.up[number] = !o.up[number]
		if l == nil && o.up[number] {
			o.leases.Put(number)
		} else if !o.up[number] {
			o.leases.Remove(number)
		}
	case 9:
		if l != nil && who > 200 {
			o.leases.Retire(number)
			m.retired = true
			if o.up[number] {
				o.leases.Put(number)
			}
		}
	case 10:
		for l, m := range o.all {
			if m.ceding && who > 128 {
				if wanted := o.leases.IsWanted(l, instances, o.comes); wanted && m.retired {
					o.t.Fatal("an instance that has been replaced is wanted")
				} else if wanted {
					o.leases.Release(l)
					m.over = true
				} else {
					o.leases.GoOn(l)
				}
				m.ceding = false
			} else if m.ceding {
				m.yields, m.ceding = o.now.Add(5*time.Second), false
				o.leases.Postpone(l, m.yields)
			}
		}
	default:
		o.now = o.now.Add(time.Duration(who%8) * 3 * time.Second)
	}
}

func (o *office) comes(number int) bool { return o.up[number] }

// check compares what is due, and who gives way, with the model.
func (o *office) check() {
	expired, again := o.leases.Due(o.now)
	var soonest time.Time
	for l, m := range o.all {
		if m.over {
			continue
		}
		if want := !m.until.IsZero() && !m.until.After(o.now); slices.Contains(expired, l) != want {
			o.t.Fatalf("%+v has expired: %v", m, !want)
		} else if want {
			o.leases.Release(l)
			m.over, m.ceding = true, false
			continue
		}
		for _, at := range []time.Time{m.until, m.yields} {
			if at.After(o.now) && (soonest.IsZero() || at.Before(soonest)) {
				soonest = at
			}
		}
		if !l.Resting().Equal(m.rests) || l.IsCeding() != m.ceding {
			o.t.Fatalf("%+v rests since %v, is ceding: %v", m, l.Resting(), l.IsCeding())
		}
	}
	if !again.Equal(soonest) {
		o.t.Fatalf("something is due at %v, want %v", again, soonest)
	}
	if o.leases.IsEmpty() != (len(o.all) == 0) {
		o.t.Fatalf("%d leases, empty: %v", len(o.all), o.leases.IsEmpty())
	}
	o.cede()
}

// cede has leases give way, and checks that none does in vain.
func (o *office) cede() {
	could := func(m *leaseModel) bool {
		return !m.over && !m.retired && !m.ceding && !m.yields.IsZero() && !m.yields.After(o.now) && o.up[m.number]
	}
	coming := 0
	for n := range instances {
		if l, m := o.at(n); o.up[n] && (l == nil || m.over || m.ceding) {
			coming++
		}
	}
	gave := o.leases.Cede(o.now, instances, o.comes)
	if len(gave) > max(0, len(o.waiting)) {
		o.t.Fatalf("%d leases end for %d requests", len(gave), len(o.waiting))
	}
	for _, l := range gave {
		m := o.all[l]
		if !could(m) {
			o.t.Fatalf("%+v ends for a request", m)
		}
		m.ceding = true
	}
	for l, m := range o.all {
		if !could(m) || slices.Contains(gave, l) {
			continue
		}
		for _, w := range o.waiting {
			if w.n == m.number {
				o.t.Fatalf("%+v rests, and a request waits for its instance", m)
			}
		}
		for _, g := range gave {
			named := slices.ContainsFunc(o.waiting, func(w want) bool { return w.n == o.all[g].number })
			if !named && o.all[g].yields.After(m.yields) {
				o.t.Fatalf("%+v ends before %+v, which may have ended longer", o.all[g], m)
			}
		}
	}
	if anybody := slices.ContainsFunc(o.waiting, func(w want) bool { return w.n == Any }); anybody && coming == 0 &&
		len(gave) == 0 {
		for _, m := range o.all {
			if could(m) {
				o.t.Fatalf("a request waits, nothing comes, and %+v rests", m)
			}
		}
	}
}

// FuzzLeases does what the bytes say: any order of requests, ends, rests and time.
func FuzzLeases(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 3, 1, 11, 7, 0, 0, 10, 200, 7, 1})
	f.Fuzz(func(t *testing.T, ops []byte) {
		o := newOffice(t)
		for i := 0; i+1 < len(ops); i += 2 {
			o.do(ops[i], ops[i+1])
			o.check()
		}
	})
}

// seeds is the number of random runs of 10,000 steps.
func seeds() uint64 {
	if os.Getenv("LONG") != "" {
		return 100
	}
	return 20
}

// TestLeasesAgainstModel takes random steps: a million with LONG=1, otherwise 200,000.
func TestLeasesAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range seeds() {
		o, random := newOffice(t), rand.New(rand.NewPCG(seed, 0))
		for range 10_000 {
			o.do(byte(random.UintN(256)), byte(random.UintN(256)))
			o.check()
		}
	}
}

func BenchmarkHoldRelease(b *testing.B) {
	s, now := Leases[int]{}, time.Unix(1000, 0)
	for n := range 10_000 {
		s.Put(n)
	}
	for b.Loop() {
		n, _ := s.Take(Any)
		l := s.Hold(n, 0, now)
		s.Release(l)
		s.Free(l)
		s.Put(n)
	}
}
