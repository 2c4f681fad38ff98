package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
	"btools/lib/mcp/child"
)

const (
	instructions = `The browser tools launch their browser by themselves, at the first call that needs one. ` +
		`The coordinator_ tools are for exceptions: to see what is wrong, to choose another browser, to ` +
		`begin afresh. ` +
		`Stopping or restarting the browser loses its pages and logins.`
	sessionInstructions = ` Agents that work at the same time each give a session_id of their own, such ` +
		`as sub-agent-1: ` +
		`calls with the same one share a browser of its own, without the logins of this one; state at its first ` +
		`call has it start with a saved login, which browser_state lists.`
	apartInstructions = `The browser tools launch their browser by themselves, at the first call that needs one, and ` +
		`show a browser that is this session's own. ` +
		`The coordinator_ tools are for exceptions: to see what is wrong, to begin afresh.`
	guestInstructions = `The browser tools use a browser that another program has launched, and that stays: tabs ` +
		`that were open before may be a person's.`
	hubInstructions = `The browser tools use the browser of a person, with its logins, which has joined by an ` +
		`extension. They see the tabs that they have opened, and those that the person shares. If no browser has ` +
		`joined, a call says what the person has to do. browser_instance launches other browsers: without ` +
		`a person's browser, the browser tools use the one that was launched last. instanceId names another one. ` +
		`The coordinator_ tools are for exceptions: to see what is wrong, to begin afresh.`
	bareHubInstructions = `There are no browser tools here. coordinator_status shows the browser of a person that ` +
		`has joined by an extension, and its address for programs that speak DevTools.`
	bareInstructions = `There are no browser tools here. coordinator_launch_browser launches a browser that programs ` +
		`can drive by DevTools, ` +
		`at the port that coordinator_status shows.`
	poolInstructions = `The browser tools use a pool of browsers that are up already, and stay on the one that the ` +
		`first call got. ` +
		`browser_instance and browser_pool name another one. In a pool whose affinity is "call", each call that ` +
		`names none may be on another one; ` +
		`results say which. browser_pool_status shows the pools.`
	barePoolInstructions = `There are no browser tools here. browser_pool_status shows the pools of browsers, which ` +
		`programs can drive by DevTools.`
	leftInstructions = `The browser tools launch their %[1]s by themselves. Playwright drives only a %[1]s of ` +
		`its own, not one that coordinator_list_browsers shows: ` +
		`if it is not installed, a person has to run "%[2]s".`
)

// instructionsOf are what agents have to know of the browsers of a kind,
// bareInstructionsOf the same where no child drives them.
var (
	instructionsOf = map[source.Kind]string{
		source.SharedProfile: instructions, source.ProfileAndSessions: instructions + sessionInstructions,
		source.SessionsOnly: apartInstructions + sessionInstructions, source.Hub: hubInstructions + sessionInstructions,
		source.Pool: poolInstructions,
	}
	bareInstructionsOf = map[source.Kind]string{
		source.SharedProfile: bareInstructions, source.ProfileAndSessions: bareInstructions,
		source.SessionsOnly: bareInstructions,
		source.Hub:          bareHubInstructions, source.Pool: barePoolInstructions,
	}
)

// instructions are ours for the host.
func (s *Server) instructions() string {
	drives := slices.ContainsFunc(s.Children, func(child child.Spec) bool { return child.Drives() })
	kind := s.Source.Kind()
	text := instructionsOf[kind]
	switch {
	case !drives:
		text = bareInstructionsOf[kind]
	case s.Source.Guest() != nil:
		if text = guestInstructions; kind != source.SharedProfile {
			text += sessionInstructions
		}
	case kind == source.ByChild:
		text = fmt.Sprintf(leftInstructions, s.Source.Type(), child.InstallBrowser(s.Source.Type()))
	}
	if s.Secrets != nil {
		text += " For secrets of the user, type their names: " + s.Secrets.String() + "."
	}
	if names, why := s.catalog.Missing(); len(names) > 0 {
		text += " The tools of " + strings.Join(names, ", ") + " are missing: " + why + "."
	}
	return strings.TrimSpace(text)
}

// title is the name of bmcp for people.
const title = "Browsers"

// ourAnswer is our own answer to a request for what bmcp is.
func (h *Host) ourAnswer(req *request) (json.RawMessage, error) {
	var can mcp.ServerCapabilities
	can.Tools = &struct {
		ListChanged bool `json:"listChanged,omitempty"`
	}{true}
	if req.Method == "server/discover" {
		return json.Marshal(mcp.DiscoverResult{SupportedVersions: mcp.ValidProtocolVersions, Capabilities: can})
	}
	var host mcp.InitializeParams
	if err := json.Unmarshal(orEmpty(req.m.Params), &host); err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "bad parameters: %v", err)
	}
	return json.Marshal(mcp.InitializeResult{
		ProtocolVersion: mcp.NegotiateLegacyVersion(host.ProtocolVersion), Capabilities: can,
		ServerInfo: mcp.Implementation{Name: "bmcp", Title: title, Version: h.server.Release}})
}

func (s *Server) listBrowsers(ctx context.Context, _ *request, _ json.RawMessage) (any, error) {
	found, err := s.Detect(ctx)
	if err != nil {
		return nil, err
	}
	if kind := s.Source.Kind(); kind != source.Pool && kind != source.ByChild { // which launches no others
		found = slices.DeleteFunc(found, func(b json.RawMessage) bool {
			return !strings.Contains(string(jsonrpc.Get(b, "protocols")), `"cdp"`)
		})
	}
	if found == nil {
		found = []json.RawMessage{}
	}
	return map[string]any{"browsers": found}, nil
}

type childStatus struct {
	Name    string  `json:"name"`
	Command string  `json:"command"` // the program or the package: arguments may be secret
	Running int     `json:"running"` // processes, over all hosts
	Tools   int     `json:"tools"`
	Cached  bool    `json:"cached"` // the tools are those of its last run
	Error   *string `json:"error"`
}

type status struct {
	Running   bool                   `json:"running"`
	ProxyPort *int                   `json:"proxy_port"`
	Browser   json.RawMessage        `json:"browser"` // type, path, version, and its instance
	LastExit  *string                `json:"last_exit"`
	VSCode    vsCode                 `json:"vscode"`
	Children  []childStatus          `json:"children"`
	Notes     []string               `json:"notes"`
	Pools     json.RawMessage        `json:"pools"`    // as bpool status has it
	Sessions  []source.VirtualStatus `json:"sessions"` // virtual browsers of this host
}

func (s *Server) status(ctx context.Context, req *request, _ json.RawMessage) (any, error) {
	st := status{VSCode: findVSCode(os.Getenv), Children: []childStatus{}, Sessions: []source.VirtualStatus{},
		Notes: append([]string{}, req.host.tools(req.env.Audience).Notes...)}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	now, err := req.host.browsers.Status(ctx, "")
	if err != nil {
		now.Notes = append(now.Notes, err.Error())
	}
	st.Running, st.ProxyPort, st.Browser, st.LastExit = now.Running, now.Port, now.Browser, now.LastExit
	st.Notes = append(st.Notes, now.Notes...)
	st.Sessions = append(st.Sessions, now.Sessions...)
	if now.Pools != nil {
		st.Pools = s.withChildren(now.Pools)
		st.Running = string(jsonrpc.Get(st.Pools, "summary", "healthy_instances")) != "0"
	}
	for i := range s.Children {
		child := &s.Children[i]
		cs := childStatus{Name: child.Name, Command: child.Shown()}
		var err error
		if cs.Tools, cs.Cached, err = s.catalog.Status(child); err != nil {
			text := err.Error()
			cs.Error = &text
		}
		st.Children = append(st.Children, cs)
	}
	s.mu.Lock()
	hosts := slices.Collect(maps.Keys(s.hosts))
	s.mu.Unlock()
	for _, h := range hosts {
		st.Notes = append(st.Notes, h.slow()...)
		for _, p := range h.children.running() {
			i := slices.IndexFunc(s.Children, func(child child.Spec) bool { return child.Name == p.sup.child.Name })
			st.Children[i].Running++
		}
	}
	return st, nil
}
