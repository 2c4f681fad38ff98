package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"btools/lib/jsonrpc"
	"btools/lib/launch/options"
	"btools/lib/record"
)

const (
	instructions = `The browser tools launch their browser by themselves, at the first call that needs one. ` +
		`The coordinator_ tools are for exceptions: to see what is wrong, to choose another browser, to begin afresh. ` +
		`Stopping or restarting the browser loses its pages and logins.`
	poolInstructions = `The browser tools use a pool of browsers that are up already. Calls one after the other may land on different browsers: ` +
		`give browser_instance to stay on one, unless the pool's affinity is "session", which does that by itself. ` +
		`browser_pool_status shows the pools.`
)

// instructions are ours for the host.
func (c *Coordinator) instructions() string {
	if _, ok := c.Browsers.(*pooled); ok {
		return poolInstructions
	}
	return instructions
}

// sessionKey is the session's place in a context.
type sessionKey struct{}

// ownTool is a tool that bmcp answers itself.
type ownTool struct {
	name, title, description string
	input, output            string // schemas
	readOnly, destructive    bool
	do                       func(ctx context.Context, s *Session, args json.RawMessage) (any, error)
}

const (
	noInput      = `{"type":"object","properties":{},"additionalProperties":false}`
	launchInput  = `{"type":"object","properties":{"browserType":{"type":"string","description":"A type that coordinator_list_browsers shows (default: as before, else the first one installed)"},"headless":{"type":"boolean","description":"Without a window (default: as before, else true)"}},"additionalProperties":false}`
	statusOutput = `{"type":"object","properties":{"running":{"type":"boolean"},"proxy_port":{"anyOf":[{"type":"integer"},{"type":"null"}]},"browser":{"anyOf":[{"type":"object"},{"type":"null"}]},"last_exit":{"anyOf":[{"type":"string"},{"type":"null"}]},"vscode":{"type":"object"},"children":{"type":"array","items":{"type":"object"}},"notes":{"type":"array","items":{"type":"string"}},"pools":{"anyOf":[{"type":"object"},{"type":"null"}]}},"required":["running","proxy_port","browser","last_exit","vscode","children","notes","pools"]}`
)

func (c *Coordinator) ownList() []ownTool {
	all := []ownTool{
		{"coordinator_list_browsers", "List browsers", "List the installed browsers that can be launched. Only needed to choose one: the browser starts by itself.",
			noInput, `{"type":"object","properties":{"browsers":{"type":"array","items":{"type":"object"}}},"required":["browsers"]}`, true, false, c.listBrowsers},
		{"coordinator_status", "Status", "Show the browser, its debugging port, the MCP servers behind this one and what is wrong with them. It starts nothing.",
			noInput, statusOutput, true, false, c.status},
	}
	switch c.Browsers.(type) {
	case *single:
		all = append(all, []ownTool{
			{"coordinator_launch_browser", "Launch browser", "Launch the browser with another type or with a window. Do not call it before using the browser tools: they launch the browser themselves. A browser that runs with other options is replaced, and its pages are lost.",
				launchInput, statusOutput, false, true, c.launch},
			{"coordinator_stop_browser", "Stop browser", "Stop the browser, which loses its pages. Not needed when done: it ends with the session.",
				noInput, statusOutput, false, true, c.stop},
			{"coordinator_restart_browser", "Restart browser", "Replace the browser by a fresh one with the same options, if it misbehaves. Its pages and logins are lost; the debugging port stays.",
				noInput, statusOutput, false, true, c.restart},
		}...)
	case *pooled:
		all = append(all, ownTool{"browser_pool_status", "Pool status", "Show the pools of browsers, their instances, and which of them are in use.",
			`{"type":"object","properties":{"pool_name":{"type":"string","description":"Only this pool"}},"additionalProperties":false}`,
			`{"type":"object","properties":{"pools":{"type":"array","items":{"type":"object"}},"summary":{"type":"object"}},"required":["pools","summary"]}`, true, false, c.poolStatus})
	}
	return append(all, bulkTool(c))
}

// makeOwn registers our own tools.
func (c *Coordinator) makeOwn() {
	c.own = server.NewMCPServer("bmcp", c.Release, server.WithToolCapabilities(true), server.WithInputSchemaValidation(), server.WithInstructions(c.instructions()), server.WithTitle("Browsers"))
	for _, t := range c.ownList() {
		readOnly, destructive, closed := t.readOnly, t.destructive, false
		tool := mcp.NewToolWithRawSchema(t.name, t.description, json.RawMessage(t.input))
		tool.Title = t.title
		tool.RawOutputSchema = json.RawMessage(t.output)
		tool.Annotations = mcp.ToolAnnotation{Title: t.title, ReadOnlyHint: &readOnly, DestructiveHint: &destructive, OpenWorldHint: &closed}
		c.own.AddTool(tool, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			args, err := json.Marshal(r.GetRawArguments())
			if err != nil {
				return nil, err
			}
			s, _ := ctx.Value(sessionKey{}).(*Session)
			v, err := t.do(ctx, s, args)
			if err != nil {
				return mcp.NewToolResultError(err.Error()), nil
			}
			text, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			result := mcp.NewToolResultStructured(v, string(text))
			if b, ok := v.(*bulkResult); ok && b.at != nil && b.at.Pool != "" {
				result.Meta = &mcp.Meta{AdditionalFields: map[string]any{metaPool: b.at.Pool, metaInstance: b.at.Instance}}
			}
			return result, nil
		})
		raw, _ := json.Marshal(tool)
		c.ownTools = append(c.ownTools, raw)
	}
}

func (c *Coordinator) isOwn(name string) bool { return c.own.GetTool(name) != nil }

// ourAnswer is our own answer to a request.
func (s *Session) ourAnswer(ctx context.Context, m *jsonrpc.Message) (json.RawMessage, error) {
	b, err := json.Marshal(s.c.own.HandleMessage(context.WithValue(ctx, sessionKey{}, s), m.Raw))
	if err != nil {
		return nil, err
	}
	got, err := jsonrpc.Parse(b)
	if err != nil {
		return nil, err
	}
	return got.Result, errorOf(got)
}

func (c *Coordinator) listBrowsers(ctx context.Context, _ *Session, _ json.RawMessage) (any, error) {
	found, err := c.Detect(ctx)
	if err != nil {
		return nil, err
	}
	if found == nil {
		found = []json.RawMessage{}
	}
	return map[string]any{"browsers": found}, nil
}

type childStatus struct {
	Name    string   `json:"name"`
	Command []string `json:"command"`
	Running int      `json:"running"` // processes, over all sessions
	Tools   int      `json:"tools"`
	Cached  bool     `json:"cached"` // the tools are those of its last run
	Error   *string  `json:"error"`
}

type status struct {
	Running   bool            `json:"running"`
	ProxyPort *int            `json:"proxy_port"`
	Browser   json.RawMessage `json:"browser"` // type, path, version, and its instance
	LastExit  *string         `json:"last_exit"`
	VSCode    vsCode          `json:"vscode"`
	Children  []childStatus   `json:"children"`
	Notes     []string        `json:"notes"`
	Pools     json.RawMessage `json:"pools"` // as bpool status has it
}

func (c *Coordinator) status(ctx context.Context, _ *Session, _ json.RawMessage) (any, error) {
	st := status{VSCode: findVSCode(os.Getenv), Children: []childStatus{}, Notes: append([]string{}, c.tools().notes...)}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	switch b := c.Browsers.(type) {
	case *single:
		rec, err := b.status(ctx)
		if err != nil {
			st.Notes = append(st.Notes, err.Error())
		}
		st.proxied(rec)
	case *pooled:
		var err error
		if st.Pools, err = b.status(ctx, ""); err != nil {
			st.Notes = append(st.Notes, explain(err).Error())
		} else {
			st.Running = string(jsonrpc.Get(st.Pools, "summary", "healthy_instances")) != "0"
		}
	}
	c.mu.Lock()
	for i := range c.Children {
		child := &c.Children[i]
		l := c.listings[child.Name]
		cs := childStatus{Name: child.Name, Command: child.Argv, Tools: len(l.Tools), Cached: l.known && !l.live}
		if l.err != nil {
			text := l.err.Error()
			cs.Error = &text
		}
		st.Children = append(st.Children, cs)
	}
	sessions := slices.Collect(maps.Keys(c.sessions))
	c.mu.Unlock()
	for _, s := range sessions {
		st.Notes = append(st.Notes, s.slow()...)
		for _, p := range s.all() {
			i := slices.IndexFunc(c.Children, func(child Child) bool { return child.Name == p.child.Name })
			st.Children[i].Running++
		}
	}
	return st, nil
}

// proxied fills in what a proxy's record says.
func (st *status) proxied(rec *record.Record) {
	if rec == nil {
		return
	}
	var p record.Proxy
	var ps proxyStatus
	rec.Get("proxy", &p)
	rec.Get("status", &ps)
	st.ProxyPort = &p.Port
	st.Running = ps.State == "ready"
	if ps.LastExit != "" {
		st.LastExit = &ps.LastExit
	}
	if ps.LastError != "" {
		st.LastExit = &ps.LastError
	}
	if raw := rec.Raw("browser"); raw != nil && st.Running {
		st.Browser = jsonrpc.Set(raw, "instance", rec.Raw("instance"))
	}
}

// act has the proxy do something and tells how it is then.
func (c *Coordinator) act(ctx context.Context, s *Session, method string, o options.Options) (any, error) {
	if _, err := c.Browsers.(*single).control(ctx, method, o); err != nil {
		return nil, explain(err)
	}
	return c.status(ctx, s, nil)
}

func (c *Coordinator) launch(ctx context.Context, s *Session, args json.RawMessage) (any, error) {
	o := options.Options{Browser: jsonrpc.GetString(args, "browserType")}
	if o.Browser == "msedge" {
		o.Browser = record.Edge
	}
	if i := slices.IndexFunc(c.Children, func(child Child) bool { return child.takesEndpoint() }); i >= 0 && o.Browser == record.Firefox {
		return nil, fmt.Errorf("firefox speaks no DevTools, by which child %s drives its browser: choose one that has cdp among its protocols", c.Children[i].Name)
	}
	if h := jsonrpc.Get(args, "headless"); h != nil {
		v := string(h) == "true"
		o.Headless = &v
	}
	return c.act(ctx, s, "launch", o)
}

func (c *Coordinator) stop(ctx context.Context, s *Session, _ json.RawMessage) (any, error) {
	if rec, err := c.Browsers.(*single).status(ctx); err == nil && rec == nil {
		return c.status(ctx, s, nil) // there is nothing to stop
	}
	return c.act(ctx, s, "stop", options.Options{})
}

func (c *Coordinator) restart(ctx context.Context, s *Session, _ json.RawMessage) (any, error) {
	return c.act(ctx, s, "restart", options.Options{})
}

func (c *Coordinator) poolStatus(ctx context.Context, _ *Session, args json.RawMessage) (any, error) {
	st, err := c.Browsers.(*pooled).status(ctx, jsonrpc.GetString(args, "pool_name"))
	if err != nil {
		return nil, explain(err)
	}
	return st, nil
}

// vsCode is what there is of VS Code: its own browser (tier 2), its preview
// (tier 1), or nothing.
type vsCode struct {
	Tier    string `json:"tier"` // standard, 1 or 2
	Meaning string `json:"meaning"`
	CDPPort *int   `json:"cdp_port"`
}

// findVSCode looks for VS Code, where it says itself that it is.
func findVSCode(getenv func(string) string) vsCode {
	there := getenv("TERM_PROGRAM") == "vscode"
	for _, name := range []string{"VSCODE_INJECTION", "VSCODE_PID", "VSCODE_CWD"} {
		there = there || getenv(name) != ""
	}
	if !there {
		return vsCode{Tier: "standard", Meaning: "external browser"}
	}
	port := getenv("VSCODE_CDP_PORT")
	if port == "" {
		b, _ := os.ReadFile(filepath.Join(os.TempDir(), "vscode-cdp-port"))
		port = strings.TrimSpace(string(b))
	}
	if pid, err := strconv.Atoi(getenv("VSCODE_PID")); port == "" && err == nil {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		for _, a := range strings.Split(string(b), "\x00") {
			if v, ok := strings.CutPrefix(a, "--remote-debugging-port="); ok {
				port = v
			}
		}
	}
	if n, err := strconv.Atoi(port); err == nil && n > 0 && n < 65536 {
		return vsCode{Tier: "2", Meaning: "VS Code's own Chromium over CDP", CDPPort: &n}
	}
	return vsCode{Tier: "1", Meaning: "external browser and VS Code's preview"}
}
