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
	Level    int             // of the log messages that the host wants with the answer, see levels
	Subject  string          // what the request is about
	Input    json.RawMessage // what the host answers, by key, before it is asked
	MayAsk   bool            // the host may be asked by the answer
}

// Read reads the envelope of a request. LegacyTasks is the form of tasks for the host of
// the handshake, us is what bmcp is, as the hosts of the stateless protocol are told.
func Read(m *jsonrpc.Message, legacyTasks TaskForm, us json.RawMessage) Envelope {
	if !IsStateless(m) {
		return Envelope{Era: handshake{}, Level: AllLevels, Tasks: legacyTasks}
	}
	meta := jsonrpc.Get(m.Params, "_meta")
	can := jsonrpc.Get(meta, MetaCapabilities)
	e := Envelope{Era: stateless{us}, Audience: AudienceOf(can), Tasks: taskFormOf(can), Refused: checkRequest(m),
		Level: len(Levels), Subject: subject(m), Input: jsonrpc.Get(m.Params, "inputResponses"),
		MayAsk: MayAsk(m.Method)}
	if i := slices.Index(Levels, jsonrpc.GetString(meta, metaLogLevel)); i >= 0 {
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

// subject returns the name of what a request is about.
func subject(m *jsonrpc.Message) string {
	if m.Method == "resources/read" {
		return jsonrpc.GetString(m.Params, "uri")
	}
	return jsonrpc.GetString(m.Params, "name")
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
