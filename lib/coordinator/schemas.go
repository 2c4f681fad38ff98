package coordinator

import (
	"bytes"
	"embed"
	"encoding/json"
	"slices"

	"btools/lib/jsonrpc"
	"btools/lib/record"
)

// schemas has the JSON Schemas of our own tools, each in TOOL.json and
// TOOL.output.json, and argument.NAME.json for each argument by which
// tools of children choose a browser.
//
//go:embed schemas/*.json
var schemas embed.FS

// schemaFile is the JSON Schema in a file, without the white space of a file for
// people.
func schemaFile(name string) json.RawMessage {
	b, err := schemas.ReadFile("schemas/" + name + ".json")
	if err != nil {
		panic(err) // it is ours
	}
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// launchInput names the types that can be launched: no program of the agent's
// choice is one of them. Firefox is not where children drive the browser by
// DevTools.
func (c *Coordinator) launchInput() json.RawMessage {
	schema := schemaFile("coordinator_launch_browser")
	if !slices.ContainsFunc(c.Children, func(child Child) bool { return child.drives }) {
		return schema
	}
	types := slices.DeleteFunc(slices.Clone(record.Types), func(t string) bool { return t == record.Firefox })
	list, _ := json.Marshal(types) // which texts never fail
	properties := jsonrpc.Get(schema, "properties")
	browser := jsonrpc.Set(jsonrpc.Get(properties, "browserType"), "enum", list)
	return jsonrpc.Set(schema, "properties", jsonrpc.Set(properties, "browserType", browser))
}
