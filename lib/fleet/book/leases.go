package book

import (
	"cmp"
	"slices"
	"time"
)

// Leases are who has which instances of a pool, until when, and who waits for one. Instances have numbers from 0. Its
// zero value has none. Times are those of one clock. T is what a lease is to the keeper of the book.
type Leases[T any] struct {
	Queue
	held    []*Lease[T] // by the number of the instance; nil: it is free
	retired []*Lease[T] // of instances that have been replaced
}

// Lease is a holder's right to an instance.
type Lease[T any] struct {
	Of     T
	number int       // of the instance
	until  time.Time // zero: it ends with its holder only
	rests  time.Time // since when its holder does not use it; zero: it does
	yields time.Time // when another request may have the instance; zero: its holder uses it
	phase  phase
}

type phase int

const (
	ongoing phase = iota
	ceding        // it is about to end for another request
	over          // it has ended, and its instance is not free yet
)

// Hold gives an instance that Take or a request has got to a lease, until a time or, if that is zero, as long as its
// holder wants.
func (s *Leases[T]) Hold(number int, of T, until time.Time) *Lease[T] {
	for len(s.held) <= number {
		s.held = append(s.held, nil)
	}
	l := &Lease[T]{Of: of, number: number, until: until}
	s.held[number] = l
	return l
}

// Release takes an instance away from a lease. Free makes it free.
func (s *Leases[T]) Release(l *Lease[T]) { l.phase = over }

// Free notes that an instance is ready for another lease.
func (s *Leases[T]) Free(l *Lease[T]) {
	if s.held[l.number] == l {
		s.held[l.number] = nil
	}
	s.retired = slices.DeleteFunc(s.retired, func(o *Lease[T]) bool { return o == l })
}

// IsEmpty reports whether no instance is leased.
func (s *Leases[T]) IsEmpty() bool {
	return len(s.retired) == 0 && !slices.ContainsFunc(s.held, func(l *Lease[T]) bool { return l != nil })
}

// Retire notes that another instance takes the place of one, which ends with its lease.
func (s *Leases[T]) Retire(number int) {
	if number < len(s.held) && s.held[number] != nil {
		s.retired = append(s.retired, s.held[number])
		s.held[number] = nil
	}
}

// Extend has a lease last until a time. Its holder uses it again, and it does not end for another request. It reports
// whether that is called off.
func (s *Leases[T]) Extend(l *Lease[T], until time.Time) (calledOff bool) {
	l.until, l.rests, l.yields = until, time.Time{}, time.Time{}
	return s.callOff(l)
}

// Prolong has a lease last until a time, whether or not its holder uses it.
func (s *Leases[T]) Prolong(l *Lease[T], until time.Time) { l.until = until }

// Rest notes that the holder of a lease does not use it. After a while another request may have the instance. Rest
// reports whether the end of the lease for another request is called off.
func (s *Leases[T]) Rest(l *Lease[T], now time.Time, idle time.Duration) (calledOff bool) {
	l.rests, l.yields = now, now.Add(idle)
	return s.callOff(l)
}

func (s *Leases[T]) callOff(l *Lease[T]) bool {
	if l.phase != ceding {
		return false
	}
	l.phase = ongoing
	return true
}

// Postpone has a lease that was about to end for another request go on for a while.
func (s *Leases[T]) Postpone(l *Lease[T], until time.Time) {
	l.yields = until
	s.callOff(l)
}

// GoOn has a lease that was about to end for another request go on: none waits for it any more.
func (s *Leases[T]) GoOn(l *Lease[T]) { s.callOff(l) }

// Resting returns since when the holder of a lease does not use it; the zero time: it does.
func (l *Lease[T]) Resting() time.Time { return l.rests }

// IsCeding reports whether a lease is about to end for another request.
func (l *Lease[T]) IsCeding() bool { return l.phase == ceding }

// Due returns the leases whose time is over, and when it has to be called again; the zero time: this is not known. The
// keeper releases them, or has them last longer.
func (s *Leases[T]) Due(now time.Time) (expired []*Lease[T], again time.Time) {
	soon := func(at time.Time) {
		if !at.IsZero() && at.After(now) && (again.IsZero() || at.Before(again)) {
			again = at
		}
	}
	for _, l := range slices.Concat(s.held, s.retired) {
		if l == nil || l.phase == over {
			continue
		}
		if !l.until.IsZero() && !l.until.After(now) {
			expired = append(expired, l)
			continue
		}
		soon(l.until)
		soon(l.yields)
	}
	return expired, again
}

// Cede returns the leases that end so that requests that wait get their instances: of those that rest, the ones that
// may have ended the longest. It is called with the number of instances, and whether a request gets one when it is
// free.
func (s *Leases[T]) Cede(now time.Time, instances int, comes func(number int) bool) (cede []*Lease[T]) {
	if s.Waiting() == 0 {
		return nil
	}
	var resting []*Lease[T]
	for n := range instances {
		if l := s.at(n); l != nil && l.phase == ongoing && !l.yields.IsZero() && !l.yields.After(now) && comes(n) {
			resting = append(resting, l)
		}
	}
	slices.SortStableFunc(resting, func(a, b *Lease[T]) int {
		return cmp.Or(a.yields.Compare(b.yields), cmp.Compare(a.number, b.number))
	})
	coming := s.coming(instances, nil, comes)
	for _, l := range resting {
		if s.Wants(l.number, coming) {
			coming = append(coming, l.number)
			l.phase = ceding
			cede = append(cede, l)
		}
	}
	return cede
}

// IsWanted reports whether a request still waits that only this lease serves, which is about to end for one.
func (s *Leases[T]) IsWanted(l *Lease[T], instances int, comes func(number int) bool) bool {
	return s.at(l.number) == l && s.Wants(l.number, s.coming(instances, l, comes))
}

// coming returns the instances, other than that of one lease, that requests that wait get soon: they are free, or their
// leases are ending.
func (s *Leases[T]) coming(instances int, but *Lease[T], comes func(number int) bool) (numbers []int) {
	for n := range instances {
		if l := s.at(n); (l == nil || l != but && l.phase != ongoing) && comes(n) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

func (s *Leases[T]) at(number int) *Lease[T] {
	if number >= len(s.held) {
		return nil
	}
	return s.held[number]
}
