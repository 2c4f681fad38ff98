package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"btools/lib/jsonrpc"
)

// call is a request to a child that it has not answered.
type call struct {
	answer func(*jsonrpc.Message, error)
	asks   bool // the child may ask the host something in its course
}

// askers are the requests in whose course a child may ask something.
var askers = []string{"tools/call", "prompts/get", "resources/read"}

// newID is an ID for a request to the child.
func (p *process) newID() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	return p.last
}

// relay sends a request as it is, but for its ID, which is a new one. Answer is
// called once, unless relay returns an error: then it never is.
func (p *process) relay(n int64, m *jsonrpc.Message, answer func(*jsonrpc.Message, error)) error {
	p.mu.Lock()
	if p.why != nil {
		defer p.mu.Unlock()
		return p.why
	}
	p.calls[n] = call{answer, slices.Contains(askers, m.Method)}
	p.mu.Unlock()
	// What can't be written as the child has ended is answered by its end.
	if !p.in.Write(m.WithID(strconv.AppendInt(nil, n, 10)), false) && p.in.Lost() == nil && p.gone() == nil {
		p.mu.Lock()
		_, open := p.calls[n]
		delete(p.calls, n)
		p.mu.Unlock()
		if open {
			return fmt.Errorf("child %s: %w", p.child.Name, errBusy)
		}
	}
	return nil
}

// forget has the answer to a request dropped; it tells the child, which need
// not heed it.
func (p *process) forget(n int64, reason string) {
	p.mu.Lock()
	c, open := p.calls[n]
	delete(p.calls, n)
	if c.asks {
		p.forgotten.add(n)
	}
	p.mu.Unlock()
	if open {
		params, _ := json.Marshal(map[string]any{"requestId": n, "reason": reason})
		p.notify("notifications/cancelled", params)
	}
}

func (p *process) notify(method string, params json.RawMessage) {
	p.in.Write(jsonrpc.Request(nil, method, params), false)
}

// tell makes a request whose answer is of no interest, but to the log.
func (p *process) tell(method string, params json.RawMessage) {
	m, err := jsonrpc.Parse(jsonrpc.Request(json.RawMessage("0"), method, params))
	if err != nil {
		return
	}
	answer := func(m *jsonrpc.Message, err error) {
		if err == nil {
			err = errorOf(m)
		}
		if err != nil {
			p.words.say("it does not answer " + method + ": " + err.Error())
		}
	}
	if err := p.relay(p.newID(), m, answer); err != nil {
		answer(nil, err)
	}
}

// logs has the child log messages of a level too.
func (p *process) logs(level int) {
	p.mu.Lock()
	more := level < p.quiet && jsonrpc.Get(p.can, "logging") != nil
	if more {
		p.quiet = level
	}
	p.mu.Unlock()
	if more {
		p.tell("logging/setLevel", jsonrpc.Set(nil, "level", quote(levels[level])))
	}
}

// call makes a request of our own, and returns its result. An error of the
// child is a *jsonrpc.Error.
func (p *process) call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	type reply struct {
		m   *jsonrpc.Message
		err error
	}
	got := make(chan reply, 1)
	m, err := jsonrpc.Parse(jsonrpc.Request(json.RawMessage("0"), method, params))
	if err != nil {
		return nil, err
	}
	n := p.newID()
	if err := p.relay(n, m, func(m *jsonrpc.Message, err error) { got <- reply{m, err} }); err != nil {
		return nil, err
	}
	select {
	case r := <-got:
		if r.err != nil {
			return nil, r.err
		}
		return r.m.Result, errorOf(r.m)
	case <-ctx.Done():
		p.forget(n, context.Cause(ctx).Error())
		return nil, context.Cause(ctx)
	}
}

// answerTo is what takes the answer to a request, nil if nobody does any more.
// Ours is false if there was no such request.
func (p *process) answerTo(id json.RawMessage) (answer func(*jsonrpc.Message, error), ours bool) {
	n, _ := strconv.ParseInt(string(id), 10, 64)
	p.mu.Lock()
	defer p.mu.Unlock()
	answer = p.calls[n].answer
	delete(p.calls, n)
	p.forgotten.remove(n)
	return answer, n > 0 && n <= p.last
}

// Alone reports whether the child can't mean another request than this one if
// it says something: others that it has not answered count, though they may be
// cancelled.
func (p *process) Alone(n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other, c := range p.calls {
		if c.asks && other != n {
			return false
		}
	}
	_, open := p.calls[n]
	return open && len(p.forgotten) == 0
}

// open is how many calls the child may ask something in the course of, and
// whether some were cancelled that it has not answered.
func (p *process) open() (calls int, cancelled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if c.asks {
			calls++
		}
	}
	return calls, len(p.forgotten) > 0
}

// Bounds of a list that a child gives in pages: one may never end.
const (
	maxPages     = 1000
	maxItems     = 20_000
	maxListBytes = jsonrpc.MaxLine
)

// pages are the items of a paginated list.
func pages(ctx context.Context, p *process, method, member string) (all []json.RawMessage, err error) {
	var params json.RawMessage
	size := 0
	for range maxPages {
		result, err := p.call(ctx, method, params)
		if err != nil {
			return nil, err
		}
		for item := range jsonrpc.Elements(jsonrpc.Get(result, member)) {
			if size += len(item); len(all) == maxItems || size > maxListBytes {
				return nil, fmt.Errorf("the %s of child %s are too many: at most %d and %d MiB are listed", member,
					p.child.Name, maxItems, maxListBytes>>20)
			}
			all = append(all, item)
		}
		cursor := jsonrpc.Get(result, "nextCursor")
		if len(cursor) == 0 || cursor[0] != '"' {
			return all, nil
		}
		next := jsonrpc.Set(nil, "cursor", cursor)
		if string(next) == string(params) {
			return nil, fmt.Errorf("child %s gives the same page of %s again and again", p.child.Name, member)
		}
		params = next
	}
	return nil, fmt.Errorf("child %s has more than %d pages of %s", p.child.Name, maxPages, member)
}
