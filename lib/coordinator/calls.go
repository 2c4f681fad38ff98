package coordinator

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

// newID returns an ID for a request to the child.
func (p *process) newID() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	return p.last
}

// relay sends a request unchanged but for its ID. Answer is called once, unless
// relay returns an error: then it is never called.
func (p *process) relay(n int64, m *jsonrpc.Message, answer func(*jsonrpc.Message, error)) error {
	p.mu.Lock()
	if p.err != nil {
		defer p.mu.Unlock()
		return p.err
	}
	p.calls[n] = call{answer, mcp.MayAsk(m.Method)}
	p.mu.Unlock()
	// If the child has ended, its end answers the request.
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

// cancel drops the answer to a request and tells the child, which may ignore that.
func (p *process) cancel(n int64, reason string) {
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

// tell sends a request whose answer matters only to the log.
func (p *process) tell(method string, params json.RawMessage) {
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
	if err := p.relay(p.newID(), m, answer); err != nil {
		answer(nil, err)
	}
}

// logs lowers the level that the child logs, if necessary. Of allLevels, the host has
// told it by itself.
func (p *process) logs(level int) {
	p.mu.Lock()
	more := level != mcp.AllLevels && level < p.logLevel && jsonrpc.Get(p.capabilities, "logging") != nil
	if more {
		p.logLevel = level
	}
	p.mu.Unlock()
	if more {
		p.tell("logging/setLevel", jsonrpc.Set(nil, "level", jsonrpc.Quote(mcp.Levels[level])))
	}
}

// call makes a request of bmcp's own and returns its result. An error of the child
// is a *jsonrpc.Error.
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
		return r.m.Result, jsonrpc.ErrorOf(r.m)
	case <-ctx.Done():
		p.cancel(n, context.Cause(ctx).Error())
		return nil, context.Cause(ctx)
	}
}

// answerTo returns the callback for the answer to a request, nil if nobody waits
// for it any more. Ours is false if there was no such request.
func (p *process) answerTo(id json.RawMessage) (answer func(*jsonrpc.Message, error), ours bool) {
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

// open returns the number of open calls that the child may ask about, and whether
// there are cancelled ones that it has not answered.
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

// Bounds of a paginated list: a child may never end it.
const (
	maxPages     = 1000
	maxItems     = 20_000
	maxListBytes = jsonrpc.MaxLine
)

// pages returns all items of a paginated list.
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
