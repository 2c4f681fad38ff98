package places

import (
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func TestFirstInFirstOut(t *testing.T) {
	p := Table[string]{Max: 2, Rest: 5 * time.Second}
	for _, k := range []string{"a", "b"} {
		if !p.Begin(k) {
			t.Errorf("%s waits for a free place", k)
		}
	}
	for i, k := range []string{"c", "d", "e"} {
		if p.Begin(k) {
			t.Errorf("%s has a third place", k)
		}
		if n, waits := p.Ahead(k); n != i || !waits {
			t.Errorf("%d wait before %s, want %d", n, k, i)
		}
	}
	p.Remove("b")
	if !p.Has("c") || p.Has("d") {
		t.Error("the first that waited has not got the place")
	}
	p.End("d", at(1)) // it waits no longer
	p.Remove("a")
	if !p.Has("e") || p.Waiting() != 0 {
		t.Error("the one after who gave up has not got the place")
	}
}

func TestUnusedPlacesAreVacated(t *testing.T) {
	p := Table[string]{Max: 3, Rest: 5 * time.Second}
	for i, k := range []string{"a", "b", "used"} {
		p.Begin(k)
		if k != "used" {
			p.End(k, at(i))
		}
	}
	if all, next := p.Overdue(at(60)); all != nil || !next.IsZero() {
		t.Errorf("%v have to leave at %v, but nobody waits", all, next)
	}
	p.Begin("c")
	if all, next := p.Overdue(at(4)); all != nil || next != at(5) {
		t.Errorf("%v have to leave, the next at %v, want a at 5 s", all, next)
	}
	if all, _ := p.Overdue(at(7)); !slices.Equal(all, []string{"a"}) {
		t.Errorf("%v have to leave for one that waits, want a", all)
	}
	if all, _ := p.Overdue(at(7)); all != nil {
		t.Errorf("%v have to leave although a does", all)
	}
	if p.Begin("a") {
		t.Error("a has a place that is being vacated")
	}
	p.Vacated("a", true, at(8))
	if !p.Has("c") {
		t.Error("c has not got the place of a")
	}
	if n, waits := p.Ahead("a"); n != 0 || !waits {
		t.Error("a, which has been used meanwhile, does not wait")
	}
	if all, _ := p.Overdue(at(8)); !slices.Equal(all, []string{"b"}) {
		t.Errorf("%v have to leave for a, want b", all)
	}
	p.Vacated("b", false, at(8))
	if all, next := p.Overdue(at(9)); all != nil || next != at(13) {
		t.Errorf("%v have to leave after b could not, the next at %v, want b at 13 s", all, next)
	}
}

func TestNoLimit(t *testing.T) {
	p := Table[int]{}
	for k := range 1000 {
		if !p.Begin(k) {
			t.Fatalf("the user %d waits", k)
		}
		p.End(k, at(0))
	}
	if !p.Vacate(7) || p.Vacate(7) || p.Has(7) {
		t.Error("an unused place can be vacated once")
	}
	p.Begin(8)
	if p.Vacate(8) {
		t.Error("a place that is used can be vacated")
	}
	p.Vacated(7, true, at(1))
	if !p.Begin(7) {
		t.Error("who has left waits for a place, of which there is no end")
	}
}

// Whatever happens: there are never more places than there may be, none is free while
// somebody waits, places are given in the order of arrival, and none is taken from
// who uses it.
func FuzzTable(f *testing.F) {
	f.Add([]byte("b0b1b2b3e0o6v0b0o9v1r2e3"))
	f.Add([]byte("b0b1e0e1b2b3o9b0b1v0n1b4e4e2o9"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		p := Table[byte]{Max: 2, Rest: 5 * time.Second}
		uses := map[byte]int{} // the model
		var queue []byte
		leaving := map[byte]bool{}
		for i := 0; i+1 < len(ops); i += 2 {
			k, now := ops[i+1]%8, at(i)
			was := map[byte]bool{}
			for k := range byte(8) {
				was[k] = p.Has(k)
			}
			left := byte(255) // who may have lost its place
			switch ops[i] {
			case 'b':
				waits := slices.Contains(queue, k)
				uses[k]++
				if !p.Begin(k) && !waits && !leaving[k] {
					queue = append(queue, k)
				}
			case 'e':
				if uses[k] == 0 {
					continue
				}
				uses[k]--
				p.End(k, now)
				if uses[k] == 0 {
					queue = slices.DeleteFunc(queue, func(o byte) bool { return o == k })
				}
			case 'r':
				uses[k], left = 0, k
				delete(leaving, k)
				queue = slices.DeleteFunc(queue, func(o byte) bool { return o == k })
				p.Remove(k)
			case 'o':
				all, _ := p.Overdue(now)
				for _, k := range all {
					if uses[k] > 0 || !was[k] {
						t.Fatalf("%d has to leave: uses %d, place %v", k, uses[k], was[k])
					}
					leaving[k], was[k] = true, false
				}
				if len(leaving) > 0 && len(all) > len(queue) {
					t.Fatalf("%d have to leave for %d", len(all), len(queue))
				}
			case 'v', 'n':
				if !leaving[k] {
					continue
				}
				delete(leaving, k)
				if ops[i] == 'v' && uses[k] > 0 {
					queue = append(queue, k)
				}
				p.Vacated(k, ops[i] == 'v', now)
			}
			taken := len(leaving)
			for k := range byte(8) {
				if was[k] && !p.Has(k) && k != left {
					t.Fatalf("%d has lost its place", k)
				}
				if p.Has(k) {
					taken++
				}
			}
			for len(queue) > 0 && p.Has(queue[0]) {
				queue = queue[1:]
			}
			if !slices.Equal(queue, p.queue) {
				t.Fatalf("%v wait, want %v", p.queue, queue)
			}
			if taken > 2 || taken < 2 && len(queue) > 0 || taken != p.taken {
				t.Fatalf("%d places are taken, %d counted, %v wait", taken, p.taken, queue)
			}
		}
	})
}
