package share

import (
	"errors"
	"slices"
	"testing"
)

// bench is a stock of numbers. It does what a Chrome would do, and models what
// each request should get.
type bench struct {
	stock  stock[int]
	next   int
	ended  map[int]bool // sessions that have ended
	begun  int          // being made
	held   []int        // by request
	fails  int          // requests that failed
	inLine []*line
}

// line is a request that waited.
type line struct {
	w   *waiter[int]
	got int
	err error
}

func newBench() *bench {
	b := &bench{ended: map[int]bool{}}
	b.stock.isDead = func(s int) bool { return b.ended[s] }
	return b
}

func (b *bench) fill() { b.begun += b.stock.start() }

func (b *bench) take() {
	l := &line{}
	s, w := b.stock.take(func(s int, err error) {
		l.got, l.err = s, err
		b.inLine = slices.DeleteFunc(b.inLine, func(o *line) bool { return o == l })
		if err == nil {
			b.held = append(b.held, s)
		} else {
			b.fails++
		}
	})
	if w == nil {
		b.held = append(b.held, s)
	} else {
		l.w = w
		b.inLine = append(b.inLine, l)
	}
	b.fill()
}

func (b *bench) made() {
	if b.begun == 0 {
		return
	}
	b.begun--
	b.next++
	if b.stock.made(b.next) {
		b.ended[b.next] = true
	}
	b.fill()
}

// check asserts the invariants.
func (b *bench) check(t *testing.T) {
	t.Helper()
	seen := map[int]bool{}
	for _, s := range slices.Concat(b.held, b.stock.spares) {
		if seen[s] {
			t.Fatalf("session %d is two people's", s)
		}
		seen[s] = true
	}
	for _, s := range b.held {
		if s == 0 {
			t.Fatal("somebody has got no session")
		}
	}
	if len(b.inLine) > 0 && slices.ContainsFunc(b.stock.spares, func(s int) bool { return !b.ended[s] }) {
		t.Fatal("somebody waits while a session is ready")
	}
	if len(b.inLine) != len(b.stock.waiting) {
		t.Fatalf("%d wait, but the stock knows of %d", len(b.inLine), len(b.stock.waiting))
	}
	if len(b.stock.spares) > b.stock.target || b.begun != b.stock.making || b.begun > maxConcurrent {
		t.Fatalf("%d spares of %d, %d are being made of %d", len(b.stock.spares), b.stock.target, b.begun,
			b.stock.making)
	}
	if len(b.inLine) > 0 && b.begun == 0 {
		t.Fatal("somebody waits, and nothing is being made")
	}
	if !b.stock.failing && len(b.stock.spares) < b.stock.target && b.begun == 0 {
		t.Fatal("there are too few spares, and none is being made")
	}
}

// FuzzStock checks the invariants for any sequence of operations.
func FuzzStock(f *testing.F) {
	f.Add([]byte("w\x04mmmmttttttmfmrmpcxag"))
	f.Add([]byte("w\x10mmmmmmmmmmmmmmmmtw\x00ppttfffa"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		b := newBench()
		for i := 0; i < len(ops); i++ {
			switch ops[i] {
			case 'w':
				if i++; i < len(ops) {
					for _, s := range b.stock.setTarget(int(ops[i] % 20)) {
						b.ended[s] = true
					}
					b.fill()
				}
			case 't':
				b.take()
			case 'm':
				b.made()
			case 'f':
				if b.begun > 0 {
					b.begun--
					b.stock.failed(errors.New("no"))
					b.fill()
				}
			case 'a':
				b.stock.retry()
				b.fill()
			case 'p': // an unused session is returned
				if len(b.held) > 0 {
					s := b.held[0]
					b.held = b.held[1:]
					if b.stock.put(s) {
						b.ended[s] = true
					}
					b.fill()
				}
			case 'c':
				if len(b.inLine) > 0 {
					b.stock.cancel(b.inLine[0].w)
					b.inLine = b.inLine[1:]
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

func TestWhoWaitsIsServedInOrderBeforeSparesAreMade(t *testing.T) {
	b := newBench()
	b.stock.setTarget(2)
	b.take()
	b.take()
	first, second := b.inLine[0], b.inLine[1]
	b.made()
	if first.got != 1 || second.got != 0 {
		t.Fatalf("the first got %d, the second %d", first.got, second.got)
	}
	b.begun--
	b.stock.failed(errors.New("no"))
	if second.err == nil || len(b.inLine) > 0 {
		t.Error("who waits was not told that there is none")
	}
}
