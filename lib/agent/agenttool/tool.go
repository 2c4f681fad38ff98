// Package agenttool is a row of a table of tools for agents: what a host is told of a tool, and the schema by which
// its arguments are checked. The tools that drive a page are one such table, those of bmcp itself another. What a
// tool does is not here, nor which tools a host is offered.
package agenttool

import (
	"bytes"
	"encoding/json"
	"io/fs"

	"github.com/mark3labs/mcp-go/mcp"

	"btools/lib/schema"
)

// Tool is a row. Do runs the tool, with arguments that Arguments accepts.
type Tool[Do any] struct {
	Name, Title, About string
	Effect             Effect
	Closed             bool   // no effect on anything but browsers and bmcp
	Group              string // name of its opt-in group; "" for tools that are always listed
	Extra              bool   // absence from the default list of @playwright/mcp
	Free               bool   // no use of the page, and no turn
	Task               bool   // it may run as a task
	// UI is what a host with MCP Apps is told of the tool, which no other host has; nil: all have it.
	UI map[string]any
	// Input is the JSON Schema of the arguments, Output that of structured results; nil: the schemas in NAME.json and,
	// if there is such a file, NAME.output.json.
	Input, Output json.RawMessage
	Do            Do

	// Read makes these.
	Arguments schema.Schema   // Input, to check arguments by
	Listed    json.RawMessage // the tool as tools/list has it
}

// Effect is what a host is told of a tool's effect.
type Effect int

const (
	Reads Effect = iota
	Acts
	Destroys
)

// Read reads the schemas, which are the program's own: a wrong one is a panic.
func (t *Tool[Do]) Read(files fs.FS) {
	if t.Input == nil {
		t.Input = Schema(files, t.Name)
	}
	if t.Output == nil {
		t.Output = Schema(files, t.Name+".output")
	}
	if err := json.Unmarshal(t.Input, &t.Arguments); err != nil {
		panic(t.Name + ": " + err.Error())
	}
	tool := mcp.NewToolWithRawSchema(t.Name, t.About, t.Input)
	tool.RawOutputSchema, tool.Annotations.Title = t.Output, t.Title
	switch t.Effect {
	case Reads:
		tool.Annotations.ReadOnlyHint = new(true)
	case Acts:
		tool.Annotations.DestructiveHint = new(false)
	}
	if t.Closed {
		tool.Annotations.OpenWorldHint = new(false)
	}
	if t.Task {
		tool.Execution = &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}
	}
	if t.UI != nil {
		tool.Meta = mcp.NewMetaFromMap(map[string]any{"ui": t.UI})
	}
	t.Listed, _ = json.Marshal(tool)
}

// Schema is the JSON Schema in schemas/NAME.json, without the white space of a file for people; nil: there is no such
// file.
func Schema(files fs.FS, name string) json.RawMessage {
	b, err := fs.ReadFile(files, "schemas/"+name+".json")
	if err != nil {
		return nil
	}
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		panic(name + ": " + err.Error())
	}
	return out.Bytes()
}
