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

func (c *Coordinator) poolStatus(ctx context.Context, req *request, args json.RawMessage) (any, error) {
	st, err := req.host.browsers.Status(ctx, jsonrpc.GetString(args, "pool_name"))
	if err != nil {
		return nil, err
	}
	return c.withChildren(st.Pools), nil
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
