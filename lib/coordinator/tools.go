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

// leftInstructions are for an agent whose browser its tools launch.
const leftInstructions = `The browser tools launch their %[1]s by themselves. Playwright drives only a %[1]s of ` +
	`its own, not one that coordinator_list_browsers shows: ` +
	`if it is not installed, a person has to run "%[2]s".`

// instructions are ours for the host.
func (s *Server) instructions() string {
	drives := slices.ContainsFunc(s.Children, func(child child.Spec) bool { return child.Drives() })
	text := s.Source.Instructions
	switch left := s.Source.Type; {
	case !drives:
		text = s.Source.Bare
	case left != "":
		text = fmt.Sprintf(leftInstructions, left, child.InstallBrowser(left))
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
	if !s.Source.AnyProtocol {
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
