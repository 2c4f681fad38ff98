package calls

import (
	"context"
	"encoding/json"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"

	"btools/lib/agent/toolline"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/child"
	"btools/lib/mcp/front"
)

// host is the host of MCP that the calls of one session are together.
type host struct {
	server front.Host     // nil: it is far
	far    *child.Process // a server at a URL
	lost   func(error)    // is called when that has ended

	mu    sync.Mutex
	last  int // the number of the latest request
	open  map[string]chan<- *jsonrpc.Message
	dir   string          // of the latest call; "": it may use no files
	tools *toolline.Tools // nil: they are to be listed
	lists int             // how often they have changed
}

// newHost begins to talk to a server. One at a URL may be lost.
func newHost(to Server, lost func(error)) (*host, error) {
	h := &host{open: map[string]chan<- *jsonrpc.Message{}, lost: lost}
	if err := to.begin(h); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *host) close() {
	if h.far != nil {
		h.far.Stop(nil)
	} else {
		h.server.Close()
	}
}

// receive takes a message of the server.
func (h *host) receive(to json.RawMessage, last bool, raw []byte) {
	m, err := jsonrpc.Parse(raw)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case m.IsResponse():
		if answer := h.open[string(m.ID)]; answer != nil {
			delete(h.open, string(m.ID))
			answer <- m
		}
	case m.Method == "notifications/tools/list_changed":
		h.tools = nil
		h.lists++
	case m.IsRequest():
		answer := h.answerLocked(m)
		go h.handle(answer)
	}
}

// answerLocked answers a request of the server.
func (h *host) answerLocked(m *jsonrpc.Message) []byte {
	switch m.Method {
	case "ping":
		return jsonrpc.Response(m.ID, json.RawMessage("{}"))
	case "roots/list":
		roots := json.RawMessage(`{"roots":[]}`)
		if h.dir != "" {
			u := url.URL{Scheme: "file", Path: filepath.ToSlash(h.dir)}
			roots = json.RawMessage(`{"roots":[{"uri":` + string(jsonrpc.Quote(u.String())) + `}]}`)
		}
		return jsonrpc.Response(m.ID, roots)
	}
	return jsonrpc.Failure(m.ID, jsonrpc.Errorf(jsonrpc.MethodNotFound, "a shell has no %s", m.Method))
}

func (h *host) handle(raw []byte) {
	if h.far != nil {
		h.far.Send(raw)
	} else {
		h.server.Handle(jsonrpc.Parse(raw))
	}
}

// request makes a request. If the context ends, it is cancelled.
func (h *host) request(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if h.far != nil {
		return h.far.Call(ctx, method, params)
	}
	answer := make(chan *jsonrpc.Message, 1)
	h.mu.Lock()
	h.last++
	id := strconv.Itoa(h.last)
	h.open[id] = answer
	h.mu.Unlock()
	h.handle(jsonrpc.Request(json.RawMessage(id), method, params))
	select {
	case m := <-answer:
		return m.Result, jsonrpc.ErrorOf(m)
	case <-ctx.Done():
	}
	h.mu.Lock()
	delete(h.open, id)
	h.mu.Unlock()
	h.handle(jsonrpc.Request(nil, "notifications/cancelled", json.RawMessage(`{"requestId":`+id+`}`)))
	return nil, context.Cause(ctx)
}

// initialize introduces the host. Directories of this machine are nothing to a server elsewhere.
func (h *host) initialize(ctx context.Context, release string) error {
	capabilities := `{"roots":{"listChanged":true}}`
	if h.far != nil {
		capabilities = "{}"
	}
	_, err := h.request(ctx, "initialize", json.RawMessage(`{"protocolVersion":"`+mcp.Legacy+
		`","capabilities":`+capabilities+`,"clientInfo":{"name":"bmcp call","version":`+
		string(jsonrpc.Quote(release))+`}}`))
	if err == nil {
		h.handle(jsonrpc.Request(nil, "notifications/initialized", nil))
	}
	return err
}

// moveTo says in which directory the next call is made.
func (h *host) moveTo(dir string) {
	if h.far != nil {
		return
	}
	h.mu.Lock()
	moved := h.dir != dir
	h.dir = dir
	h.mu.Unlock()
	if moved {
		h.handle(jsonrpc.Request(nil, "notifications/roots/list_changed", nil))
	}
}

// list are the tools that there are now.
func (h *host) list(ctx context.Context) (*toolline.Tools, error) {
	h.mu.Lock()
	known, list := h.tools, h.lists
	h.mu.Unlock()
	if known != nil {
		return known, nil
	}
	var all []json.RawMessage
	params := json.RawMessage("{}")
	for {
		result, err := h.request(ctx, "tools/list", params)
		if err != nil {
			return nil, err
		}
		for tool := range jsonrpc.Elements(jsonrpc.Get(result, "tools")) {
			all = append(all, shown(tool))
		}
		next := jsonrpc.Get(result, "nextCursor")
		if next == nil {
			break
		}
		params = json.RawMessage(`{"cursor":` + string(next) + `}`)
	}
	read := toolline.Of(all)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lists == list { // else they have changed meanwhile
		h.tools = read
	}
	return read, nil
}

// shown is a tool without the argument that chooses a session: a call has one.
func shown(tool json.RawMessage) json.RawMessage {
	schema := jsonrpc.Get(tool, "inputSchema")
	properties := jsonrpc.Get(schema, "properties")
	if jsonrpc.Get(properties, "session_id") == nil {
		return tool
	}
	properties = jsonrpc.Delete(properties, "session_id")
	return jsonrpc.Set(tool, "inputSchema", jsonrpc.Set(schema, "properties", properties))
}
