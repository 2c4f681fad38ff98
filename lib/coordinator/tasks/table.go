package tasks

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// Table is the tasks of all owners.
type Table[V any] struct {
	Limits

	tasks  map[string]*Task[V] // by ID
	last   int64
	queues map[string]*queue[V]
	places map[string]*place[V]
	due    time.Time // not after the time when the first result is too old
}

type queue[V any] struct {
	waiting []*Task[V]
	running int
}

// place is where one task is executed at a time.
type place[V any] struct {
	holder  *Task[V]
	waiting []*Task[V]
}

// Add adds a task. It reports whether its execution is to begin now; else End of
// another task returns it.
func (t *Table[V]) Add(task *Task[V], now time.Time) (begin bool, err error) {
	t.Expire(now)
	own := 0
	for _, other := range t.tasks {
		if other.Owner == task.Owner {
			own++
		}
	}
	q := t.queues[task.Queue.Key]
	switch {
	case own >= t.Kept:
		return false, ErrTooMany
	case task.Queue.Key != "" && q != nil && q.running >= task.Queue.Slots && len(q.waiting) >= t.Queued:
		return false, ErrFull
	}
	if t.tasks == nil {
		t.tasks, t.queues, t.places = map[string]*Task[V]{}, map[string]*queue[V]{}, map[string]*place[V]{}
	}
	t.last++
	task.number, task.TTL = t.last, min(task.TTL, t.TTL)
	task.state = State{Status: Working, Created: now, Updated: now}
	t.tasks[task.ID] = task
	if task.Queue.Key == "" {
		task.stage = running
		return true, nil
	}
	if q == nil {
		q = &queue[V]{}
		t.queues[task.Queue.Key] = q
	}
	if q.running < task.Queue.Slots { // then nobody waits
		q.running++
		task.stage = running
		return true, nil
	}
	q.waiting = append(q.waiting, task)
	return false, nil
}

// Enter says where a task is executed, once that is known. It reports whether the
// task is the only one there; else End of another task returns it.
func (t *Table[V]) Enter(task *Task[V], where string) bool {
	if task.stage != running || task.place != "" {
		return true
	}
	p := t.places[where]
	if p == nil {
		p = &place[V]{}
		t.places[where] = p
	}
	task.place = where
	if p.holder == nil {
		p.holder = task
		return true
	}
	task.stage = blocked
	p.waiting = append(p.waiting, task)
	return false
}

// Next are tasks that another one has made way for.
type Next[V any] struct {
	Begin []*Task[V] // their execution is to begin
	Enter []*Task[V] // they have got the place that they wait for
}

// End notes that the execution of a task has ended with this status, which counts
// unless it has been stopped, and with a result of a size.
func (t *Table[V]) End(task *Task[V], status Status, message string, size int, now time.Time) (next Next[V]) {
	if task.stage == over {
		return next
	}
	next = t.leave(task)
	task.ended, task.size = now, size
	if !task.state.Status.IsTerminal() {
		task.state.Status, task.state.Message, task.state.Updated = status, message, now
	}
	if end := now.Add(task.TTL); t.due.IsZero() || end.Before(t.due) {
		t.due = end
	}
	t.shrink(task.Owner)
	return next
}

// leave takes a task out of its queue and its place, for good.
func (t *Table[V]) leave(task *Task[V]) (next Next[V]) {
	was := task.stage
	task.stage = over
	if q := t.queues[task.Queue.Key]; q != nil && task.Queue.Key != "" {
		if was == queued {
			q.waiting = slices.DeleteFunc(q.waiting, func(other *Task[V]) bool { return other == task })
		} else {
			q.running--
		}
		for len(q.waiting) > 0 && q.running < q.waiting[0].Queue.Slots {
			first := q.waiting[0]
			q.waiting, first.stage = q.waiting[1:], running
			q.running++
			next.Begin = append(next.Begin, first)
		}
		if q.running == 0 {
			delete(t.queues, task.Queue.Key)
		}
	}
	p := t.places[task.place]
	switch {
	case p == nil || task.place == "":
	case p.holder != task:
		p.waiting = slices.DeleteFunc(p.waiting, func(other *Task[V]) bool { return other == task })
	case len(p.waiting) == 0:
		delete(t.places, task.place)
	default:
		p.holder, p.waiting = p.waiting[0], p.waiting[1:]
		p.holder.stage = running
		next.Enter = append(next.Enter, p.holder)
	}
	return next
}

// Stop gives a task its terminal status before its execution has ended. If the task
// was queued, its execution never begins: the caller calls End at once. Otherwise the
// caller stops the execution, and calls End when it has ended.
func (t *Table[V]) Stop(task *Task[V], status Status, message string, now time.Time) (wasQueued bool, err error) {
	if task.state.Status.IsTerminal() {
		return false, ErrTerminal
	}
	task.state.Status, task.state.Message, task.state.Updated = status, message, now
	return task.stage == queued, nil
}

// Note changes what a task that has not ended says of itself, and reports whether
// that is new.
func (t *Table[V]) Note(task *Task[V], status Status, message string, now time.Time) bool {
	if task.state.Status.IsTerminal() || task.stage == over ||
		task.state.Status == status && task.state.Message == message {
		return false
	}
	task.state.Status, task.state.Message, task.state.Updated = status, message, now
	return true
}

// Behind are the tasks that wait for a task, and are to be executed on its browser.
// Those of a queue with several slots may get another one.
func (t *Table[V]) Behind(task *Task[V]) (some []*Task[V]) {
	if q := t.queues[task.Queue.Key]; q != nil && task.Queue.Key != "" && task.Queue.Slots == 1 {
		some = append(some, q.waiting...)
	}
	if p := t.places[task.place]; p != nil && task.place != "" && p.holder == task {
		some = append(some, p.waiting...)
	}
	return some
}

// State is the state of a task.
func (t *Table[V]) State(task *Task[V]) State { return task.state }

// Ahead is how many tasks are executed before one that waits.
func (t *Table[V]) Ahead(task *Task[V]) int {
	if q := t.queues[task.Queue.Key]; q != nil && task.stage == queued {
		return q.running + slices.Index(q.waiting, task)
	}
	return 0
}

// Get is the task of an owner with an ID.
func (t *Table[V]) Get(owner, id string, now time.Time) (*Task[V], error) {
	t.Expire(now)
	task := t.tasks[id]
	if task == nil || task.Owner != owner {
		return nil, ErrUnknown
	}
	return task, nil
}

// List is a page of at most so many tasks of an owner, the oldest first, and the
// cursor of the next page; "": there is none. The first page has the cursor "".
func (t *Table[V]) List(owner, cursor string, most int, now time.Time) (page []*Task[V], next string, err error) {
	t.Expire(now)
	after := int64(0)
	if cursor != "" {
		if after, err = strconv.ParseInt(cursor, 10, 64); err != nil || after < 1 || after > t.last {
			return nil, "", ErrCursor
		}
	}
	page = t.of(owner, func(task *Task[V]) bool { return task.number > after })
	if len(page) > most {
		page = page[:most]
		next = strconv.FormatInt(page[most-1].number, 10)
	}
	return page, next, nil
}

// Active are the tasks of an owner whose execution has not ended.
func (t *Table[V]) Active(owner string) []*Task[V] {
	return t.of(owner, func(task *Task[V]) bool { return task.stage != over })
}

// of are such tasks of an owner, the oldest first.
func (t *Table[V]) of(owner string, such func(*Task[V]) bool) (some []*Task[V]) {
	for _, task := range t.tasks {
		if task.Owner == owner && such(task) {
			some = append(some, task)
		}
	}
	slices.SortFunc(some, func(a, b *Task[V]) int { return cmp.Compare(a.number, b.number) })
	return some
}

// Drop forgets the tasks of an owner, whose execution has ended.
func (t *Table[V]) Drop(owner string) {
	for _, task := range t.of(owner, func(task *Task[V]) bool { return task.stage == over }) {
		delete(t.tasks, task.ID)
	}
}

// Expire forgets the tasks whose results are too old. It returns when it is to be
// called again; zero: not before another task has ended.
func (t *Table[V]) Expire(now time.Time) (again time.Time) {
	if t.due.IsZero() || now.Before(t.due) {
		return t.due
	}
	t.due = time.Time{}
	for id, task := range t.tasks {
		if task.stage != over {
			continue
		}
		end := task.ended.Add(task.TTL)
		switch {
		case !end.After(now):
			delete(t.tasks, id)
		case t.due.IsZero() || end.Before(t.due):
			t.due = end
		}
	}
	return t.due
}

// shrink forgets the oldest results of an owner that has too many bytes of them. The
// last one stays.
func (t *Table[V]) shrink(owner string) {
	kept := t.of(owner, func(task *Task[V]) bool { return task.stage == over })
	size := 0
	for _, task := range kept {
		size += task.size
	}
	slices.SortFunc(kept, func(a, b *Task[V]) int { return a.ended.Compare(b.ended) })
	for _, task := range kept[:max(0, len(kept)-1)] {
		if size <= t.Bytes {
			return
		}
		size -= task.size
		delete(t.tasks, task.ID)
	}
}
