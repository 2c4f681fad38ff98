package tasks

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

type (
	table = Table[int]
	item  = Task[int]
)

var (
	start  = time.Unix(0, 0)
	limits = Limits{Queued: 2, Kept: 8, Bytes: 100, TTL: time.Hour}
)

// add adds a task, which begins or waits.
func add(t *testing.T, all *table, id string, q Queue, begins bool) *item {
	t.Helper()
	task := &item{ID: id, Owner: "me", Queue: q, TTL: time.Hour}
	if begin, err := all.Add(task, start); err != nil || begin != begins {
		t.Fatalf("%s: begins %v, %v; want %v", id, begin, err, begins)
	}
	return task
}

// end ends a task, after which others begin.
func end(t *testing.T, all *table, task *item, begins ...*item) {
	t.Helper()
	if next := all.End(task, Completed, "", 1, start); !slices.Equal(next.Begin, begins) || next.Enter != nil {
		t.Fatalf("after %s: %+v, want %v", task.ID, next, begins)
	}
}

// Of the tasks of a queue only so many are executed, in the order of their arrival;
// those of others do not wait for them.
func TestQueue(t *testing.T) {
	all := &table{Limits: limits}
	one, two := Queue{"one", 1}, Queue{"two", 2}
	a := add(t, all, "a", one, true)
	b, c := add(t, all, "b", one, false), add(t, all, "c", one, false)
	if _, err := all.Add(&item{ID: "d", Owner: "other", Queue: one}, start); !errors.Is(err, ErrFull) {
		t.Errorf("the third that waits: %v, want %v", err, ErrFull)
	}
	if n := all.Ahead(c); n != 2 {
		t.Errorf("%d before the last one, want 2", n)
	}
	d := add(t, all, "d", two, true)
	add(t, all, "e", two, true)
	f := add(t, all, "f", two, false)
	end(t, all, d, f)
	end(t, all, b) // which was waiting
	end(t, all, a, c)
	end(t, all, a) // again
	end(t, all, c)
	if _, err := all.Add(&item{ID: "x", Owner: "me"}, start); err != nil {
		t.Error(err)
	}
	for i := range 2 {
		if _, err := all.Add(&item{ID: fmt.Sprint(i), Owner: "me"}, start); (err != nil) != (i == 1) ||
			err != nil && !errors.Is(err, ErrTooMany) {
			t.Errorf("task %d of the owner: %v", i+8, err)
		}
	}
}

// Tasks of different queues that turn out to be for one place wait for each other.
func TestPlace(t *testing.T) {
	all := &table{Limits: limits}
	a, b := add(t, all, "a", Queue{"a", 1}, true), add(t, all, "b", Queue{"b", 1}, true)
	c := add(t, all, "c", Queue{"a", 1}, false)
	if !all.Enter(a, "here") || !all.Enter(a, "there") || all.Enter(b, "here") {
		t.Error("not the first task is in the place")
	}
	if some := all.Behind(a); !slices.Equal(some, []*item{c, b}) {
		t.Errorf("behind the task: %v", some)
	}
	next := all.End(a, Completed, "", 0, start)
	if !slices.Equal(next.Begin, []*item{c}) || !slices.Equal(next.Enter, []*item{b}) {
		t.Errorf("%+v, want that c begins and b enters", next)
	}
	if some := all.Behind(b); some != nil {
		t.Errorf("behind the other: %v", some)
	}
	if all.Enter(c, "here") {
		t.Error("two in one place")
	}
	end(t, all, c) // which was waiting
	end(t, all, b)
	if !all.Enter(add(t, all, "d", Queue{}, true), "here") {
		t.Error("the place is not free again")
	}
}

// A task's terminal status does not change, and is there before its execution has
// ended, which keeps its slot.
func TestStop(t *testing.T) {
	all := &table{Limits: limits}
	q := Queue{"q", 1}
	a, b := add(t, all, "a", q, true), add(t, all, "b", q, false)
	if queued, err := all.Stop(b, Cancelled, "no", start); !queued || err != nil {
		t.Errorf("waiting: %v, %v", queued, err)
	}
	end(t, all, b)
	c := add(t, all, "c", q, false)
	later := start.Add(time.Second)
	if queued, err := all.Stop(a, Cancelled, "no", later); queued || err != nil {
		t.Errorf("executed: %v, %v", queued, err)
	}
	if _, err := all.Stop(a, Cancelled, "", later); !errors.Is(err, ErrTerminal) {
		t.Errorf("again: %v", err)
	}
	if all.Note(a, Working, "still", later) {
		t.Error("it goes on after its end")
	}
	end(t, all, a, c)
	if s := all.State(a); s != (State{Cancelled, "no", start, later}) {
		t.Errorf("%+v", s)
	}
	if !all.Note(c, Working, "now", later) || all.Note(c, Working, "now", later) {
		t.Error("what is new is not told once")
	}
	if s := all.State(c); s != (State{Working, "now", start, later}) {
		t.Errorf("%+v", s)
	}
}

// Results are kept for their time after the end of the task, and only for their owner.
func TestKept(t *testing.T) {
	all := &table{Limits: limits}
	at := func(d time.Duration) time.Time { return start.Add(d) }
	short := &item{ID: "short", Owner: "me", TTL: time.Minute}
	long := &item{ID: "long", Owner: "me", TTL: 5 * time.Hour}
	runs := &item{ID: "runs", Owner: "me", TTL: time.Minute}
	for _, task := range []*item{short, long, runs} {
		all.Add(task, start)
	}
	if long.TTL != time.Hour {
		t.Errorf("the TTL is %v, want %v", long.TTL, time.Hour)
	}
	all.End(short, Completed, "", 0, at(time.Hour))
	all.End(long, Completed, "", 0, at(time.Hour))
	if again := all.Expire(at(time.Hour)); !again.Equal(at(time.Hour + time.Minute)) {
		t.Errorf("to be called again at %v", again)
	}
	known := func(id, owner string, d time.Duration, want bool) {
		t.Helper()
		if _, err := all.Get(owner, id, at(d)); (err == nil) != want || err != nil && !errors.Is(err, ErrUnknown) {
			t.Errorf("%s after %v: %v, want %v", id, d, err, want)
		}
	}
	known("short", "me", time.Hour+time.Second, true)
	known("short", "other", time.Hour+time.Second, false)
	known("short", "me", time.Hour+time.Minute, false)
	known("long", "me", 2*time.Hour-1, true)
	known("long", "me", 2*time.Hour, false)
	known("runs", "me", 9*time.Hour, true)
	all.Drop("me")
	known("runs", "me", 9*time.Hour, true)
	all.End(runs, Completed, "", 0, at(9*time.Hour))
	all.Drop("me")
	known("runs", "me", 9*time.Hour, false)
}

// The oldest results make room for others of their owner.
func TestBytes(t *testing.T) {
	all := &table{Limits: limits}
	for i, size := range []int{40, 40, 40, 1000} {
		task := &item{ID: fmt.Sprint(i), Owner: "me", TTL: time.Hour}
		all.Add(task, start)
		all.End(task, Completed, "", size, start.Add(time.Duration(i)))
		want := []int{1, 2, 2, 1}[i]
		if page, _, _ := all.List("me", "", 9, start); len(page) != want || page[want-1] != task {
			t.Errorf("%d are kept after %d, want %d", len(page), i, want)
		}
	}
}

func TestList(t *testing.T) {
	all := &table{Limits: limits}
	for i := range 5 {
		all.Add(&item{ID: fmt.Sprint(i), Owner: "me"}, start)
		all.Add(&item{ID: fmt.Sprint("x", i), Owner: "other"}, start)
	}
	var got []string
	cursor := ""
	for range 3 {
		page, next, err := all.List("me", cursor, 2, start)
		if err != nil || (next == "") != (len(page) < 2) {
			t.Fatalf("%d tasks, %q, %v", len(page), next, err)
		}
		for _, task := range page {
			got = append(got, task.ID)
		}
		cursor = next
	}
	if !slices.Equal(got, []string{"0", "1", "2", "3", "4"}) {
		t.Errorf("%v", got)
	}
	for _, cursor := range []string{"x", "0", "-1", "99"} {
		if _, _, err := all.List("me", cursor, 2, start); !errors.Is(err, ErrCursor) {
			t.Errorf("%s: %v", cursor, err)
		}
	}
}

// Whatever happens in whichever order, no queue has more tasks under way than slots, no
// place more than one, tasks of a queue begin in the order of their arrival, each one
// that waits begins or ends, and at the end nothing waits.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 0, 1, 0, 2, 0, 1, 0, 0, 3, 3, 1, 2, 1, 2, 2})
	f.Add([]byte{0, 4, 0, 4, 0, 4, 1, 0, 1, 1, 2, 0, 3, 1, 2, 1, 4, 9, 2, 2})
	f.Fuzz(func(t *testing.T, events []byte) {
		all := &table{Limits: Limits{Queued: 3, Kept: 20, Bytes: 50, TTL: 10}}
		var (
			tasks  []*item
			begun  = map[*item]bool{}
			inside = map[*item]bool{} // have entered a place
			over   = map[*item]bool{}
			now    = start
		)
		begin := func(task *item) {
			if begun[task] || over[task] {
				t.Fatalf("task %s begins twice, or after its end", task.ID)
			}
			for _, other := range tasks {
				if other.Queue == task.Queue && task.Queue.Key != "" && other.number < task.number &&
					!begun[other] && !over[other] {
					t.Fatalf("task %s begins before task %s", task.ID, other.ID)
				}
			}
			begun[task] = true
		}
		end := func(task *item, size int) {
			over[task] = true
			next := all.End(task, Completed, "", size, now)
			for _, other := range next.Begin {
				begin(other)
			}
			for _, other := range next.Enter {
				if inside[other] || over[other] {
					t.Fatalf("task %s enters twice, or after its end", other.ID)
				}
				inside[other] = true
			}
		}
		for ; len(events) > 1; events = events[2:] {
			op, arg := events[0]%5, int(events[1])
			now = now.Add(1)
			var task *item
			if len(tasks) > 0 {
				task = tasks[arg%len(tasks)]
			}
			switch {
			case op == 0:
				task = &item{ID: fmt.Sprint(len(tasks)), Owner: fmt.Sprint(arg % 2), TTL: time.Duration(arg),
					Queue: []Queue{{}, {"a", 1}, {"b", 1}, {"c", 2}}[arg%4]}
				if ok, err := all.Add(task, now); err == nil {
					if tasks = append(tasks, task); ok {
						begin(task)
					}
				}
			case task == nil:
			case op == 1 && begun[task] && !over[task] && task.place == "":
				inside[task] = all.Enter(task, fmt.Sprint("place", arg%2))
			case op == 2 && begun[task]:
				end(task, arg)
			case op == 3:
				if queued, err := all.Stop(task, Cancelled, "", now); err == nil && queued {
					if begun[task] {
						t.Fatalf("task %s waits and has begun", task.ID)
					}
					end(task, arg)
				}
			case op == 4:
				all.Expire(now)
				all.Note(task, Working, fmt.Sprint(arg), now)
			}
			running, placed := map[Queue]int{}, map[string]int{}
			for _, task := range tasks {
				if begun[task] && !over[task] && task.Queue.Key != "" {
					running[task.Queue]++
				}
				if inside[task] && !over[task] {
					placed[task.place]++
				}
			}
			for q, n := range running {
				if n > q.Slots {
					t.Fatalf("%d tasks of queue %v are under way", n, q)
				}
			}
			for where, n := range placed {
				if n > 1 {
					t.Fatalf("%d tasks are in %s", n, where)
				}
			}
		}
		for ended := true; ended; {
			ended = false
			for _, task := range tasks {
				if begun[task] && !over[task] && (task.place == "" || inside[task]) {
					end(task, 0)
					ended = true
				}
			}
		}
		for _, task := range tasks {
			if !over[task] {
				t.Errorf("task %s has never ended", task.ID)
			}
		}
		if len(all.queues)+len(all.places) > 0 {
			t.Errorf("%d queues and %d places are left", len(all.queues), len(all.places))
		}
		all.Drop("0")
		all.Drop("1")
		if len(all.tasks) > 0 {
			t.Errorf("%d tasks are left", len(all.tasks))
		}
	})
}
