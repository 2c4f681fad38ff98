package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"btools/lib/control"
	"btools/lib/jsonrpc"
	"btools/lib/launch/options"
	"btools/lib/record"
)

const (
	instructions = `The browser tools launch their browser by themselves, at the first call that needs one. ` +
		`The coordinator_ tools are for exceptions: to see what is wrong, to choose another browser, to begin afresh. ` +
		`Stopping or restarting the browser loses its pages and logins.`
	sessionInstructions = ` Agents that work at the same time each give a session_id of their own, such as sub-agent-1: ` +
		`calls with the same one share a browser of its own, without the logins of this one.`
	apartInstructions = `The browser tools launch their browser by themselves, at the first call that needs one, and show a browser that is this session's own. ` +
		`The coordinator_ tools are for exceptions: to see what is wrong, to begin afresh.`
	bareInstructions = `There are no browser tools here. coordinator_launch_browser launches a browser that programs can drive by DevTools, ` +
		`at the port that coordinator_status shows.`
	poolInstructions = `The browser tools use a pool of browsers that are up already, and stay on the one that the first call got. ` +
		`browser_instance and browser_pool name another one. In a pool whose affinity is "call", each call that names none may be on another one; ` +
		`results say which. browser_pool_status shows the pools.`
	barePoolInstructions = `There are no browser tools here. browser_pool_status shows the pools of browsers, which programs can drive by DevTools.`
	leftInstructions     = `The browser tools launch their %[1]s by themselves. Playwright drives only a %[1]s of its own, not one that coordinator_list_browsers shows: ` +
		`if it is not installed, a person has to run "npx playwright install %[1]s".`
)

// instructions are ours for the host.
func (c *Coordinator) instructions() string {
	drives := slices.ContainsFunc(c.Children, func(child Child) bool { return child.drives })
	text := ""
	switch b := c.Browsers.(type) {
	case *pooled:
		if text = poolInstructions; !drives {
			text = barePoolInstructions
		}
	case *single:
		switch {
		case !drives:
			text = bareInstructions
		case b.sessions.Sharing == Apart:
			text = apartInstructions + sessionInstructions
		case b.sessions.Sharing == Beside:
			text = instructions + sessionInstructions
		default:
			text = instructions
		}
	case noBrowser:
		if drives {
			text = fmt.Sprintf(leftInstructions, b.Type)
		}
	}
	if names, why := c.missing(); len(names) > 0 {
		text += " The tools of " + strings.Join(names, ", ") + " are missing: " + why + "."
	}
	return strings.TrimSpace(text)
}

// statusTool is the tool that says what is wrong.
const statusTool = "coordinator_status"

// sessionKey is the session's place in a context.
type sessionKey struct{}

// ownTool is a tool that bmcp answers itself.
type ownTool struct {
	name, title, description string
	input, output            string // schemas; no output: it is what coordinator_status has
	readOnly, destructive    bool
	do                       func(ctx context.Context, s *Session, args json.RawMessage) (any, error)
}

const (
	noInput      = `{"type":"object","properties":{},"additionalProperties":false}`
	launchInput  = `{"type":"object","properties":{"browserType":{"type":"string","enum":%s,"description":"A type that coordinator_list_browsers shows (default: as before, else the first one installed)"},"headless":{"type":"boolean","description":"Without a window (default: as before, else true)"}},"additionalProperties":false}`
	statusOutput = `{"type":"object","properties":{"running":{"type":"boolean"},"proxy_port":{"anyOf":[{"type":"integer"},{"type":"null"}]},"browser":{"anyOf":[{"type":"object"},{"type":"null"}]},"last_exit":{"anyOf":[{"type":"string"},{"type":"null"}]},"vscode":{"type":"object"},"children":{"type":"array","items":{"type":"object"}},"notes":{"type":"array","items":{"type":"string"}},"pools":{"anyOf":[{"type":"object"},{"type":"null"}]},"sessions":{"type":"array","items":{"type":"object"}}},"required":["running","proxy_port","browser","last_exit","vscode","children","notes","pools","sessions"]}`
	sessionInput = `{"type":"object","properties":{"session_id":{"type":"string","description":"That browser (default: this session's own)"}},"additionalProperties":false}`
)

func (c *Coordinator) ownList() []ownTool {
	all := []ownTool{
		{"coordinator_list_browsers", "List browsers", "List the installed browsers that can be launched. Only needed to choose one: the browser starts by itself.",
			noInput, `{"type":"object","properties":{"browsers":{"type":"array","items":{"type":"object"}}},"required":["browsers"]}`, true, false, c.listBrowsers},
		{statusTool, "Status", "Show the browser, its debugging port, the MCP servers behind this one and what is wrong with them. It starts nothing.",
			noInput, statusOutput, true, false, c.status},
	}
	switch b := c.Browsers.(type) {
	case *single:
		all = append(all, c.browserTools(b.sessions.Sharing)...)
	case *pooled:
		all = append(all, ownTool{"browser_pool_status", "Pool status", "Show the pools of browsers, their instances, and which of them are in use.",
			`{"type":"object","properties":{"pool_name":{"type":"string","description":"Only this pool"}},"additionalProperties":false}`,
			`{"type":"object","properties":{"pools":{"type":"array","items":{"type":"object"}},"summary":{"type":"object"}},"required":["pools","summary"]}`, true, false, c.poolStatus})
	}
	if !c.NoBulk {
		all = append(all, bulkTool(c))
	}
	return all
}

// browserTools are those that launch and stop the one browser. A host that has
// a virtual browser is not to end that of others.
func (c *Coordinator) browserTools(how Sharing) []ownTool {
	input, ids := sessionInput, ", or that of a session_id,"
	if how == Whole {
		input, ids = noInput, ""
	}
	stop := ownTool{"coordinator_stop_browser", "Stop browser", "Stop the browser" + ids + " which loses its pages. Not needed when done: it ends with the session.",
		input, "", false, true, c.stop}
	restart := ownTool{"coordinator_restart_browser", "Restart browser", "Replace the browser" + ids + " by a fresh one with the same options, if it misbehaves; without one, launch it. Its pages and logins are lost; the debugging port stays.",
		input, "", false, true, c.restart}
	if how == Whole {
		stop.description = strings.Replace(stop.description, "browser which", "browser, which", 1)
	}
	if how == Apart {
		return []ownTool{stop, restart}
	}
	return []ownTool{
		{"coordinator_launch_browser", "Launch browser", "Launch the browser with another type or with a window. Do not call it before using the browser tools: they launch the browser themselves. A browser that runs with other options is replaced, and its pages are lost.",
			c.launchInput(), "", false, true, c.launch},
		stop, restart,
	}
}

// launchInput names the types that can be launched: no program of the agent's
// choice is one of them. Firefox is not where children drive the browser by
// DevTools.
func (c *Coordinator) launchInput() string {
	types := slices.Clone(record.Types)
	if slices.ContainsFunc(c.Children, func(child Child) bool { return child.drives }) {
		types = slices.DeleteFunc(types, func(t string) bool { return t == record.Firefox })
	}
	list, _ := json.Marshal(types) // which texts never fail
	return fmt.Sprintf(launchInput, list)
}

// makeOwn registers our own tools.
func (c *Coordinator) makeOwn() {
	c.own = server.NewMCPServer("bmcp", c.Release, server.WithToolCapabilities(true), server.WithTitle("Browsers"))
	for _, t := range c.ownList() {
		readOnly, destructive, closed := t.readOnly, t.destructive, false
		tool := mcp.NewToolWithRawSchema(t.name, t.description, json.RawMessage(t.input))
		tool.Title = t.title
		if t.output != "" {
			tool.RawOutputSchema = json.RawMessage(t.output)
		}
		input := &schema{}
		if err := json.Unmarshal([]byte(t.input), input); err != nil {
			panic(err) // it is ours
		}
		tool.Annotations = mcp.ToolAnnotation{Title: t.title, ReadOnlyHint: &readOnly, DestructiveHint: &destructive, OpenWorldHint: &closed}
		c.own.AddTool(tool, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			args, err := json.Marshal(r.GetRawArguments())
			if err != nil {
				return nil, err
			}
			s, _ := ctx.Value(sessionKey{}).(*Session)
			if err := input.check(args); err != nil {
				return mcp.NewToolResultError(err.Error()), nil
			}
			v, err := t.do(ctx, s, args)
			if err != nil {
				return mcp.NewToolResultError(err.Error()), nil
			}
			text, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			result := mcp.NewToolResultStructured(v, string(text))
			if b, ok := v.(*bulkResult); ok {
				b.addTo(result)
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
	b, err := json.Marshal(s.c.own.HandleMessage(context.WithValue(ctx, sessionKey{}, s), m.WithID(json.RawMessage("0")))) // its ID may be one that it can't take
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
	Name    string  `json:"name"`
	Command string  `json:"command"` // the program or the package: arguments may be secret
	Running int     `json:"running"` // processes, over all sessions
	Tools   int     `json:"tools"`
	Cached  bool    `json:"cached"` // the tools are those of its last run
	Error   *string `json:"error"`
}

type status struct {
	Running   bool            `json:"running"`
	ProxyPort *int            `json:"proxy_port"`
	Browser   json.RawMessage `json:"browser"` // type, path, version, and its instance
	LastExit  *string         `json:"last_exit"`
	VSCode    vsCode          `json:"vscode"`
	Children  []childStatus   `json:"children"`
	Notes     []string        `json:"notes"`
	Pools     json.RawMessage `json:"pools"`    // as bpool status has it
	Sessions  []virtualStatus `json:"sessions"` // virtual browsers of this host
}

func (c *Coordinator) status(ctx context.Context, s *Session, _ json.RawMessage) (any, error) {
	st := status{VSCode: findVSCode(os.Getenv), Children: []childStatus{}, Sessions: []virtualStatus{}, Notes: append([]string{}, s.tools(capabilitiesOf(ctx)).notes...)}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	switch b := c.Browsers.(type) {
	case *single:
		rec, err := b.status(ctx)
		if err != nil {
			st.Notes = append(st.Notes, err.Error())
		}
		st.proxied(rec)
		st.Sessions = s.virtualsOf(ctx)
	case noBrowser:
		st.Notes = append(st.Notes, LeftNote(b.Type))
	case *pooled:
		var err error
		if st.Pools, err = b.status(ctx, ""); err != nil {
			st.Notes = append(st.Notes, explain(err).Error())
		} else {
			st.Pools = c.withChildren(st.Pools)
			st.Running = string(jsonrpc.Get(st.Pools, "summary", "healthy_instances")) != "0"
		}
	}
	c.mu.Lock()
	for i := range c.Children {
		child := &c.Children[i]
		l := c.listings[child.Name]
		cs := childStatus{Name: child.Name, Command: child.shown(), Tools: len(l.Tools), Cached: l.known && !l.live}
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
	if s != nil {
		s.forgetBrowser()
	}
	return c.status(ctx, s, nil)
}

func (c *Coordinator) launch(ctx context.Context, s *Session, args json.RawMessage) (any, error) {
	o := options.Options{Browser: jsonrpc.GetString(args, "browserType")}
	if h := jsonrpc.Get(args, "headless"); h != nil {
		v := string(h) == "true"
		o.Headless = &v
	}
	st, err := c.act(ctx, s, "launch", o)
	var e *control.Error
	if errors.As(err, &e) && strings.Contains(e.Hint, "--no-headless") { // which is not the agent's to leave out
		err = fmt.Errorf("%s (with headless true it needs none)", e.Message)
	}
	return st, err
}

func (c *Coordinator) stop(ctx context.Context, s *Session, args json.RawMessage) (any, error) {
	if st, done, err := c.endPart(ctx, s, args); done {
		return st, err
	}
	if rec, err := c.Browsers.(*single).status(ctx); err == nil && rec == nil {
		return c.status(ctx, s, nil) // there is nothing to stop
	}
	return c.act(ctx, s, "stop", options.Options{})
}

// restart replaces the browser; a virtual one is there again with the next call.
func (c *Coordinator) restart(ctx context.Context, s *Session, args json.RawMessage) (any, error) {
	if st, done, err := c.endPart(ctx, s, args); done {
		return st, err
	}
	return c.act(ctx, s, "restart", options.Options{})
}

// endPart ends the virtual browser that the arguments mean. It is not done if
// they mean the browser itself.
func (c *Coordinator) endPart(ctx context.Context, s *Session, args json.RawMessage) (st any, done bool, err error) {
	id, err := sessionIn(args)
	if err != nil || s == nil || s.virtualName(id) == "" {
		return nil, err != nil, err
	}
	s.endVirtual(id)
	st, err = c.status(ctx, s, nil)
	return st, true, err
}

func (c *Coordinator) poolStatus(ctx context.Context, _ *Session, args json.RawMessage) (any, error) {
	st, err := c.Browsers.(*pooled).status(ctx, jsonrpc.GetString(args, "pool_name"))
	if err != nil {
		return nil, explain(err)
	}
	return c.withChildren(st), nil
}
