package pending

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"btools/lib/jsonrpc"
)

// Errors of requests of the host.
var (
	ErrClosed  = errors.New("the table is closed")
	ErrNull    = errors.New("the id of a request is a string or a number")
	ErrPending = errors.New("a request with this id is being answered already")
	ErrKey     = jsonrpc.Errorf(jsonrpc.InvalidParams,
		"the requestState is not that of such a request, or too old: leave it out to begin anew")
)

// Errors of requests of children.
var (
	ErrAmbiguous = jsonrpc.Errorf(jsonrpc.MethodNotFound,
		"the host can't be asked: it is not clear by which request, or one with this id is open")
	ErrMuted = jsonrpc.Errorf(jsonrpc.InternalError, "the host has ended its messages and can't answer")
)

// Table are the requests of a host, or of several hosts that know nothing of
// each other.
type Table[C Child, V any] struct {
	Shared       bool // by several hosts
	MaxAwaiting  int  // how many keys of requests that await input are kept
	MaxQuestions int  // how many questions of a child may be open
	NewKey       func() string

	open      map[string]*Request[C, V] // by the ID that the host waits for
	awaiting  map[string]*Request[C, V] // AwaitingInput or Answered, by key and last key
	asked     map[int64]ServerRequest[C]
	lastAsked int64
	lastAge   int
	watched   map[<-chan struct{}]bool
	muted     bool
	closed    bool
}

// Add adds a request.
func (t *Table[C, V]) Add(r *Request[C, V]) error {
	switch {
	case t.closed:
		return ErrClosed
	case string(r.ID) == "null":
		return ErrNull
	case t.open[string(r.ID)] != nil:
		return ErrPending
	}
	if t.open == nil {
		t.open = map[string]*Request[C, V]{}
	}
	t.lastAge++
	r.age = t.lastAge
	t.open[string(r.ID)] = r
	return nil
}

// Len is the number of requests that the host waits for.
func (t *Table[C, V]) Len() (n int) {
	for _, r := range t.open {
		if !r.Detached {
			n++
		}
	}
	return n
}

// Close has no further request added or asked about. It returns the requests
// that the host waits for, which are to be answered.
func (t *Table[C, V]) Close() (open []*Request[C, V], first bool) {
	first = !t.closed
	t.closed = true
	return slices.Collect(maps.Values(t.open)), first
}

// Closed reports whether Close was called.
func (t *Table[C, V]) Closed() bool { return t.closed }

// IsOver reports whether a request is answered, cancelled or expired.
func (t *Table[C, V]) IsOver(r *Request[C, V]) bool { return r.state >= Answered }

// Hold has a request hold a lease until it is over. It reports whether the
// lease is watched for the first time; over says that the request is over
// already and does not hold it.
func (t *Table[C, V]) Hold(r *Request[C, V], l Lease) (watch, over bool) {
	if t.IsOver(r) {
		return false, true
	}
	r.lease = l
	if l.Died == nil || t.watched[l.Died] || t.closed {
		return false, false
	}
	if t.watched == nil {
		t.watched = map[<-chan struct{}]bool{}
	}
	t.watched[l.Died] = true
	return true, false
}

// Lost are the requests that children answer and that hold a lease which is of
// no use any more.
func (t *Table[C, V]) Lost(died <-chan struct{}) (lost []*Request[C, V]) {
	delete(t.watched, died)
	var none C
	for r := range t.all {
		if r.lease.Died == died && r.child != none {
			lost = append(lost, r)
		}
	}
	return lost
}

// Relay notes that a child answers a request, and reports whether anybody waits
// for the answer. Relayed is called once the child has the request.
func (t *Table[C, V]) Relay(r *Request[C, V], child C, number int64) bool {
	if r.state != Accepted {
		return false
	}
	r.state, r.child, r.number = Relayed, child, number
	return true
}

// Detach notes that the child answers a request later, under another number, and that
// the host does not wait for that: the answer has another ID. It returns the ID that
// the host waits for, which the caller answers; not open means that it does not.
func (t *Table[C, V]) Detach(r *Request[C, V], id json.RawMessage, number int64) (was json.RawMessage, open bool) {
	if r.state != Relayed && r.state != Settling {
		return nil, false
	}
	was = r.current()
	delete(t.open, string(was))
	if r.repeated == nil {
		r.newToken = r.Token
	}
	r.repeated, r.number, r.Detached = id, number, true
	t.open[string(id)] = r
	return was, true
}

// Relayed cancels a request that has ended since Relay.
func (t *Table[C, V]) Relayed(r *Request[C, V]) []Effect[C, V] {
	if r.state != Ended || !r.cancelled {
		return nil
	}
	return t.cancel(r, r.reason)
}

// Child is the child that answers a request, and the number that the request
// has there; the zero value if there is none yet.
func (r *Request[C, V]) Child() (child C, number int64) { return r.child, r.number }

// Finish answers a request, once. A nil message is no answer.
func (t *Table[C, V]) Finish(r *Request[C, V], message []byte) (effects []Effect[C, V]) {
	if t.IsOver(r) {
		return nil
	}
	switch {
	case r.state == AwaitingInput && r.Detached:
		effects = append(t.resume(r), t.effect(Stop, r)...)
		r.state = Ended
		effects = append(effects, Effect[C, V]{Kind: Answer, Request: r, ID: r.current(), Message: message})
	case r.state == AwaitingInput && message != nil:
		r.state, r.answer = Answered, message
		effects = t.effect(Stop, r)
	case r.state == AwaitingInput:
		effects = append(t.resume(r), t.effect(Stop, r)...)
		r.state = Ended
	default:
		id := r.current()
		delete(t.open, string(id))
		r.state = Ended
		effects = append(t.effect(Stop, r), Effect[C, V]{Kind: Answer, Request: r, ID: id, Message: message})
	}
	if r.lease.Release != nil {
		effects = append(effects, Effect[C, V]{Kind: Release, Lease: r.lease})
	}
	return effects
}

// End answers a request whose child need not answer it any more.
func (t *Table[C, V]) End(r *Request[C, V], message []byte, reason string) []Effect[C, V] {
	if t.IsOver(r) {
		return nil
	}
	r.cancelled, r.reason = true, reason
	return append(t.Finish(r, message), t.cancel(r, reason)...)
}

// Cancel ends the request that the host waits for under this ID.
func (t *Table[C, V]) Cancel(id json.RawMessage, reason string) []Effect[C, V] {
	r := t.open[string(id)]
	if r == nil {
		return nil // it is answered already
	}
	return t.End(r, nil, reason)
}

// Abandon ends the request that awaits input and had this ID last.
func (t *Table[C, V]) Abandon(id json.RawMessage) []Effect[C, V] {
	for _, r := range t.awaiting {
		if string(r.current()) == string(id) {
			return t.expire(r)
		}
	}
	return nil
}

// Expire ends a request that has awaited input for too long, since this round.
func (t *Table[C, V]) Expire(r *Request[C, V], round int) []Effect[C, V] {
	if r.round != round {
		return nil
	}
	return t.expire(r)
}

// ExpireAll ends the requests that await input.
func (t *Table[C, V]) ExpireAll() (effects []Effect[C, V]) {
	for _, r := range t.awaitingInput() {
		effects = append(effects, t.expire(r)...)
	}
	return effects
}

func (t *Table[C, V]) expire(r *Request[C, V]) []Effect[C, V] {
	switch r.state {
	case AwaitingInput:
		return t.End(r, nil, "the host does not come again")
	case Answered:
		r.state = Ended
		return t.resume(r)
	}
	return nil
}

func (t *Table[C, V]) cancel(r *Request[C, V], reason string) []Effect[C, V] {
	var none C
	if r.child == none {
		return nil
	}
	return []Effect[C, V]{{Kind: Cancel, Request: r, Child: r.child, Number: r.number, Reason: reason}}
}

// Late reports whether a request whose time is over is to be ended. One whose
// child waits for the host has as long again.
func (t *Table[C, V]) Late(r *Request[C, V]) (over, again bool) {
	if t.IsOver(r) {
		return false, false
	}
	waits := r.state == AwaitingInput
	for _, a := range t.asked {
		waits = waits || a.Child == r.child
	}
	return !waits, waits
}

func (t *Table[C, V]) effect(kind Kind, r *Request[C, V]) []Effect[C, V] {
	return []Effect[C, V]{{Kind: kind, Request: r}}
}

// current is the ID that the host waits for.
func (r *Request[C, V]) current() json.RawMessage {
	if r.repeated != nil {
		return r.repeated
	}
	return r.ID
}

// all are all requests; one that has two keys may come twice.
func (t *Table[C, V]) all(yield func(*Request[C, V]) bool) {
	for _, requests := range []map[string]*Request[C, V]{t.open, t.awaiting} {
		for _, r := range requests {
			if !yield(r) {
				return
			}
		}
	}
}

// Any reports whether there is such a request.
func (t *Table[C, V]) Any(such func(*Request[C, V]) bool) bool {
	for r := range t.all {
		if such(r) {
			return true
		}
	}
	return false
}

// Open are the requests that the host waits for, as far as they are such.
func (t *Table[C, V]) Open(such func(*Request[C, V]) bool) (some []*Request[C, V]) {
	for _, r := range t.open {
		if such(r) {
			some = append(some, r)
		}
	}
	return some
}

// awaitingInput are the requests that await input.
func (t *Table[C, V]) awaitingInput() []*Request[C, V] {
	some := map[*Request[C, V]]bool{}
	for _, r := range t.awaiting {
		some[r] = true
	}
	return slices.Collect(maps.Keys(some))
}

// WaitFor is how many requests of a child await input.
func (t *Table[C, V]) WaitFor(child C) (n int) {
	for _, r := range t.awaitingInput() {
		if r.child == child && r.state == AwaitingInput {
			n++
		}
	}
	return n
}

// oldest returns the oldest such request that a child is answering, nil if there is
// none. Requests that wait for the host's input are chosen last.
func (t *Table[C, V]) oldest(child C, such func(*Request[C, V]) bool) (oldest *Request[C, V]) {
	rank := func(r *Request[C, V]) int {
		switch {
		case len(r.asked) == 0:
			return 0
		case r.state != AwaitingInput:
			return 1
		}
		return 2
	}
	for r := range t.all {
		if t.IsOver(r) || r.child != child || !such(r) {
			continue
		}
		if oldest == nil || rank(r) < rank(oldest) || rank(r) == rank(oldest) && r.age < oldest.age {
			oldest = r
		}
	}
	return oldest
}

// belongs reports whether a message of a child that names no request is for the
// host of this one: it is if there is one host, or if the child can't mean
// another request.
func (t *Table[C, V]) belongs(child C, r *Request[C, V]) bool {
	return !t.Shared || child.Alone(r.number)
}

// Route is where a notification of a child goes.
type Route struct {
	To       json.RawMessage // the ID that the host waits for
	Repeated bool
	Token    json.RawMessage // of the progress of the repetition
}

// Route is where a notification goes that belongs to such a request of a child.
// Guessed says that it does not name its request.
func (t *Table[C, V]) Route(child C, guessed bool, such func(*Request[C, V]) bool) (to Route, ok bool) {
	r := t.oldest(child, such)
	if r == nil || guessed && !t.belongs(child, r) {
		return Route{}, false
	}
	return Route{r.current(), r.repeated != nil, r.newToken}, true
}

// Subscribe has a request get the notifications that pass a filter. It reports
// whether anybody waits for them.
func (t *Table[C, V]) Subscribe(r *Request[C, V], filter json.RawMessage) bool {
	r.filter = filter
	return !t.IsOver(r)
}

// Subscribers are the requests with such filters.
func (t *Table[C, V]) Subscribers(such func(r *Request[C, V], filter json.RawMessage) bool) []*Request[C, V] {
	return t.Open(func(r *Request[C, V]) bool { return r.filter != nil && such(r, r.filter) })
}
