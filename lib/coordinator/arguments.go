package coordinator

import (
	"encoding/json"
	"slices"

	"btools/lib/jsonrpc"
)

// argumentFiles are the named arguments, each with its schema.
func argumentFiles(names ...string) (all []argument) {
	for _, name := range names {
		all = append(all, argument{name, schemaFile("argument." + name)})
	}
	return all
}

// argument is one of a tool's arguments.
type argument struct {
	name   string
	schema json.RawMessage
}

// appendTo is the schema of an object with one more property, the last one.
func (a argument) appendTo(schema json.RawMessage) json.RawMessage {
	properties := jsonrpc.Get(schema, "properties")
	return jsonrpc.Set(schema, "properties", jsonrpc.Append(properties, a.name, a.schema))
}

// withoutArgument is the schema of a tool's input without one of its arguments.
func withoutArgument(schema json.RawMessage, name string) json.RawMessage {
	return jsonrpc.Set(schema, "properties", jsonrpc.Delete(jsonrpc.Get(schema, "properties"), name))
}

// chosenBy are the arguments by which our own tools choose a browser. None of them starts one with a state.
func (s *Server) chosenBy() []string {
	return slices.DeleteFunc(slices.Clone(s.Source.Arguments), func(name string) bool { return name == "state" })
}

// decorate gives a tool of a child the arguments that choose a browser, unless it has one
// of these. It returns those that the child does not get. First is true for the first tool
// of the list that gets these arguments: it has their descriptions.
func (s *Server) decorate(tool json.RawMessage, first bool) (json.RawMessage, []string) {
	names := s.Source.Arguments
	if len(names) == 0 {
		return tool, nil
	}
	shown, stripped := names, names
	if slices.Contains(names, "state") {
		// A tool that opens an address shows the argument for the login with which
		// the browser starts; others take it unless they have one of this name.
		properties := jsonrpc.Get(tool, "inputSchema", "properties")
		switch {
		case jsonrpc.Get(properties, "state") != nil:
			stripped, shown = []string{"session_id"}, []string{"session_id"}
		case jsonrpc.Get(properties, "url") == nil:
			shown = []string{"session_id"}
		}
	}
	tool, ok := withArguments(tool, shown...)
	if !ok {
		stripped = nil
	}
	if !first {
		tool = brief(tool, names...)
	}
	return tool, stripped
}

// withArguments gives a tool arguments that have a schema file, unless it has one
// of them.
func withArguments(tool json.RawMessage, names ...string) (json.RawMessage, bool) {
	schema := jsonrpc.Get(tool, "inputSchema")
	for _, name := range names {
		if jsonrpc.Get(schema, "properties", name) != nil {
			return tool, false
		}
	}
	if schema == nil {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	for _, a := range argumentFiles(names...) {
		schema = a.appendTo(schema)
	}
	return jsonrpc.Set(tool, "inputSchema", schema), true
}

// brief is a tool without the descriptions of arguments that tools before it in the
// list have as well: they would cost an agent as much as the tools themselves.
func brief(tool json.RawMessage, names ...string) json.RawMessage {
	schema := jsonrpc.Get(tool, "inputSchema")
	properties := jsonrpc.Get(schema, "properties")
	for _, name := range names {
		if has := jsonrpc.Get(properties, name); has != nil {
			properties = jsonrpc.Set(properties, name, jsonrpc.Delete(has, "description"))
		}
	}
	return jsonrpc.Set(tool, "inputSchema", jsonrpc.Set(schema, "properties", properties))
}
