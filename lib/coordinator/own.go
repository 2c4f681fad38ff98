package coordinator

import (
	"context"
	"embed"
	"encoding/json"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"btools/lib/agent/agenttool"
	"btools/lib/jsonrpc"
	"btools/lib/mcp/child"
	"btools/lib/record"
	"btools/lib/tools"
)

// ownTool is a tool that bmcp answers itself. Do returns the structured result, or a *mcp.CallToolResult.
type ownTool = agenttool.Tool[func(ctx context.Context, req *request, args json.RawMessage) (any, error)]

// statusTool is the tool that says what is wrong.
const statusTool = "coordinator_status"

// schemas has the JSON Schemas of our own tools, in TOOL.json and TOOL.output.json, and argument.NAME.json for each
// argument by which tools of children choose a browser.
//
//go:embed schemas/*.json
var schemas embed.FS

// ownList returns the tools of bmcp that are offered with this source.
func (s *Server) ownList() (all []ownTool) {
	kind := s.Source.Kind
	builtin := slices.ContainsFunc(s.Children, func(child child.Spec) bool { return child.Builtin })
	of := ", or that of a session_id,"
	if !kind.HasSessions() {
		of = ""
	}
	for _, row := range []struct {
		offered bool
		ownTool
	}{
		{true, ownTool{Name: "coordinator_list_browsers", Title: "List browsers",
			About: "List the installed browsers that can be launched. Only needed to choose one: the browser starts " +
				"by itself.",
			Do: s.listBrowsers}},
		{true, ownTool{Name: statusTool, Title: "Status",
			About: "Show the browser, its debugging port, the MCP servers behind this one and what is wrong with " +
				"them. It starts nothing.",
			Do: s.status}},
		{kind.PoolStatus, ownTool{Name: "browser_pool_status", Title: "Pool status",
			About: "Show the pools of browsers, their instances, and which of them are in use.",
			Do:    s.poolStatus}},
		{kind.Launch, ownTool{Name: "coordinator_launch_browser", Title: "Launch browser",
			About: "Launch the browser with another type or with a window. Do not call it before using the browser " +
				"tools: they launch the browser themselves. A browser that runs with other options is replaced, " +
				"which loads its pages again.",
			Effect: agenttool.Destroys, Input: s.launchInput(), Do: s.launchBrowser}},
		{kind.Stop != "", ownTool{Name: "coordinator_stop_browser", Title: "Stop browser", About: kind.Stop,
			Effect: agenttool.Destroys, Input: s.whichInput("coordinator_stop_browser"), Do: s.stopBrowser}},
		{kind.Restart, ownTool{Name: "coordinator_restart_browser", Title: "Restart browser",
			About: "Replace the browser" + of + " by a fresh one with the same options, if it misbehaves; without " +
				"one, launch it. Its pages and logins are lost; the debugging port stays.",
			Effect: agenttool.Destroys, Input: s.whichInput("coordinator_restart_browser"), Do: s.restartBrowser}},
		{s.Source.Launched != nil, ownTool{Name: instanceTool, Title: "Browser instances",
			About: "List the browsers that have joined by the extension, launch another one (new), close one that " +
				"was launched here, or list the profiles of the user's own browsers. In mode chromium (the default) " +
				"and testing the browser has a new profile; in mode chrome it is the user's browser with one of " +
				"their profiles, and their logins.",
			Effect: agenttool.Destroys, Do: s.instanceAct}},
		{builtin, ownTool{
			Name: tools.SessionStats, Title: "Session statistics",
			About: "Your browser sessions, their tabs and idle time", Do: sessionStatsOf}},
		{s.keeps(), s.resultRow(s.placed(resultTool))},
		{s.keeps(), s.blobRow(s.placed(blobTool))},
		{!s.NoBulk, s.bulkTool()},
	} {
		if row.offered {
			row.Closed = true
			row.Read(schemas)
			all = append(all, row.ownTool)
		}
	}
	return all
}

func schemaFile(name string) json.RawMessage { return agenttool.Schema(schemas, name) }

// whichInput returns the schema of a tool that takes a session_id, with the arguments that the source has.
func (s *Server) whichInput(tool string) json.RawMessage {
	input := schemaFile(tool)
	if !s.Source.HasSessions() {
		input = withoutArgument(input, "session_id")
	}
	if slices.Contains(s.Source.Arguments, "instanceId") {
		input = argumentFiles("instanceId")[0].appendTo(input)
	}
	return input
}

// launchInput names the types that can be launched: no program of the agent's
// choice is one of them. Firefox is not where children drive the browser by
// DevTools.
func (s *Server) launchInput() json.RawMessage {
	schema := schemaFile("coordinator_launch_browser")
	if !slices.ContainsFunc(s.Children, func(child child.Spec) bool { return child.Drives() }) {
		return schema
	}
	types := slices.DeleteFunc(slices.Clone(record.Types), func(t string) bool { return t == record.Firefox })
	list, _ := json.Marshal(types) // which texts never fail
	properties := jsonrpc.Get(schema, "properties")
	browser := jsonrpc.Set(jsonrpc.Get(properties, "browserType"), "enum", list)
	return jsonrpc.Set(schema, "properties", jsonrpc.Set(properties, "browserType", browser))
}

// placed is the schema of a tool that takes the arguments by which others choose a browser, and does not need them.
func (s *Server) placed(tool string) json.RawMessage {
	input := schemaFile(tool)
	for _, name := range s.chosenBy() {
		a := argument{name, json.RawMessage(`{"type":"string"}`)}
		if strings.HasPrefix(name, "browser_") { // an ID may be written as a number
			a.schema = json.RawMessage(`{"anyOf":[{"type":"string"},{"type":"integer"},{"type":"null"}]}`)
		}
		input = a.appendTo(input)
	}
	return input
}

// bulkTool is browser_execute_bulk.
func (s *Server) bulkTool() ownTool {
	t := ownTool{Name: bulkName, Title: "Run several tools", Effect: agenttool.Destroys,
		About: "Run browser tools one after the other, in one call and on one browser. Results are returned for " +
			"commands that ask for them: as MCP results, their images after the text.",
		Input: schemaFile(bulkName), Do: s.bulk}
	if names := s.chosenBy(); len(names) > 0 {
		are := " are"
		if len(names) == 1 {
			are = " is"
		}
		t.About += " " + strings.Join(names, " and ") + are + " given here, not to the commands."
		for _, a := range argumentFiles(names...) {
			t.Input = a.appendTo(t.Input)
		}
	}
	return t
}

// makeOwn makes the list of our own tools.
func (s *Server) makeOwn() {
	s.own = map[string]*ownTool{}
	for _, t := range s.ownList() {
		if s.own[t.Name] = &t; t.Name != tools.SessionStats || s.Tools == nil || slices.Contains(s.Tools, t.Name) {
			s.ownTools = append(s.ownTools, t.Listed)
		}
	}
}

func (s *Server) isOwn(name string) bool { return s.own[name] != nil }

// callOwn runs a tool of our own with the arguments as they came, and returns its result, which may be an error for
// the agent.
func (req *request) callOwn(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	t := req.host.server.own[name]
	args, err := t.Arguments.Accept(args)
	var v any
	if err == nil {
		v, err = t.Do(ctx, req, args)
	}
	if err != nil {
		return faultResult(err), nil
	}
	if whole, ok := v.(*mcp.CallToolResult); ok {
		return json.Marshal(whole)
	}
	result, err := structured(v)
	if b, ok := v.(*bulkResult); ok && err == nil {
		if result = b.addTo(result); b.at != nil {
			result = req.host.noted(b.at, result)
		}
	}
	return result, err
}

// structured is the result of a tool of bmcp's own.
func structured(v any) (json.RawMessage, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(mcp.NewToolResultStructured(v, string(text)))
}
