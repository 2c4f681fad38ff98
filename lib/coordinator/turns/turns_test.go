package turns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

type (
	queue = Queue[int, int]
	turn  = Turn[int, int]
)

// asked is a turn as a model has it.
type asked struct {
	*turn
	group, process int // 0: not known
	known          bool
	acquires       *Acquisition[int, int]
	browsers       []int // that it got
	over           bool
}

// name is the group of a turn, "" if it is not known.
func (a *asked) name() string {
	if !a.known {
		return ""
	}
	return fmt.Sprint("group ", a.group)
}

// Whatever happens in whichever order, a request is first if no turn before it is, or may
// be, for its process; a browser goes to the first of its group that has none; none is
// lost or given twice; and nobody is forgotten that waits for one.
func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 1, 0, 1, 3, 0, 3, 1, 4, 0, 4, 1, 5, 0, 5, 1})
	f.Add([]byte{0, 1, 0, 1, 3, 1, 4, 0, 3, 0, 4, 0, 4, 0, 2, 0, 2, 1, 5, 1, 5, 0})
	f.Add([]byte{0, 5, 0, 1, 3, 0, 3, 1, 1, 0, 4, 1, 5, 0, 4, 0, 4, 1, 6, 0, 5, 1})
	f.Fuzz(func(t *testing.T, events []byte) {
		q := &queue{}
		var all []*asked
		failed := errors.New("there is none")
		made, left := 0, map[int]bool{} // browsers, and those that somebody gave back
		fetch := func() {
			for _, a := range all {
				select {
				case got := <-a.got:
					if got.err == nil {
						a.browsers = append(a.browsers, got.browser)
					}
				default:
				}
			}
		}
		for ; len(events) > 1; events = events[2:] {
			op, arg := events[0]%7, int(events[1])
			if op == 0 {
				a := &asked{turn: &turn{}, group: arg % 3, known: arg%8 < 5}
				a.Group = a.name
				all = append(all, a)
				q.Add(a.turn, 0)
				continue
			}
			if len(all) == 0 {
				continue
			}
			a := all[arg%len(all)]
			switch op {
			case 1:
				a.known = true
			case 2:
				if q.Assign(a.turn, 1+arg%2); a.process == 0 && !a.over {
					a.process = 1 + arg%2
				}
			case 3:
				if a.acquires == nil && !a.over {
					a.known = true // its tool is, or no browser would be asked for
					a.acquires = q.Ask(a.turn, func() {})
				}
			case 4:
				if a.acquires == nil || !q.Wanted(a.acquires) {
					break
				}
				to := slices.IndexFunc(all, func(o *asked) bool {
					return !o.over && len(o.browsers) == 0 && o.known && o.group == a.acquires.by.groupOf(all)
				})
				made++
				taken := q.Hand(a.acquires, made, nil)
				if fetch(); !taken {
					t.Fatal("a browser that is wanted is not taken")
				} else if !slices.Contains(all[to].browsers, made) {
					t.Fatalf("browser %d is not that of turn %d, the first of its group", made, to)
				}
			case 5:
				q.End(a.turn)
				a.over = true
			case 6:
				if a.acquires != nil && q.Wanted(a.acquires) {
					by := a.acquires.by
					q.Hand(a.acquires, 0, failed)
					for _, o := range all {
						if o.turn == by {
							o.browsers = append(o.browsers, -1) // it waits no more
						}
					}
					fetch()
				}
			}
			wanted, waiting := 0, 0
			for _, a := range all {
				if a.acquires != nil && q.Wanted(a.acquires) {
					wanted++
				}
				if a.acquires != nil && !a.over && len(a.browsers) == 0 {
					waiting++
				}
				if len(a.browsers) > 1 {
					t.Fatalf("a turn has the browsers %v", a.browsers)
				}
			}
			if wanted != waiting {
				t.Fatalf("%d turns wait for a browser, and %d are asked for", waiting, wanted)
			}
			for group := range 3 {
				for process := range 3 {
					free := !slices.ContainsFunc(all, func(a *asked) bool {
						return !a.over && (process > 0 && a.process == process ||
							a.process == 0 && a.known && a.group == group)
					})
					if got := q.IsFirst(fmt.Sprint("group ", group), process); got != free {
						t.Fatalf("a request of group %d and process %d is first: %v, want %v", group, process, got,
							free)
					}
				}
			}
		}
		for _, a := range all {
			if b := q.End(a.turn); b != 0 {
				left[b] = true
			}
		}
		if len(q.all) > 0 || len(left) > 0 {
			t.Errorf("the turns %v and the browsers %v are left", q.all, left)
		}
	})
}

// groupOf is the group of a turn among all.
func (t *Turn[P, L]) groupOf(all []*asked) int {
	for _, a := range all {
		if any(a.turn) == any(t) {
			return a.group
		}
	}
	return -1
}

// Turns of a process are over one after the other; those of others do not wait.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue{}
		var reached []string
		group := func(name string) *turn {
			one := &turn{Group: func() string { return name }}
			q.Add(one, 0)
			return one
		}
		assigned, first, second, other := group("c"), group("a"), group("a"), group("b")
		q.Assign(assigned, 1)
		ctx, cancel := context.WithCancel(t.Context())
		gone := group("a")
		for name, one := range map[string]*turn{"second": second, "other": other} {
			go func() {
				if q.Wait(t.Context(), one) {
					reached = append(reached, name)
				}
			}()
		}
		go func() {
			if !q.Wait(ctx, gone) {
				reached = append(reached, "gone")
			}
		}()
		for i, step := range []func(){func() {}, cancel, func() { q.Assign(second, 1) }, func() { q.Assign(first, 2) },
			func() { q.End(assigned) }} {
			step()
			synctest.Wait()
			want := [][]string{{"other"}, {"other", "gone"}, {"other", "gone"}, {"other", "gone"},
				{"other", "gone", "second"}}[i]
			if !slices.Equal(reached, want) {
				t.Fatalf("after step %d: %v, want %v", i, reached, want)
			}
		}
	})
}

// A browser that a turn was given, and has not fetched, is its End's.
func TestEndReturnsBrowser(t *testing.T) {
	q := &queue{}
	one := &turn{Group: func() string { return "a" }}
	q.Add(one, 0)
	ended := false
	a := q.Ask(one, func() { ended = true })
	if !q.Hand(a, 7, nil) || q.Wanted(a) || q.End(one) != 7 || q.End(one) != 0 || ended {
		t.Error("the browser is lost, or given twice")
	}
	another := &turn{Group: one.Group}
	q.Add(another, 0)
	a = q.Ask(another, func() { ended = true })
	if q.End(another) != 0 || !ended || q.Wanted(a) || q.Hand(a, 8, nil) {
		t.Error("a browser is acquired for a turn that is over")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("it is over"))
	if _, err := q.Got(ctx, another); err == nil || err.Error() != "it is over" {
		t.Errorf("%v", err)
	}
}
