package coordinator

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/record"
)

// health is how an instance is that bpool launches no browser for, as a child
// does: it is that of the child.
type health struct {
	LastCheck  *record.Time `json:"last_check"` // the last ping that was answered
	Responsive bool         `json:"responsive"`
	Error      *string      `json:"error"`
}

// withChildren completes what bpool says of its pools by what only we know.
func (c *Coordinator) withChildren(status json.RawMessage) json.RawMessage {
	var pools []json.RawMessage
	for p := range jsonrpc.Elements(jsonrpc.Get(status, "pools")) {
		var instances []json.RawMessage
		for i := range jsonrpc.Elements(jsonrpc.Get(p, "instances")) {
			if k := c.kidOf(jsonrpc.GetString(p, "name"), i); k != nil {
				i = k.describe(i)
			}
			instances = append(instances, i)
		}
		pools = append(pools, jsonrpc.Set(p, "instances", jsonrpc.Array(instances)))
	}
	return jsonrpc.Set(status, "pools", jsonrpc.Array(pools))
}

// kidOf is the child that launches an instance's browser, nil if none does.
func (c *Coordinator) kidOf(pool string, instance json.RawMessage) (found *kid) {
	kind := jsonrpc.GetString(instance, "browser")
	if kind != record.Firefox && kind != record.WebKit {
		return nil
	}
	c.mu.Lock()
	sessions := slices.Collect(maps.Keys(c.sessions))
	c.mu.Unlock()
	for _, s := range sessions {
		for _, k := range s.children.list() {
			if !k.child.drives || k.browser.Pool != pool || k.browser.Instance != jsonrpc.GetString(instance, "id") {
				continue
			}
			if found = k; k.running() != nil {
				return k
			}
		}
	}
	return found
}

// describe puts the child's process and health into an instance's status.
func (k *kid) describe(instance json.RawMessage) json.RawMessage {
	h := health{}
	p, err := k.proc.Last()
	if p != nil && err == nil {
		err = p.gone()
	}
	switch {
	case err != nil:
		text := err.Error()
		h.Error = &text
	case p != nil:
		instance = jsonrpc.Set(instance, "process_id", strconv.AppendInt(nil, int64(p.prog.pid()), 10))
		h.Responsive = true
		if at := p.pinged(); !at.IsZero() {
			h.LastCheck = &record.Time{Time: at}
		}
	default:
		return instance // it is being started
	}
	b, _ := json.Marshal(h) // which it never fails
	return jsonrpc.Set(instance, "health_check", b)
}

// pinged is when the child last answered a ping; zero: it has not been asked.
func (p *process) pinged() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ping
}
