package coordinator

import (
	"encoding/json"
	"slices"
	"strconv"

	"btools/lib/jsonrpc"
)

// dialect is the protocol of a request, where one differs from another. It is
// chosen once, where the request is parsed.
type dialect interface {
	// toChild is a request as a child knows it.
	toChild(m *jsonrpc.Message) *jsonrpc.Message
	// result is the result of a method as the host knows it, failure a child's
	// error, code an error's code.
	result(method string, result json.RawMessage) json.RawMessage
	failure(method string, got *jsonrpc.Message) *jsonrpc.Message
	code(code int) int
	// inputRequired is the result of a method that asks the host something; the
	// request has to be repeated with the key.
	inputRequired(method, key string, questions map[string]json.RawMessage) json.RawMessage
	// hasHandshake reports whether there is one host, which has begun the session by a
	// handshake. It is told what belongs to no request, and a method that we do not know
	// is for its only child.
	hasHandshake() bool
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

// envelope is what a request says of itself and its host, whatever it asks for.
type envelope struct {
	dialect  dialect
	audience audience
	tasks    taskForm
	refused  error           // why the request is not served; nil: it is
	level    int             // of the log messages that the host wants with the answer, see levels
	subject  string          // what the request is about
	input    json.RawMessage // what the host answers, by key, before it is asked
	mayAsk   bool            // the host may be asked by the answer
}

// readEnvelope reads the envelope of a request. LegacyTasks is the form of tasks for the
// host of the handshake, release is bmcp's.
func readEnvelope(m *jsonrpc.Message, legacyTasks taskForm, release string) envelope {
	if !isStateless(m) {
		return envelope{dialect: handshake{}, level: allLevels, tasks: legacyTasks}
	}
	meta := jsonrpc.Get(m.Params, "_meta")
	can := jsonrpc.Get(meta, metaCapabilities)
	e := envelope{dialect: &statelessDialect{release}, audience: audience(askable(can)), tasks: taskFormOf(can),
		refused: checkRequest(m), level: len(levels), subject: subject(m),
		input: jsonrpc.Get(m.Params, "inputResponses"), mayAsk: slices.Contains(askers, m.Method)}
	if i := slices.Index(levels, jsonrpc.GetString(meta, metaLogLevel)); i >= 0 {
		e.level = i
	}
	return e
}

// askers are the methods during which a child may send requests to the host.
var askers = []string{"tools/call", "tasks/result", "prompts/get", "resources/read"}

// allLevels is the level of a host that wants all log messages.
const allLevels = -1

// handshake is the dialect of the protocols that begin with initialize: those
// that children are spoken to in.
type handshake struct{}

func (handshake) toChild(m *jsonrpc.Message) *jsonrpc.Message             { return m }
func (handshake) result(_ string, result json.RawMessage) json.RawMessage { return result }
func (handshake) failure(_ string, got *jsonrpc.Message) *jsonrpc.Message { return got }
func (handshake) code(code int) int                                       { return code }

// inputRequired is never called: its hosts are asked directly.
func (handshake) inputRequired(string, string, map[string]json.RawMessage) json.RawMessage {
	return nil
}

func (handshake) hasHandshake() bool { return true }

// statelessDialect is that of the stateless protocol.
type statelessDialect struct {
	release string // of bmcp
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

// toChild is the request as a child of the protocol before knows it.
func (d *statelessDialect) toChild(m *jsonrpc.Message) *jsonrpc.Message {
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

func (d *statelessDialect) hasHandshake() bool { return false }
