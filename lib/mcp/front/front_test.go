package front

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"btools/lib/jsonrpc"
)

// recorder is a server whose hosts note what they are given. It answers "initialize"
// and "ping" at once, and other requests when the test has it do that.
type recorder struct {
	batches bool
	schemas map[string]string // of tools
	busy    bool              // what Away reports

	mu  sync.Mutex
	all []*recorded
}

// recorded is one of its hosts.
type recorded struct {
	*recorder
	send   Send
	shared bool
	open   []string // IDs of requests
	got    []string // messages, and what else it is told
}

func (r *recorder) New(send Send, shared bool) Host {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &recorded{recorder: r, send: send, shared: shared}
	r.all = append(r.all, h)
	return h
}

// last is the host that came last.
func (r *recorder) last() *recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[len(r.all)-1]
}

func (h *recorded) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got = append(h.got, fmt.Sprintf(format, args...))
}

// heard is what the host was given since it was asked last.
func (h *recorded) heard() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	got := h.got
	h.got = nil
	return got
}

func (h *recorded) Handle(m *jsonrpc.Message, err error) {
	switch {
	case err != nil:
		h.note("error: %v", err)
		return
	case !m.IsRequest():
		h.note("%s", m.Method)
		return
	}
	h.note("%s %s", m.Method, m.ID)
	h.mu.Lock()
	h.open = append(h.open, string(m.ID))
	h.mu.Unlock()
	if m.Method == "initialize" || m.Method == "ping" {
		h.answer(string(m.ID), `{}`)
	}
}

// answer answers a request.
func (h *recorded) answer(id, result string) {
	h.mu.Lock()
	if i := slices.Index(h.open, id); i >= 0 {
		h.open = slices.Delete(h.open, i, i+1)
	}
	h.mu.Unlock()
	h.send(json.RawMessage(id), true, jsonrpc.Response(json.RawMessage(id), json.RawMessage(result)))
}

func (h *recorded) Cancel(id json.RawMessage, why string) { h.note("cancel: %s", why) }

func (h *recorded) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.open)
}

func (h *recorded) TakesBatches() bool { return h.batches }

func (h *recorded) InputSchema(tool string, _ json.RawMessage) json.RawMessage {
	return json.RawMessage(h.schemas[tool])
}

func (h *recorded) Mute() { h.note("mute") }

func (h *recorded) Away() bool {
	h.note("away")
	return h.busy
}

func (h *recorded) Drain(context.Context) { h.note("drain") }

func (h *recorded) Close() {
	h.note("close")
	h.mu.Lock()
	open := slices.Clone(h.open)
	h.mu.Unlock()
	for _, id := range open {
		h.answer(id, `"ended"`)
	}
}

// opened are the IDs of the requests that the host that came last has to answer.
func (r *recorder) opened() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		return nil
	}
	return slices.Clone(r.all[len(r.all)-1].open)
}
