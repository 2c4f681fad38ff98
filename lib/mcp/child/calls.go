package child

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// call is a request to a child that is not answered yet.
type call struct {
	answer func(*jsonrpc.Message, error)
	asks   bool // the child may send requests to the host meanwhile
}

// NewID returns an ID for a request to the child.
func (p *Process) NewID() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	return p.last
}

// Relay sends a request unchanged but for its ID. Answer is called once, unless
// Relay returns an error: then it is never called.
func (p *Process) Relay(n int64, m *jsonrpc.Message, answer func(*jsonrpc.Message, error)) error {
	p.mu.Lock()
	if p.err != nil {
		defer p.mu.Unlock()
		return p.err
	}
	p.calls[n] = call{answer, mcp.MayAsk(m.Method)}
	p.mu.Unlock()
	// If the child has ended, its end answers the request.
	if !p.in.Write(m.WithID(strconv.AppendInt(nil, n, 10)), false) && p.in.Lost() == nil && p.Gone() == nil {
		p.mu.Lock()
		_, open := p.calls[n]
		delete(p.calls, n)
		p.mu.Unlock()
		if open {
			return fmt.Errorf("child %s: %w", p.spec.Name, errBusy)
		}
	}
	return nil
}

// Cancel drops the answer to a request and tells the child, which may ignore that.
func (p *Process) Cancel(n int64, reason string) {
	p.mu.Lock()
	c, open := p.calls[n]
	delete(p.calls, n)
	if c.asks {
		p.forgotten.add(n)
	}
	p.mu.Unlock()
	if open {
		params, _ := json.Marshal(map[string]any{"requestId": n, "reason": reason})
		p.Send(jsonrpc.Request(nil, "notifications/cancelled", params))
	}
}

// Send sends the child a notification, or the answer to a request of the child.
func (p *Process) Send(message []byte) { p.in.Write(message, false) }

// Tell sends a request whose answer matters only to the log.
func (p *Process) Tell(method string, params json.RawMessage) {
	m, err := jsonrpc.Parse(jsonrpc.Request(json.RawMessage("0"), method, params))
	if err != nil {
		return
	}
	answer := func(m *jsonrpc.Message, err error) {
		if err == nil {
			err = jsonrpc.ErrorOf(m)
		}
		if err != nil {
			p.stderr.writeLine("it does not answer " + method + ": " + err.Error())
		}
	}
	if err := p.Relay(p.NewID(), m, answer); err != nil {
		answer(nil, err)
	}
}

// Call makes a request of bmcp's own and returns its result. An error of the child
// is a *jsonrpc.Error.
func (p *Process) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	type reply struct {
		m   *jsonrpc.Message
		err error
	}
	got := make(chan reply, 1)
	m, err := jsonrpc.Parse(jsonrpc.Request(json.RawMessage("0"), method, params))
	if err != nil {
		return nil, err
	}
	n := p.NewID()
	if err := p.Relay(n, m, func(m *jsonrpc.Message, err error) { got <- reply{m, err} }); err != nil {
		return nil, err
	}
	select {
	case r := <-got:
		if r.err != nil {
			return nil, r.err
		}
		return r.m.Result, jsonrpc.ErrorOf(r.m)
	case <-ctx.Done():
		p.Cancel(n, context.Cause(ctx).Error())
		return nil, context.Cause(ctx)
	}
}

// answerTo returns the callback for the answer to a request, nil if nobody waits
// for it any more. Ours is false if there was no such request.
func (p *Process) answerTo(id json.RawMessage) (answer func(*jsonrpc.Message, error), ours bool) {
	n, _ := strconv.ParseInt(string(id), 10, 64)
	p.mu.Lock()
	defer p.mu.Unlock()
	answer = p.calls[n].answer
	delete(p.calls, n)
	p.forgotten.remove(n)
	return answer, n > 0 && n <= p.last
}

// Alone reports whether a message of the child can only concern this request.
// Cancelled requests that the child has not answered count as others.
func (p *Process) Alone(n int64) bool {
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

// OpenCalls returns the number of open calls that the child may ask about, and whether
// there are cancelled ones that it has not answered.
func (p *Process) OpenCalls() (calls int, cancelled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if c.asks {
			calls++
		}
	}
	return calls, len(p.forgotten) > 0
}

// Bounds of a paginated list: a child may never end it.
const (
	maxPages     = 1000
	maxItems     = 20_000 // what is longer is refused
	maxListBytes = jsonrpc.MaxLine
)

// Pages returns all items of a paginated list.
func (p *Process) Pages(ctx context.Context, method, member string) (all []json.RawMessage, err error) {
	var params json.RawMessage
	size := 0
	for range maxPages {
		result, err := p.Call(ctx, method, params)
		if err != nil {
			return nil, err
		}
		for item := range jsonrpc.Elements(jsonrpc.Get(result, member)) {
			if size += len(item); len(all) == maxItems || size > maxListBytes {
				return nil, fmt.Errorf("the %s of child %s are too many: at most %d and %d MiB are listed", member,
					p.spec.Name, maxItems, maxListBytes>>20)
			}
			all = append(all, item)
		}
		cursor := jsonrpc.Get(result, "nextCursor")
		if len(cursor) == 0 || cursor[0] != '"' {
			return all, nil
		}
		next := jsonrpc.Set(nil, "cursor", cursor)
		if string(next) == string(params) {
			return nil, fmt.Errorf("child %s gives the same page of %s again and again", p.spec.Name, member)
		}
		params = next
	}
	return nil, fmt.Errorf("child %s has more than %d pages of %s", p.spec.Name, maxPages, member)
}
