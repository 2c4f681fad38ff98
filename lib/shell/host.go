package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"

	"btools/lib/agent/toolline"
	"btools/lib/exit"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/results"
)

// host is the host of MCP that the calls of one session are together.
type host struct {
	to   peer
	name string      // of its browser, by which people find it
	lost func(error) // is told why a server at a URL has ended
	ours bool        // the server is a bmcp, which answers in the form that a call asks for
	dirs directories // of the calls; "": a call may use no files

	moving sync.Mutex
	told   string // the directory that the server knows, or may ask for

	mu    sync.Mutex
	tools *toolline.Tools // nil: they are to be listed
	lists int             // how often they have changed
}

// peer is the server's side of a host.
type peer interface {
	// call makes a request. If the context ends, it is cancelled.
	call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
	// send sends a notification, or the answer to a request of the server.
	send(raw []byte)
	close()
	// isHere reports whether the server can use the directories of this machine.
	isHere() bool
}

// newHost begins to talk to a server. One at a URL may be lost.
func newHost(to Server, name string, lost func(error)) (*host, error) {
	h := &host{name: name, lost: lost}
	var err error
	if h.to, err = to.connect(h); err != nil {
		return nil, err
	}
	return h, nil
}

// hears takes what the server says without being asked.
func (h *host) hears(m *jsonrpc.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case m.Method == "notifications/tools/list_changed":
		h.tools = nil
		h.lists++
	case m.IsRequest():
		answer := h.answerLocked(m)
		go h.to.send(answer)
	}
}

// answerLocked answers a request of the server.
func (h *host) answerLocked(m *jsonrpc.Message) []byte {
	switch m.Method {
	case "ping":
		return jsonrpc.Response(m.ID, json.RawMessage("{}"))
	case "roots/list":
		roots := json.RawMessage(`{"roots":[]}`)
		if dir := h.dirs.now(); dir != "" {
			u := url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}
			roots = json.RawMessage(`{"roots":[{"uri":` + string(jsonrpc.Quote(u.String())) + `}]}`)
		}
		return jsonrpc.Response(m.ID, roots)
	}
	return jsonrpc.Failure(m.ID, jsonrpc.Errorf(jsonrpc.MethodNotFound, "a shell has no %s", m.Method))
}

// initialize introduces the host. Directories of this machine are nothing to a server elsewhere.
func (h *host) initialize(ctx context.Context, release string) error {
	capabilities := `{"roots":{"listChanged":true}}`
	if !h.to.isHere() {
		capabilities = "{}"
	}
	us, err := h.to.call(ctx, "initialize", json.RawMessage(`{"protocolVersion":"`+mcp.Legacy+
		`","capabilities":`+capabilities+`,"clientInfo":{"name":"bmcp call","version":`+
		string(jsonrpc.Quote(release))+`}}`))
	if err == nil {
		h.ours = jsonrpc.GetString(us, "serverInfo", "name") == "bmcp"
		h.to.send(jsonrpc.Request(nil, "notifications/initialized", nil))
	}
	return err
}

// enter begins a call in a directory, which leave ends. Calls in others end before, and the server knows then.
func (h *host) enter(ctx context.Context, dir string) (leave func(), err error) {
	if !h.to.isHere() {
		return func() {}, nil
	}
	if err := h.dirs.enter(ctx, dir); err != nil {
		return nil, err
	}
	h.moving.Lock()
	defer h.moving.Unlock()
	if h.told != dir {
		h.told = dir
		h.to.send(jsonrpc.Request(nil, "notifications/roots/list_changed", nil))
	}
	return h.dirs.leave, nil
}

// list returns the tools that there are now.
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
		result, err := h.to.call(ctx, "tools/list", params)
		if err != nil {
			return nil, err
		}
		for tool := range jsonrpc.Elements(jsonrpc.Get(result, "tools")) {
			all = append(all, withoutSession(tool))
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

// explain adds to the error of a tool that is not there why tools of children are missing.
func (h *host) explain(ctx context.Context, err error) error {
	var unknown *toolline.UnknownError
	if !errors.As(err, &unknown) || !h.ours {
		return err
	}
	result, failed := h.to.call(ctx, "tools/list", json.RawMessage("{}"))
	why := jsonrpc.GetString(result, "_meta", results.MetaMissing)
	if failed != nil || why == "" {
		return err
	}
	return &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("%w; %s", unknown, why)}
}

// withoutSession returns a tool without the argument that chooses a session: a call has one.
func withoutSession(tool json.RawMessage) json.RawMessage {
	schema := jsonrpc.Get(tool, "inputSchema")
	properties := jsonrpc.Get(schema, "properties")
	if jsonrpc.Get(properties, "session_id") == nil {
		return tool
	}
	properties = jsonrpc.Delete(properties, "session_id")
	return jsonrpc.Set(tool, "inputSchema", jsonrpc.Set(schema, "properties", properties))
}
