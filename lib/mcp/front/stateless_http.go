package front

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strconv"

	mcpgo "github.com/mark3labs/mcp-go/mcp"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/front/eventlog"
)

// stateless answers a message of a host without a session, whose requests state
// all that matters. All these hosts share one session, where each request gets an
// ID of bmcp's own.
func (f *httpFront) stateless(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) {
	if !m.IsRequest() {
		w.WriteHeader(http.StatusAccepted) // there is none that could be of use
		return
	}
	s := f.session("")
	if s == nil {
		httpError(w, http.StatusServiceUnavailable, m.ID, errStopping)
		return
	}
	if err := checkStateless(s, r.Header, m); err != nil {
		httpError(w, http.StatusBadRequest, m.ID, err)
		return
	}
	s.alive()
	own := json.RawMessage(`"` + rand.Text() + `"`)
	params, token := m.Params, jsonrpc.Get(m.Params, "_meta", "progressToken")
	if token != nil {
		params = jsonrpc.Set(params, "_meta", jsonrpc.Set(jsonrpc.Get(params, "_meta"), "progressToken", own))
	}
	st, _ := s.log.Begin(func(message []byte) []byte { return renamed(message, own, m.ID, token) }, string(own))
	listener := s.log.Listen(st)
	renamedRequest, err := jsonrpc.Parse(m.WithParams(params).WithID(own))
	s.Handle(renamedRequest, err)
	s.single(w, r, listener)
	// It is over, or the host is gone.
	s.log.Drop(string(own))
	s.Cancel(own, "the host is gone")
}

// isStatelessByHTTP reports whether a message is of the stateless protocol, by
// what it says of itself or by the version in its header.
func isStatelessByHTTP(m *jsonrpc.Message, version string, inSession bool) bool {
	return mcp.IsStateless(m) || !inSession && mcp.IsNewer(version)
}

// takesEmptyEvents reports whether hosts of a version take an event without
// data for what it is, and not for a message.
func takesEmptyEvents(version string) bool { return version >= mcp.Legacy }

// renamed translates a message for a host that knows another ID and another
// progress token.
func renamed(message []byte, own, id, token json.RawMessage) []byte {
	m, err := jsonrpc.Parse(message)
	if err != nil {
		return message
	}
	in := func(object json.RawMessage) (json.RawMessage, bool) {
		meta := jsonrpc.Get(object, "_meta")
		if string(jsonrpc.Get(meta, mcp.MetaSubscription)) != string(own) {
			return object, false
		}
		return jsonrpc.Set(object, "_meta", jsonrpc.Set(meta, mcp.MetaSubscription, id)), true
	}
	switch {
	case m.IsResponse():
		if result, ok := in(m.Result); ok {
			return jsonrpc.Response(id, result)
		}
		return m.WithID(id)
	case m.Method == "notifications/progress" && token != nil:
		return m.WithParams(jsonrpc.Set(m.Params, "progressToken", token)).Raw
	}
	if params, ok := in(m.Params); ok {
		return m.WithParams(params).Raw
	}
	return message
}

// checkStateless returns an error if a request of the stateless protocol lacks
// what it has to state, or contradicts its headers.
func checkStateless(host Host, h http.Header, m *jsonrpc.Message) error {
	if err := mcp.CheckMeta(m); err != nil {
		return err
	}
	version := jsonrpc.GetString(m.Params, "_meta", mcp.MetaVersion)
	if said := h.Get(mcpgo.HeaderProtocolVersion); said != version {
		return jsonrpc.Errorf(mcp.HeaderMismatch, "the header %s is %q, and the request's version is %q",
			mcpgo.HeaderProtocolVersion, said, version)
	}
	if err := mcp.CheckVersion(m); err != nil {
		return err
	}
	// It reads the body as encoding/json does, which takes "Name" for "name":
	// what we, and the children, take for the name has to be the same.
	for _, params := range []json.RawMessage{m.Params, subjects(m.Params)} {
		if err := mcpgo.ValidateStandardHeaders(h.Get, version, mcpgo.MCPMethod(m.Method), params); err != nil {
			return jsonrpc.Errorf(mcp.HeaderMismatch, "%v", err)
		}
	}
	if err := checkTaskHeader(h, m); err != nil {
		return err
	}
	if m.Method != "tools/call" {
		return nil
	}
	can := jsonrpc.Get(m.Params, "_meta", mcp.MetaCapabilities)
	tool := &mcpgo.Tool{RawInputSchema: host.InputSchema(jsonrpc.GetString(m.Params, "name"), can)}
	look := func(name string) (string, bool) { return h.Get(name), h.Values(name) != nil }
	if err := mcpgo.ValidateParamHeadersLookup(look, tool, subjects(m.Params)); err != nil {
		return jsonrpc.Errorf(mcp.HeaderMismatch, "%v", err)
	}
	return nil
}

// checkTaskHeader returns an error if a request about a task has the ID of another one
// in its header.
func checkTaskHeader(h http.Header, m *jsonrpc.Message) error {
	if !mcp.GrantedTasks.HasMethod(m.Method) {
		return nil
	}
	said, id := h.Get(mcpgo.HeaderName), jsonrpc.GetString(m.Params, "taskId")
	if decoded, ok := mcpgo.DecodeHeaderValue(said); !ok || decoded != id {
		return jsonrpc.Errorf(mcp.HeaderMismatch, "the header %s is %q, and the request's task is %q", mcpgo.HeaderName,
			said, id)
	}
	return nil
}

// subjects are those of a request's parameters that its headers repeat.
func subjects(params json.RawMessage) (some json.RawMessage) {
	for _, name := range []string{"name", "uri", "arguments", "taskId"} {
		if v := jsonrpc.Get(params, name); v != nil {
			some = jsonrpc.Set(some, name, v)
		}
	}
	return some
}

// statuses are those of HTTP that errors have in the stateless protocol.
var statuses = map[int]int{
	jsonrpc.MethodNotFound: http.StatusNotFound, mcp.HeaderMismatch: http.StatusBadRequest,
	mcp.MissingCapability: http.StatusBadRequest, mcp.UnsupportedVersion: http.StatusBadRequest,
}

// single answers with a stream of events, or with the answer alone if there is
// nothing else.
func (s *httpSession) single(w http.ResponseWriter, r *http.Request, l *eventlog.Listener) {
	message, err := l.Only(r.Context())
	if err != nil {
		return
	}
	if message == nil {
		s.stream(w, r, l)
		return
	}
	status := http.StatusOK
	if m, err := jsonrpc.Parse(message); err == nil && m.Error != nil {
		code, _ := strconv.Atoi(string(jsonrpc.Get(m.Error, "code")))
		if n := statuses[code]; n != 0 {
			status = n
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	out := s.front.flow.to(w)
	defer out.end()
	out.Write(message)
}
