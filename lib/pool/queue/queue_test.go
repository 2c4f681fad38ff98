package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestOrder(t *testing.T) {
	q := &Queue{}
	for n := range 3 {
		q.Put(n)
	}
	get := func(n int) int {
		t.Helper()
		got, err := q.Get(t.Context(), n, -1)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if a, b := get(Any), get(2); a != 0 || b != 2 {
		t.Error(a, b)
	}
	q.Put(2)
	q.Put(0)
	q.Put(0) // is there already
	if a, b, c := get(Any), get(Any), get(Any); a != 1 || b != 2 || c != 0 {
		t.Error("the one that came back earliest is not first", a, b, c)
	}
	if _, err := q.Get(t.Context(), Any, -1); err != ErrBusy {
		t.Error(err)
	}
	if _, err := q.Get(t.Context(), 1, 0); err != ErrFull {
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

// A wait has one deadline, however many others come and go meanwhile.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue{}
		q.Put(0)
		q.Put(1)
		q.Get(t.Context(), 0, -1)
		go func() {
			for range 20 {
				time.Sleep(100 * time.Millisecond)
				q.Remove(1)
				q.Put(1)
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := q.Get(ctx, 0, 9); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 300*time.Millisecond {
			t.Error(err, time.Since(began))
		}
		if _, waiting := q.Len(); waiting != 0 {
			t.Error(waiting)
		}
		time.Sleep(3 * time.Second)
	})
}

func TestClose(t *testing.T) {
	q := &Queue{}
	q.Put(0)
	q.Get(t.Context(), 0, -1)
	var wg sync.WaitGroup
	gone := errors.New("gone")
	for _, n := range []int{Any, 0, Any, 5} {
		wg.Go(func() {
			if _, err := q.Get(t.Context(), n, 9); err != gone {
				t.Error(err)
			}
		})
	}
	for waiting := 0; waiting < 4; _, waiting = q.Len() {
	}
	q.Close(gone)
	wg.Wait()
	if _, err := q.Get(t.Context(), 0, 9); err != gone {
		t.Error(err)
	}
}

// model is the queue as one would explain it: two lists.
type model struct {
	free    []int
	waiting []want
}

type want struct{ id, n int }

func (m *model) get(id, n, limit int) (slot int, waits bool, err error) {
	for i, f := range m.free {
		if n == Any || n == f {
			m.free = slices.Delete(m.free, i, i+1)
			return f, false, nil
		}
	}
	if limit < 0 {
		return 0, false, ErrBusy
	}
	if len(m.waiting) >= limit {
		return 0, false, ErrFull
	}
	m.waiting = append(m.waiting, want{id, n})
	return 0, true, nil
}

func (m *model) put(n int) (served int, ok bool) {
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

// play does what the bytes say to the queue and to the model, and compares.
func play(t *testing.T, ops []byte) {
	const slots, limit = 4, 6
	synctest.Test(t, func(t *testing.T) {
		q, m := &Queue{}, &model{}
		got := map[int]int{} // by request
		var mu sync.Mutex
		cancels := map[int]context.CancelFunc{}
		expected := map[int]int{}
		for id, op := range ops {
			n := int(op>>4)%(slots+1) - 1
			switch op & 3 {
			case 0, 1: // get
				l := limit
				if op&12 == 12 {
					l = -1
				}
				want, waits, werr := m.get(id, n, l)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					k, err := q.Get(ctx, n, l)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						got[id] = k
					}
					done <- err
				}()
				synctest.Wait()
				if waits {
					cancels[id] = cancel
					continue
				}
				cancel()
				if err := <-done; err != werr {
					t.Fatalf("%d: get %d: %v, want %v", id, n, err, werr)
				}
				if werr == nil {
					expected[id] = want
				}
			case 2: // put
				n = max(n, 0)
				if w, ok := m.put(n); ok {
					expected[w] = n
					delete(cancels, w)
				}
				q.Put(n)
			case 3: // a waiter gives up, or a slot goes
				if len(m.waiting) > 0 && op&4 == 0 {
					i := int(op>>4) % len(m.waiting)
					w := m.waiting[i].id
					m.waiting = slices.Delete(m.waiting, i, i+1)
					cancels[w]()
					delete(cancels, w)
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
			synctest.Wait()
			free, waiting := q.Len()
			mu.Lock()
			if free != len(m.free) || waiting != len(m.waiting) || len(got) != len(expected) {
				t.Fatalf("%d: %d free, %d waiting, %d served; want %+v, %d served", id, free, waiting, len(got), m, len(expected))
			}
			for w, k := range expected {
				if g, ok := got[w]; !ok || g != k {
					t.Fatalf("%d: request %d has %d, %v; want %d", id, w, g, ok, k)
				}
			}
			mu.Unlock()
		}
		q.Close(errors.New("the end"))
		for _, c := range cancels {
			c()
		}
	})
}

func TestAgainstModel(t *testing.T) {
	for range 300 {
		ops := make([]byte, 60)
		for i := range ops {
			ops[i] = byte(rand.IntN(256))
		}
		play(t, ops)
	}
}

func FuzzAgainstModel(f *testing.F) {
	f.Add([]byte{2, 18, 0, 16, 32, 2, 3})
	f.Fuzz(func(t *testing.T, ops []byte) {
		play(t, ops[:min(len(ops), 200)])
	})
}

// Many at once: no slot has two holders.
func TestOneHolder(t *testing.T) {
	const slots = 5
	q := &Queue{}
	for n := range slots {
		q.Put(n)
	}
	var held [slots]sync.Mutex
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for range 500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(2000))*time.Microsecond)
				n := Any
				if i%4 == 0 {
					n = i % slots
				}
				k, err := q.Get(ctx, n, 100)
				cancel()
				if err != nil {
					continue
				}
				if !held[k].TryLock() {
					t.Errorf("%d has two holders", k)
				}
				held[k].Unlock()
				q.Put(k)
			}
		})
	}
	wg.Wait()
	if free, waiting := q.Len(); free != slots || waiting != 0 {
		t.Error(free, waiting)
	}
}

func BenchmarkGetPut(b *testing.B) {
	for _, slots := range []int{10, 10000} {
		b.Run(map[int]string{10: "10 slots", 10000: "10000 slots"}[slots], func(b *testing.B) {
			q := &Queue{}
			for n := range slots {
				q.Put(n)
			}
			for b.Loop() {
				k, _ := q.Get(b.Context(), Any, -1)
				q.Put(k)
			}
		})
	}
}
