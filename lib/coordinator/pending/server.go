package pending

import (
	"encoding/json"
	"maps"
	"slices"

	"btools/lib/jsonrpc"
)

// AskDirectly has the host asked what a child asks, by a request with the
// number, which belongs to the host's request with the ID to if there is one.
// Refusal is the error if the host can't answer.
func (t *Table[C, V]) AskDirectly(r ServerRequest[C], can bool, refusal *jsonrpc.Error) (number int64,
	to json.RawMessage, err *jsonrpc.Error) {
	switch {
	case t.muted:
		return 0, nil, ErrMuted
	case t.closed || !can:
		return 0, nil, refusal
	}
	open := 0
	for _, other := range t.asked {
		if other.Child == r.Child {
			open++
		}
	}
	if open >= t.MaxQuestions {
		return 0, nil, t.errQuestions()
	}
	if t.asked == nil {
		t.asked = map[int64]ServerRequest[C]{}
	}
	if about := t.oldest(r.Child, func(*Request[C, V]) bool { return true }); about != nil {
		r.Of = about.current()
	}
	t.lastAsked++
	t.asked[t.lastAsked] = r
	return t.lastAsked, r.Of, nil
}

// Asks reports whether a server request is open that belongs to the host's request.
func (t *Table[C, V]) Asks(of json.RawMessage) bool {
	for _, r := range t.asked {
		if string(r.Of) == string(of) {
			return true
		}
	}
	return false
}

// Asked is the server request with the number.
func (t *Table[C, V]) Asked(number int64) (ServerRequest[C], bool) {
	r, ok := t.asked[number]
	return r, ok
}

// Reply is the server request that the host has answered.
func (t *Table[C, V]) Reply(number int64) (ServerRequest[C], bool) {
	r, ok := t.asked[number]
	delete(t.asked, number)
	return r, ok
}

// TakeBack forgets what a child does not ask any more. It returns the number of
// the server request that the host has been sent, if there is one, and the ID of the
// host's request that it belongs to.
func (t *Table[C, V]) TakeBack(child C, id json.RawMessage) (number int64, of json.RawMessage, sent bool) {
	for r := range t.all {
		for key, q := range r.asked {
			if q.child == child && string(q.id) == string(id) {
				delete(r.asked, key)
			}
		}
	}
	for number, r := range t.asked {
		if r.Child == child && string(r.ID) == string(id) {
			delete(t.asked, number)
			return number, r.Of, true
		}
	}
	return 0, nil, false
}

// ChildEnded forgets the server requests of a child and returns their numbers.
func (t *Table[C, V]) ChildEnded(child C) (numbers []int64) {
	for number, r := range t.asked {
		if r.Child == child {
			numbers = append(numbers, number)
			delete(t.asked, number)
		}
	}
	return numbers
}

// Mute says that the host answers nothing any more, and returns what it has not
// answered.
func (t *Table[C, V]) Mute() []ServerRequest[C] {
	t.muted = true
	all := slices.Collect(maps.Values(t.asked))
	t.asked = nil
	return all
}
