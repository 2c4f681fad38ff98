package book

import (
	"errors"
	"slices"
	"testing"
)

// bench is a stock of numbers. It does what a Chrome would do, and models what
// each request should get.
type bench struct {
	stock   Stock[int]
	next    int
	ended   map[int]bool // sessions that have ended
	begun   int          // being made
	held    []int        // by request
	waiting int
	fails   int // sessions that could not be made, for requests that were not served since
}

func newBench() *bench {
	b := &bench{ended: map[int]bool{}}
	b.stock.IsDead = func(s int) bool { return b.ended[s] }
	return b
}

func (b *bench) fill() { b.begun += b.stock.Start() }

// wait is a request that waits.
func (b *bench) wait() {
	b.waiting++
	b.stock.Wait()
	b.fill()
}

// serve serves the requests, as far as there is something for them.
func (b *bench) serve(t *testing.T) {
	for b.waiting > 0 {
		s, err, ok := b.stock.Take()
		if !ok {
			b.fill()
			break
		}
		b.waiting--
		switch {
		case err == nil:
			b.held = append(b.held, s)
		case b.fails == 0:
			t.Fatal("a request fails though no session could not be made")
		default:
			b.fails--
		}
		b.fill()
	}
	b.fails = min(b.fails, b.waiting)
}

// check asserts the invariants.
func (b *bench) check(t *testing.T) {
	t.Helper()
	seen := map[int]bool{}
	for _, s := range slices.Concat(b.held, b.stock.spares) {
		if s == 0 || seen[s] {
			t.Fatalf("session %d is two people's, or none", s)
		}
		seen[s] = true
	}
	if b.waiting != b.stock.waiting || b.stock.Len() != len(b.stock.spares) || len(b.stock.errs) > b.waiting {
		t.Fatalf("%d wait, but the stock knows of %d, and of %d errors", b.waiting, b.stock.waiting, len(b.stock.errs))
	}
	if len(b.stock.spares) > b.stock.target+b.waiting || b.begun != b.stock.making || b.begun > maxConcurrent {
		t.Fatalf("%d spares of %d, %d are being made of %d", len(b.stock.spares), b.stock.target, b.begun,
			b.stock.making)
	}
	if len(b.stock.spares)+len(b.stock.errs) < b.waiting && b.begun == 0 {
		t.Fatal("somebody waits, and nothing is being made")
	}
	if !b.stock.failing && len(b.stock.spares) < b.stock.target && b.begun == 0 {
		t.Fatal("there are too few spares, and none is being made")
	}
}

// FuzzStock checks the invariants for any sequence of operations.
func FuzzStock(f *testing.F) {
	f.Add([]byte("w\x04mmmmttttttmfmrmsctxag"))
	f.Add([]byte("w\x10mmmmmmmmmmmmmmmmtsw\x00ttfffsa"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		b := newBench()
		for i := 0; i < len(ops); i++ {
			switch ops[i] {
			case 'w':
				if i++; i < len(ops) {
					for _, s := range b.stock.SetTarget(int(ops[i] % 20)) {
						b.ended[s] = true
					}
					b.fill()
				}
			case 't':
				b.wait()
			case 's':
				b.serve(t)
			case 'm':
				if b.begun > 0 {
					b.begun--
					b.next++
					b.ended[b.next] = b.stock.Made(b.next)
					b.fill()
				}
			case 'f':
				if b.begun > 0 {
					b.begun--
					b.fails++
					b.stock.Failed(errors.New("no"))
					b.fill()
				}
			case 'a':
				b.stock.Retry()
				b.fill()
			case 'c': // a request waits no longer
				if b.waiting > 0 {
					b.waiting--
					b.stock.Leave()
					for _, s := range b.stock.SetTarget(b.stock.target) {
						b.ended[s] = true
					}
				}
			case 'x': // a spare session ends by itself
				if len(b.stock.spares) > 0 {
					b.ended[b.stock.spares[0]] = true
				}
			}
			b.check(t)
		}
	})
}

func TestRequestsAreServedBeforeSparesAreMade(t *testing.T) {
	b := newBench()
	b.stock.SetTarget(1)
	b.wait()
	b.wait()
	if b.begun != 3 {
		t.Fatalf("%d are being made, want 3", b.begun)
	}
	b.begun--
	b.fails++
	b.stock.Failed(errors.New("no"))
	b.begun--
	b.stock.Made(7)
	b.serve(t)
	if !slices.Equal(b.held, []int{7}) || b.waiting != 0 || b.fails != 0 {
		t.Errorf("%v were served and %d wait, want one served and one told that there is none", b.held, b.waiting)
	}
}
