package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"btools/lib/agent/source"
	"btools/lib/control"
	"btools/lib/jsonrpc"
	"btools/lib/launch/options"
)

// browserTools are the tools for the browsers of the source.
func (c *Coordinator) browserTools() []ownTool {
	switch kind := c.Source.Kind(); kind {
	case source.ByChild:
		return nil
	case source.Pool:
		return []ownTool{{"browser_pool_status", "Pool status", "Show the pools of browsers, their instances, and " +
			"which of them are in use.",
			schemaFile("browser_pool_status"), schemaFile("browser_pool_status.output"), true, false,
			c.poolStatus}}
	default:
		return c.proxyTools(kind)
	}
}

func (c *Coordinator) poolStatus(ctx context.Context, req *request, args json.RawMessage) (any, error) {
	st, err := req.host.browsers.Status(ctx, jsonrpc.GetString(args, "pool_name"))
	if err != nil {
		return nil, err
	}
	return c.withChildren(st.Pools), nil
}

// proxyTools are those that launch and stop the one browser. A host that has
// a virtual browser is not to end that of others.
func (c *Coordinator) proxyTools(how source.Kind) []ownTool {
	stopInput, restartInput := schemaFile("coordinator_stop_browser"),
		schemaFile("coordinator_restart_browser")
	ids := ", or that of a session_id,"
	if how == source.SharedProfile {
		stopInput, restartInput = withoutArgument(stopInput, "session_id"), withoutArgument(restartInput, "session_id")
		ids = ""
	}
	if how == source.Hub {
		stopInput = argumentFiles("instanceId")[0].appendTo(stopInput)
	}
	stop := ownTool{"coordinator_stop_browser", "Stop browser", "Stop the browser" + ids +
		" which loses its pages. Not needed at the end: it stops with the session.",
		stopInput, nil, false, true, c.stopBrowser}
	restart := ownTool{"coordinator_restart_browser", "Restart browser", "Replace the browser" + ids +
		" by a fresh one with the same options, if it misbehaves; without one, launch it. Its pages and logins are " +
		"lost; the debugging port stays.",
		restartInput, nil, false, true, c.restartBrowser}
	if how == source.SharedProfile {
		stop.description = strings.Replace(stop.description, "browser which", "browser, which", 1)
	}
	if how == source.Hub {
		stop.description = "Close the tabs of this session, or of that of a session_id. The browser itself stays " +
			"with its user. Not needed when done: they close with the session."
		return []ownTool{stop}
	}
	if how == source.SessionsOnly {
		return []ownTool{stop, restart}
	}
	return []ownTool{
		{"coordinator_launch_browser", "Launch browser", "Launch the browser with another type or with a window. Do " +
			"not call it before using the browser tools: they launch the browser themselves. A browser that runs " +
			"with other options is replaced, which loads its pages again.",
			c.launchInput(), nil, false, true, c.launchBrowser},
		stop, restart,
	}
}

// control has the browser do something and tells how it is then.
func (c *Coordinator) control(ctx context.Context, req *request, do source.Action, args json.RawMessage,
	o options.Options) (any, error) {
	w, err := source.RefIn(args, []string{"session_id", "instanceId"})
	if err != nil {
		return nil, err
	}
	if err := req.host.browsers.Control(ctx, do, w, o); err != nil {
		return nil, err
	}
	return c.status(ctx, req, nil)
}

func (c *Coordinator) launchBrowser(ctx context.Context, req *request, args json.RawMessage) (any, error) {
	o := options.Options{Browser: jsonrpc.GetString(args, "browserType")}
	if h := jsonrpc.Get(args, "headless"); h != nil {
		v := string(h) == "true"
		o.Headless = &v
	}
	st, err := c.control(ctx, req, source.Launch, nil, o)
	var e *control.Error
	if errors.As(err, &e) && strings.Contains(e.Hint, "--no-headless") { // which is not the agent's to leave out
		err = fmt.Errorf("%s (with headless true it needs none)", e.Message)
	}
	return st, err
}

func (c *Coordinator) stopBrowser(ctx context.Context, req *request, args json.RawMessage) (any, error) {
	return c.control(ctx, req, source.Stop, args, options.Options{})
}

func (c *Coordinator) restartBrowser(ctx context.Context, req *request, args json.RawMessage) (any, error) {
	return c.control(ctx, req, source.Restart, args, options.Options{})
}
