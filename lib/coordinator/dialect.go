package coordinator

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"btools/lib/jsonrpc"
)

// dialect is the protocol of a request, where one differs from another. It is
// chosen once, where the request is parsed.
type dialect interface {
	// admit makes the session ready for a request. It reports whether that is to
	// be served: it may be answered already.
	admit(ctx context.Context, s *Session, m *jsonrpc.Message, req *request) bool
	// toChild is a request as a child knows it.
	toChild(p *process, req *request, m *jsonrpc.Message) *jsonrpc.Message
	// result is the result of a method as the host knows it, failure a child's
	// error, code an error's code.
	result(method string, result json.RawMessage) json.RawMessage
	failure(method string, got *jsonrpc.Message) *jsonrpc.Message
	code(code int) int
	// inputRequired is the result of a method that asks the host something; the
	// request has to be repeated with the key.
	inputRequired(method, key string, questions map[string]json.RawMessage) json.RawMessage
	// hears reports whether its host is told what belongs to no request.
	hears() bool
	// relaysUnknown reports whether a method that we do not know is for the only
	// child.
	relaysUnknown() bool
}

// Versions of the protocol.
const (
	// legacy is the newest one with a handshake: what children are spoken to in,
	// at most.
	legacy = "2025-11-25"
	// batching is the one that has batches: arrays of messages. It is the only
	// one.
	batching = "2025-03-26"
)

// isNewer reports whether a version of the protocol has no handshake.
func isNewer(version string) bool { return version > legacy }

// choose gives a request its dialect, by what it says of itself.
func (s *Session) choose(req *request, m *jsonrpc.Message) {
	if !isStateless(m) {
		req.dialect, req.Level, req.tasks = handshake{}, allLevels, s.handshakeForm()
		return
	}
	meta := jsonrpc.Get(m.Params, "_meta")
	can := jsonrpc.Get(meta, metaCapabilities)
	req.audience, req.Level, req.tasks = audience(askable(can)), len(levels), taskFormOf(can)
	if i := slices.Index(levels, jsonrpc.GetString(meta, metaLogLevel)); i >= 0 {
		req.Level = i
	}
	req.Subject, req.Input = subject(m), jsonrpc.Get(m.Params, "inputResponses")
	req.MayAsk = slices.Contains(askers, m.Method)
	req.dialect = &statelessDialect{release: s.c.Release, refused: checkRequest(m)}
}

// allLevels is the level of a host that wants all log messages.
const allLevels = -1

// handshake is the dialect of the protocols that begin with initialize: those
// that children are spoken to in.
type handshake struct{}

func (handshake) admit(ctx context.Context, s *Session, m *jsonrpc.Message, req *request) bool {
	switch {
	case m.Method == "initialize":
		s.initialize(ctx, m, req)
		return false
	case m.Method == "ping":
		return true
	case s.hostParams() == nil:
		s.fail(req, jsonrpc.Errorf(jsonrpc.InvalidRequest,
			"the first request is initialize, or says its protocol version in _meta"))
		return false
	}
	s.allowQuestions()
	return true
}

func (handshake) toChild(_ *process, _ *request, m *jsonrpc.Message) *jsonrpc.Message { return m }
func (handshake) result(_ string, result json.RawMessage) json.RawMessage             { return result }
func (handshake) failure(_ string, got *jsonrpc.Message) *jsonrpc.Message             { return got }
func (handshake) code(code int) int                                                   { return code }

// inputRequired is never called: its hosts are asked directly.
func (handshake) inputRequired(string, string, map[string]json.RawMessage) json.RawMessage {
	return nil
}

func (handshake) hears() bool         { return true }
func (handshake) relaysUnknown() bool { return true }

// statelessDialect is that of the stateless protocol.
type statelessDialect struct {
	release string // of bmcp
	refused error  // why the request is no such one, or not for us
}

// checkRequest says why a request is refused, nil if it is not.
func checkRequest(m *jsonrpc.Message) error {
	if err := checkMeta(m); err != nil {
		return err
	}
	if err := checkVersion(m); err != nil {
		return err
	}
	switch m.Method {
	case "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		return jsonrpc.Errorf(jsonrpc.MethodNotFound, "%s has no method %q", stateless, m.Method)
	}
	return nil
}

func (d *statelessDialect) admit(_ context.Context, s *Session, m *jsonrpc.Message, req *request) bool {
	if d.refused != nil {
		s.fail(req, d.refused)
		return false
	}
	if !s.children.hasRoom(req.audience, s.c.Limits.CapabilitySets) {
		req.audience = askNothing
	}
	if m.Method == "server/discover" {
		return true
	}
	s.allowQuestions()
	if s.resume(m, req) {
		return false
	}
	s.startAll(req.audience, false)
	return true
}

// toChild is the request as a child of the protocol before knows it, which is
// told first what it is to log.
func (d *statelessDialect) toChild(p *process, req *request, m *jsonrpc.Message) *jsonrpc.Message {
	p.logs(req.Level)
	params := m.Params
	meta := jsonrpc.Get(params, "_meta")
	for _, name := range []string{metaVersion, metaCapabilities, metaLogLevel, "io.modelcontextprotocol/clientInfo"} {
		meta = jsonrpc.Delete(meta, name)
	}
	params = jsonrpc.Set(params, "_meta", meta)
	for _, name := range []string{"inputResponses", "requestState", "task"} {
		params = jsonrpc.Delete(params, name)
	}
	return m.WithParams(params)
}

func (d *statelessDialect) result(method string, result json.RawMessage) json.RawMessage {
	setDefault := func(object json.RawMessage, name, value string) json.RawMessage {
		if jsonrpc.Get(object, name) != nil {
			return object
		}
		return jsonrpc.Set(object, name, json.RawMessage(value))
	}
	switch method {
	case "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list",
		"resources/read":
		result = setDefault(setDefault(result, "cacheScope", `"private"`), "ttlMs", "0")
	}
	server := `{"name":"bmcp","title":"` + title + `","version":` + strconv.Quote(d.release) + `}`
	meta := setDefault(jsonrpc.Get(result, "_meta"), metaServer, server)
	return setDefault(jsonrpc.Set(result, "_meta", meta), "resultType", `"complete"`)
}

// failure is an error about a resource as this protocol has it.
func (d *statelessDialect) failure(method string, got *jsonrpc.Message) *jsonrpc.Message {
	code, err := strconv.Atoi(string(jsonrpc.Get(got.Error, "code")))
	if method != "resources/read" || err != nil || d.code(code) == code {
		return got
	}
	e := jsonrpc.Set(got.Error, "code", strconv.AppendInt(nil, int64(d.code(code)), 10))
	other, _ := jsonrpc.Parse(jsonrpc.Set(got.Raw, "error", e))
	return other
}

func (d *statelessDialect) code(code int) int {
	if code == legacyNotFound {
		return jsonrpc.InvalidParams
	}
	return code
}

func (d *statelessDialect) inputRequired(method, key string, questions map[string]json.RawMessage) json.RawMessage {
	requests := json.RawMessage("{}")
	for name, question := range questions {
		requests = jsonrpc.Set(requests, name, question)
	}
	result := jsonrpc.Set(jsonrpc.Set(nil, "requestState", jsonrpc.Quote(key)), "inputRequests", requests)
	return d.result(method, jsonrpc.Set(result, "resultType", json.RawMessage(`"input_required"`)))
}

func (d *statelessDialect) hears() bool         { return false }
func (d *statelessDialect) relaysUnknown() bool { return false }
