package book

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQueueOrder(t *testing.T) {
	q := &Queue{}
	for n := range 3 {
		q.Put(n)
	}
	take := func(n int) int {
		t.Helper()
		got, ok := q.Take(n)
		if !ok {
			t.Fatalf("%d is not free", n)
		}
		return got
	}
	if a, b := take(Any), take(2); a != 0 || b != 2 {
		t.Error(a, b)
	}
	q.Put(2)
	q.Put(0)
	q.Put(0) // it is free already
	if a, b, c := take(Any), take(Any), take(Any); a != 1 || b != 2 || c != 0 {
		t.Error("the one that came back earliest is not first", a, b, c)
	}
	if n, ok := q.Take(Any); ok {
		t.Error(n)
	}
	if _, err := q.Wait(1, 0, time.Time{}, time.Time{}, nil); err != ErrQueueFull {
		t.Error(err)
	}
	q.Put(1)
	if !q.Remove(1) || q.Remove(1) || q.Remove(7) {
		t.Error("Remove")
	}
	if free, waiting := q.Len(); free != 0 || waiting != 0 {
		t.Error(free, waiting)
	}
}

func TestQueueFail(t *testing.T) {
	q := &Queue{}
	gone, got := errors.New("gone"), map[int]error{}
	for i, n := range []int{Any, 0, Any, 5} {
		q.Wait(n, 9, time.Time{}, time.Time{}, func(_ int, err error) { got[i] = err })
	}
	q.FailFrom(3, gone)
	if len(got) != 1 || got[3] != gone {
		t.Error(got)
	}
	q.Fail(gone)
	if len(got) != 4 || q.Waiting() != 0 {
		t.Error(got, q.Waiting())
	}
}

func TestQueueFailBefore(t *testing.T) {
	q := &Queue{}
	late, got := errors.New("late"), map[int]error{}
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	for i, w := range []struct {
		n     int
		until int64
	}{{Any, 5}, {Any, 10}, {0, 5}, {Any, 3}, {0, 20}, {1, 1}} {
		q.Wait(w.n, 9, time.Time{}, at(w.until), func(_ int, err error) { got[i] = err })
	}
	q.FailBefore(Any, at(10), late)
	if len(got) != 2 || got[0] != late || got[3] != late {
		t.Error(got)
	}
	q.FailBefore(0, at(100), late)
	if len(got) != 4 || got[2] != late || got[4] != late || q.Waiting() != 2 {
		t.Error(got, q.Waiting())
	}
	q.Put(0)
	q.Put(1)
	if err, served := got[1]; !served || err != nil || q.Waiting() != 0 {
		t.Error(got, q.Waiting())
	}
}

// queueModel is the queue in its simplest form: two lists.
type queueModel struct {
	free    []int
	waiting []want
}

type want struct {
	id, n int
	began time.Time
}

func (m *queueModel) take(n int) (slot int, ok bool) {
	for i, f := range m.free {
		if n == Any || n == f {
			m.free = slices.Delete(m.free, i, i+1)
			return f, true
		}
	}
	return 0, false
}

func (m *queueModel) put(n int) (served int, ok bool) {
	if slices.Contains(m.free, n) {
		return 0, false
	}
	for i, w := range m.waiting {
		if w.n == Any || w.n == n {
			m.waiting = slices.Delete(m.waiting, i, i+1)
			return w.id, true
		}
	}
	m.free = append(m.free, n)
	return 0, false
}

// play interprets ops for the queue and the model, and compares them.
func play(t *testing.T, ops []byte) {
	const slots, limit = 4, 6
	q, m := &Queue{}, &queueModel{}
	got, expected := map[int]int{}, map[int]int{} // slots by request
	waiters := map[int]*Waiter{}
	for id, op := range ops {
		n := int(op>>4)%(slots+1) - 1
		switch op & 3 {
		case 0, 1: // take
			slot, free := m.take(n)
			if k, ok := q.Take(n); k != slot || ok != free {
				t.Fatalf("%d: take %d: %d, %v; want %d, %v", id, n, k, ok, slot, free)
			}
			if free || op&12 == 12 {
				break
			}
			began := time.Unix(int64(op>>2&3), 0)
			w, err := q.Wait(n, limit, began, time.Time{}, func(k int, err error) {
				if _, twice := got[id]; twice || err != nil {
					t.Fatalf("request %d is served twice: %d, %v", id, k, err)
				}
				got[id] = k
			})
			if (err != nil) != (len(m.waiting) >= limit) {
				t.Fatalf("%d: wait: %v with %d before it", id, err, len(m.waiting))
			}
			if err == nil {
				waiters[id] = w
				i := len(m.waiting)
				for i > 0 && began.Before(m.waiting[i-1].began) {
					i--
				}
				m.waiting = slices.Insert(m.waiting, i, want{id, n, began})
			}
		case 2: // put
			n = max(n, 0)
			if w, ok := m.put(n); ok {
				expected[w] = n
			}
			q.Put(n)
		case 3: // a waiter is cancelled, or a slot is removed
			if len(waiters) > 0 && op&4 == 0 {
				all := slices.Sorted(maps.Keys(waiters))
				w := all[int(op>>4)%len(all)]
				i := slices.IndexFunc(m.waiting, func(x want) bool { return x.id == w })
				if q.Cancel(waiters[w]) != (i >= 0) {
					t.Fatalf("%d: cancel %d", id, w)
				}
				if i >= 0 {
					m.waiting = slices.Delete(m.waiting, i, i+1)
				}
				delete(waiters, w)
				break
			}
			n = max(n, 0)
			i := slices.Index(m.free, n)
			if i >= 0 {
				m.free = slices.Delete(m.free, i, i+1)
			}
			if q.Remove(n) != (i >= 0) {
				t.Fatalf("%d: remove %d", id, n)
			}
		}
		free, waiting := q.Len()
		if free != len(m.free) || waiting != len(m.waiting) || !maps.Equal(got, expected) {
			t.Fatalf("%d: %d free, %d waiting, served %v; want %+v, served %v", id, free, waiting, got, m, expected)
		}
	}
}

func TestQueueAgainstModel(t *testing.T) {
	for range 300 {
		ops := make([]byte, 60)
		for i := range ops {
			ops[i] = byte(rand.IntN(256))
		}
		play(t, ops)
	}
}

func FuzzQueue(f *testing.F) {
	f.Add([]byte{2, 18, 0, 16, 32, 2, 3})
	f.Fuzz(func(t *testing.T, ops []byte) {
		play(t, ops[:min(len(ops), 200)])
	})
}

func BenchmarkTakePut(b *testing.B) {
	for _, slots := range []int{10, 10000} {
		b.Run(map[int]string{10: "10 slots", 10000: "10000 slots"}[slots], func(b *testing.B) {
			q := &Queue{}
			for n := range slots {
				q.Put(n)
			}
			for b.Loop() {
				k, _ := q.Take(Any)
				q.Put(k)
			}
		})
	}
}

// Requests without a limit wait beside others and do not count for those. Each knows how many are before it, and
// every change is told.
func TestQueueOfGuests(t *testing.T) {
	changes := 0
	q := &Queue{Changed: func() { changes++ }}
	served := func(int, error) {}
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	young, _ := q.Wait(Any, Unlimited, at(3), time.Time{}, served)
	old, _ := q.Wait(Any, Unlimited, at(1), time.Time{}, served)
	own, err := q.Wait(Any, 1, at(2), time.Time{}, served)
	if err != nil || old.Before() != 0 || own.Before() != 1 || young.Before() != 2 || changes != 3 {
		t.Error(err, old.Before(), own.Before(), young.Before(), changes)
	}
	if _, err := q.Wait(Any, 1, at(4), time.Time{}, served); err != ErrQueueFull {
		t.Error(err)
	}
	q.Put(0) // serves the oldest
	if q.Cancel(old) || q.Waiting() != 2 || changes != 4 {
		t.Error("the oldest waits", q.Waiting(), changes)
	}
	if !q.Cancel(own) || young.Before() != 0 {
		t.Error("cancelled", young.Before())
	}
	if _, err := q.Wait(Any, 1, at(4), time.Time{}, served); err != nil {
		t.Error("a guest counts for the limit", err)
	}
	q.Put(1)
	q.Put(2)
	if n, ok := q.Take(Any); ok {
		t.Error("a slot that a request got is free", n)
	}
	q.Put(3)
	if _, ok := q.Take(3); !ok || changes != 10 {
		t.Error("changes", changes)
	}
}
