package pending

import (
	"encoding/json"

	"btools/lib/jsonrpc"
)

// Ask has the host asked what a child asks, by the answer to the request that
// the child is answering. A child does not say which one that is; among those
// of hosts that know nothing of each other it is not guessed.
func (t *Table[C, V]) Ask(child C, id json.RawMessage, key string, request json.RawMessage) []Effect[C, V] {
	refuse := func(err *jsonrpc.Error) []Effect[C, V] {
		return []Effect[C, V]{{Kind: Refuse, Child: child, ID: id, Err: err}}
	}
	r := t.oldest(child, func(r *Request[C, V]) bool { return r.MayAsk })
	switch {
	case t.closed || r == nil || r.asked[key].id != nil || !t.belongs(child, r):
		return refuse(ErrAmbiguous)
	case len(r.asked) >= t.MaxQuestions:
		return refuse(t.errQuestions())
	}
	if input := r.takeInput(key); input != nil {
		return []Effect[C, V]{{Kind: Reply, Child: child, ID: id, Message: input}}
	}
	if r.asked == nil {
		r.asked = map[string]question[C]{}
	}
	r.asked[key] = question[C]{child, id, request}
	if r.state != Relayed {
		return nil
	}
	r.state = Settling
	return t.effect(Settle, r)
}

// Settle asks the host what a child has asked, unless it has taken that back.
func (t *Table[C, V]) Settle(r *Request[C, V]) []Effect[C, V] {
	if r.state != Settling {
		return nil
	}
	r.state = Relayed
	if len(r.asked) == 0 || t.closed {
		return nil
	}
	return t.require(r)
}

// require has the host repeat a request with what is still asked.
func (t *Table[C, V]) require(r *Request[C, V]) []Effect[C, V] {
	id := r.current()
	delete(t.open, string(id))
	r.state = AwaitingInput
	r.lastKey, r.key = r.key, t.NewKey()
	r.round++
	if t.awaiting == nil {
		t.awaiting = map[string]*Request[C, V]{}
	}
	t.awaiting[r.key] = r
	if r.lastKey != "" {
		t.awaiting[r.lastKey] = r
	}
	questions := map[string]json.RawMessage{}
	for key, q := range r.asked {
		questions[key] = q.request
	}
	effects := []Effect[C, V]{{Kind: RequireInput, Request: r, ID: id, Questions: questions, Key: r.key,
		Round: r.round}}
	if len(t.awaiting) <= t.MaxAwaiting {
		return effects
	}
	oldest := r
	for _, other := range t.awaiting {
		if other.age < oldest.age {
			oldest = other
		}
	}
	return append(effects, t.expire(oldest)...)
}

// resume has a request await input no more.
func (t *Table[C, V]) resume(r *Request[C, V]) []Effect[C, V] {
	delete(t.awaiting, r.key)
	delete(t.awaiting, r.lastKey)
	return t.effect(Resume, r)
}

// Repeat goes on with the request that has this key: again is its repetition.
// The request stays the one that it was first.
func (t *Table[C, V]) Repeat(again *Request[C, V], key string) ([]Effect[C, V], error) {
	r := t.awaiting[key]
	if t.IsOver(again) || t.closed {
		return nil, nil
	}
	if r == nil || r.Method != again.Method || r.Subject != again.Subject {
		return nil, ErrKey
	}
	again.state = Ended
	effects := append(t.effect(Stop, again), t.resume(r)...)
	r.repeated, r.newToken, r.Level, r.Input = again.ID, again.Token, again.Level, again.Input
	r.key = key
	if r.state == Answered {
		delete(t.open, string(again.ID))
		r.state = Ended
		return append(effects, Effect[C, V]{Kind: Answer, Request: r, ID: again.ID, Message: r.answer}), nil
	}
	t.open[string(again.ID)] = r
	r.state = Relayed
	for key, q := range r.asked {
		if input := r.takeInput(key); input != nil {
			effects = append(effects, Effect[C, V]{Kind: Reply, Child: q.child, ID: q.id, Message: input})
			delete(r.asked, key)
		}
	}
	if len(r.asked) > 0 {
		effects = append(effects, t.require(r)...)
	}
	return effects, nil
}

// takeInput is what the host has answered, nil if it has not: an object, and
// only once.
func (r *Request[C, V]) takeInput(key string) json.RawMessage {
	input := jsonrpc.Get(r.Input, key)
	if len(input) == 0 || input[0] != '{' {
		return nil
	}
	r.Input = jsonrpc.Delete(r.Input, key)
	return input
}

func (t *Table[C, V]) errQuestions() *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.InternalError, "the host has not answered %d questions of this child yet",
		t.MaxQuestions)
}
