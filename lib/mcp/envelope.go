package mcp

import (
	"encoding/json"
	"slices"

	"btools/lib/jsonrpc"
)

// Envelope is what a request says of itself and its host, whatever it asks for.
type Envelope struct {
	Era      Era
	Audience Audience
	Tasks    TaskForm
	Refused  error           // why the request is not served; nil: it is
	Level    int             // of the log messages that the host wants with the answer, see Levels
	Token    json.RawMessage // of its progress; nil: the host wants none
	Name     string          // of a tool or a prompt
	Args     json.RawMessage // of that
	URI      string          // of a resource
	Subject  string          // what a request that may be repeated is about
	State    string          // of the request that this one repeats, "": of none
	Input    json.RawMessage // what the host answers, by key, before it is asked
	Task     json.RawMessage // how it is to be executed as a task; nil: it is not
	MayAsk   bool            // the host may be asked by the answer
}

// Read reads the envelope of a request. LegacyTasks is the form of tasks for the host of
// the handshake, us is what bmcp is, as the hosts of the stateless protocol are told.
func Read(m *jsonrpc.Message, legacyTasks TaskForm, us json.RawMessage) Envelope {
	all := jsonrpc.GetAll(m.Params, "_meta", "name", "arguments", "uri", "task", "requestState", "inputResponses")
	meta := jsonrpc.GetAll(all[0], "progressToken", MetaVersion, MetaCapabilities, metaLogLevel)
	e := Envelope{Era: handshake{}, Level: AllLevels, Tasks: legacyTasks, Token: meta[0], Name: jsonrpc.String(all[1]),
		Args: all[2], URI: jsonrpc.String(all[3]), Task: all[4]}
	if !isStateless(m.Method, jsonrpc.String(meta[1])) {
		return e
	}
	can := meta[2]
	e.Era, e.Audience, e.Tasks, e.Refused = stateless{us, e.URI}, AudienceOf(can), taskFormOf(can), checkRequest(m)
	e.Level, e.State, e.Input = len(Levels), jsonrpc.String(all[5]), all[6]
	e.MayAsk = MayAsk(m.Method)
	if e.Subject = e.Name; m.Method == "resources/read" {
		e.Subject = e.URI
	}
	if i := slices.Index(Levels, jsonrpc.String(meta[3])); i >= 0 {
		e.Level = i
	}
	return e
}

// MayAsk reports whether a child may send requests to the host during a method.
func MayAsk(method string) bool { return slices.Contains(askers, method) }

// askers are the methods during which a child may send requests to the host.
var askers = []string{"tools/call", "tasks/result", "prompts/get", "resources/read"}

// AllLevels is the level of a host that wants all log messages.
const AllLevels = -1

// CheckMeta returns an error if a request of the stateless protocol lacks what it
// has to state.
func CheckMeta(m *jsonrpc.Message) error {
	meta := jsonrpc.Get(m.Params, "_meta")
	if jsonrpc.GetString(meta, MetaVersion) == "" {
		return jsonrpc.Errorf(jsonrpc.InvalidParams, "the member %q of _meta is missing", MetaVersion)
	}
	if caps := jsonrpc.Get(meta, MetaCapabilities); len(caps) == 0 || caps[0] != '{' {
		return jsonrpc.Errorf(jsonrpc.InvalidParams, "the member %q of _meta is missing, or no object",
			MetaCapabilities)
	}
	return nil
}

// CheckVersion returns an error for an unsupported version.
func CheckVersion(m *jsonrpc.Message) error {
	asked := jsonrpc.GetString(m.Params, "_meta", MetaVersion)
	if asked == Stateless {
		return nil
	}
	e := jsonrpc.Errorf(UnsupportedVersion, "the protocol version %q is not spoken here", asked)
	e.Data, _ = json.Marshal(map[string]any{"supported": []string{Stateless}, "requested": asked})
	return e
}

// checkRequest says why a request is refused, nil if it is not.
func checkRequest(m *jsonrpc.Message) error {
	if err := CheckMeta(m); err != nil {
		return err
	}
	if err := CheckVersion(m); err != nil {
		return err
	}
	switch m.Method {
	case "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		return jsonrpc.Errorf(jsonrpc.MethodNotFound, "%s has no method %q", Stateless, m.Method)
	}
	return nil
}
