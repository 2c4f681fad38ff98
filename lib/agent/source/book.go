package source

import (
	"context"
	"slices"
	"sync"
	"time"

	"btools/lib/wait"
)

// book records which calls use each browser, and begins a step when none does. Its lock also guards the source and its
// owners.
type book struct {
	mu      sync.Mutex
	table   table[usable]
	changed wait.Broadcast // a call may go on
	timer   wait.Timer
	over    bool
}

// usable is used by calls: the one browser, a virtual browser on it, or a kept lease.
type usable interface {
	// step takes a step and returns the zero time, or the time of a use for which the step is not taken.
	step(due due[usable]) (kept time.Time)
	// group returns the group of the step's goroutine.
	group() *sync.WaitGroup
}

// noWait is a context that has ended, for a call that must not wait.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// enter counts a call, and waits until it can use k.
func (b *book) enter(ctx context.Context, k usable) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.enterLocked(ctx, k)
}

func (b *book) enterLocked(ctx context.Context, k usable) error {
	if b.table.begin(k); !b.table.ready(k) && ctx.Err() == nil {
		b.advanceLocked() // it may wait for a place
	}
	for !b.table.ready(k) {
		if !b.table.knows(k) {
			return ErrBrowserDied
		}
		if err := b.waitLocked(ctx); err != nil {
			b.leaveLocked(k)
			return err
		}
	}
	return nil
}

// waitLocked waits until something has changed.
func (b *book) waitLocked(ctx context.Context) error {
	changed := b.changed.Next()
	b.mu.Unlock()
	defer b.mu.Lock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// leave notes that a call has ended.
func (b *book) leave(k usable) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaveLocked(k)
}

// touch notes a use of k that is over.
func (b *book) touch(k usable) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table.begin(k)
	b.leaveLocked(k)
}

func (b *book) leaveLocked(k usable) {
	b.table.finish(k, time.Now())
	b.advanceLocked()
}

// removeLocked forgets k.
func (b *book) removeLocked(k usable) {
	b.table.remove(k)
	b.advanceLocked()
}

// advanceLocked wakes the calls that wait, and begins the steps that are due.
func (b *book) advanceLocked() {
	b.changed.Wake()
	if b.over {
		return
	}
	now := time.Now()
	all, next := b.table.due(now)
	for _, due := range all {
		b.beginLocked(due)
	}
	if !next.IsZero() {
		b.timer.Start(next.Sub(now), b.advance)
	}
}

func (b *book) advance() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advanceLocked()
}

// beginLocked begins a step.
func (b *book) beginLocked(due due[usable]) {
	due.key.group().Go(func() {
		kept := due.key.step(due)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.table.done(due.key, due.step, kept)
		b.advanceLocked()
	})
}

// close ends the steps: none begins any more.
func (b *book) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	b.timer.Stop()
}

// A table says which calls use the browsers of a source, and what becomes of one that no call uses. It is given up
// in two steps, each when its time has come: it rests, and it ends. A call that comes during a step waits until that is
// over. There may be fewer places than browsers: one that needs a place when all are taken waits, first in, first out,
// and has it until it rests. A table has no lock, no clock and no goroutine: its methods are called one at a time, with
// the time as an argument, and return what the caller has to do. A book has all that.

// step is what is done with a session that no call uses.
type step int

const (
	noStep   step = iota
	restStep      // it is put to rest until its next call
	endStep       // it ends
)

// rules say when a session is given up.
type rules struct {
	// rest and end are how long no call uses it until these steps; 0: they are not taken by themselves.
	rest, end time.Duration
	place     bool // it needs a place for its calls
}

// table is the sessions and the places for them. Sessions are known by keys.
type table[K comparable] struct {
	most int           // places; 0: as many as are wanted
	keep time.Duration // how long no call uses a session until it rests so that another one has its place

	all   map[K]*entry
	queue []K // of those that wait for a place, the first to come first
	taken int // places, with those of sessions that are being put to rest
}

type entry struct {
	rules
	awake   bool // since a call used it; it has its place
	step    step // that is under way
	calls   int  // that use it, or wait for it
	left    time.Time
	refused time.Time // when it could not rest last
	hurried bool      // it ends as soon as no call uses it
}

// due is a step that is to be taken. The caller does that and calls done.
type due[K comparable] struct {
	key     K
	step    step
	unused  time.Duration // for how long no call has used it
	hurried bool          // it ends because of hurry
}

// set adds a session, or changes its rules.
func (t *table[K]) set(k K, r rules) {
	if t.all == nil {
		t.all = map[K]*entry{}
	}
	if t.all[k] == nil {
		t.all[k] = &entry{}
	}
	t.all[k].rules = r
}

// begin begins a call on a session. The call waits until ready, or until finish.
func (t *table[K]) begin(k K) {
	e := t.all[k]
	if e == nil {
		return
	}
	if e.calls++; !e.awake && !slices.Contains(t.queue, k) {
		t.wake(k, e)
	}
}

// wake wakes a session, or has it wait for a place.
func (t *table[K]) wake(k K, e *entry) {
	if e.awake = !e.place; e.place {
		t.queue = append(t.queue, k)
		t.fill()
	}
}

// fill gives free places to those that have waited longest.
func (t *table[K]) fill() {
	for len(t.queue) > 0 && (t.most <= 0 || t.taken < t.most) {
		t.all[t.queue[0]].awake = true
		t.queue = t.queue[1:]
		t.taken++
	}
}

// ready reports whether calls can use a session: it is awake, and no step is under way.
func (t *table[K]) ready(k K) bool {
	e := t.all[k]
	return e != nil && e.awake && e.step == noStep
}

// ending reports whether a session is being ended, or has been.
func (t *table[K]) ending(k K) bool { return t.all[k] == nil || t.all[k].step == endStep }

// knows reports whether a session is in the table.
func (t *table[K]) knows(k K) bool { return t.all[k] != nil }

// calls are the calls that use a session, or wait for it.
func (t *table[K]) calls(k K) int {
	if t.all[k] == nil {
		return 0
	}
	return t.all[k].calls
}

// unused is how long no call has used a session; 0: one does, or none ever has.
func (t *table[K]) unused(k K, now time.Time) time.Duration {
	if e := t.all[k]; e != nil && e.calls == 0 && !e.left.IsZero() {
		return now.Sub(e.left)
	}
	return 0
}

// finish ends a call. A session that waits for no other one leaves the queue.
func (t *table[K]) finish(k K, now time.Time) {
	e := t.all[k]
	if e == nil {
		return
	}
	if e.calls--; e.calls > 0 {
		return
	}
	e.left = now
	t.dequeue(k)
}

func (t *table[K]) dequeue(k K) {
	t.queue = slices.DeleteFunc(t.queue, func(other K) bool { return other == k })
}

// hurry has a session end as soon as no call uses it.
func (t *table[K]) hurry(k K) { t.all[k].hurried = true }

// start decides that a step is to be taken now. It reports whether it is: restStep if the session is awake and no call
// uses it, endStep in any case. A step that is under way is not begun again, and nor is one that comes before it.
func (t *table[K]) start(k K, s step) bool {
	e := t.all[k]
	if e == nil || s <= e.step || s == restStep && (e.calls > 0 || !e.awake) {
		return false
	}
	e.step = s
	return true
}

// done notes that a step has been taken or, with another time than the zero one, that it was not: the session counts
// as used at that time. A session that has ended is forgotten.
func (t *table[K]) done(k K, s step, kept time.Time) {
	e := t.all[k]
	if e == nil || e.step != s {
		return // another step has taken its place
	}
	e.step = noStep
	switch {
	case s == restStep && !kept.IsZero():
		e.refused = kept
	case s == restStep:
		if e.awake = false; e.place {
			t.taken--
		}
		if e.calls > 0 {
			t.wake(k, e)
		}
		t.fill()
	case !kept.IsZero():
		e.left = kept
	default:
		t.remove(k)
	}
}

// remove forgets a session. Its place, if it has one, is free.
func (t *table[K]) remove(k K) {
	e := t.all[k]
	if e == nil {
		return
	}
	if t.dequeue(k); e.awake && e.place {
		t.taken--
	}
	delete(t.all, k)
	t.fill()
}

// due returns the steps that are due, oldest first, with a rest for each waiting session; it counts them as
// started, as start does. next is the time to ask again, or zero: not until something has changed.
func (t *table[K]) due(now time.Time) (all []due[K], next time.Time) {
	wanted := len(t.queue)
	for _, e := range t.all {
		if e.awake && e.place && e.step != noStep {
			wanted-- // its place will be free
		}
	}
	for {
		var first K
		var step step
		for k, e := range t.all {
			if at, s := t.next(e, wanted > 0); s != noStep && (step == noStep || at.Before(next)) {
				first, next, step = k, at, s
			}
		}
		if step == noStep || next.After(now) {
			return all, next
		}
		e := t.all[first]
		all = append(all, due[K]{first, step, now.Sub(e.left), e.hurried})
		if e.step, e.hurried = step, false; e.awake && e.place {
			wanted--
		}
		next = time.Time{}
	}
}

// next returns the session's next step and its time, or noStep: none until something has changed.
func (t *table[K]) next(e *entry, placeWanted bool) (at time.Time, s step) {
	if e.step != noStep || e.calls > 0 {
		return at, noStep
	}
	switch {
	case e.left.IsZero(): // no call has used it yet
		return at, noStep
	case e.hurried:
		return e.left, endStep
	}
	consider := func(step step, from time.Time, after time.Duration) {
		if due := from.Add(after); s == noStep || due.Before(at) {
			at, s = due, step
		}
	}
	since := e.left
	if e.refused.After(since) {
		since = e.refused
	}
	if e.awake && e.rest > 0 {
		consider(restStep, since, e.rest)
	}
	if e.awake && e.place && placeWanted {
		consider(restStep, since, t.keep)
	}
	if e.end > 0 {
		consider(endStep, e.left, e.end)
	}
	return at, s
}

// ahead is how many wait for a place before a session; false: it does not wait.
func (t *table[K]) ahead(k K) (n int, waits bool) {
	n = slices.Index(t.queue, k)
	return n, n >= 0
}

// waiting is how many sessions wait for a place.
func (t *table[K]) waiting() int { return len(t.queue) }
