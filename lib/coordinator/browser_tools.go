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

func (s *Server) poolStatus(ctx context.Context, req *request, args json.RawMessage) (any, error) {
	st, err := req.host.browsers.Status(ctx, jsonrpc.GetString(args, "pool_name"))
	if err != nil {
		return nil, err
	}
	return s.withChildren(st.Pools), nil
}

// control has the browser do something and tells how it is then.
func (s *Server) control(ctx context.Context, req *request, do source.Action, args json.RawMessage,
	o options.Options) (any, error) {
	w, err := source.RefIn(args, []string{"session_id", "instanceId"})
	if err != nil {
		return nil, err
	}
	if err := req.host.browsers.Control(ctx, do, w, o); err != nil {
		return nil, err
	}
	return s.status(ctx, req, nil)
}

func (s *Server) launchBrowser(ctx context.Context, req *request, args json.RawMessage) (any, error) {
	o := options.Options{Browser: jsonrpc.GetString(args, "browserType")}
	if h := jsonrpc.Get(args, "headless"); h != nil {
		v := string(h) == "true"
		o.Headless = &v
	}
	st, err := s.control(ctx, req, source.Launch, nil, o)
	var e *control.Error
	if errors.As(err, &e) && strings.Contains(e.Hint, "--no-headless") { // which is not the agent's to leave out
		err = fmt.Errorf("%s (with headless true it needs none)", e.Message)
	}
	if e != nil {
		if why, _, is := strings.Cut(e.Message, ": --browser names another"); is {
			err = fmt.Errorf("%s: browserType names another", why)
		}
	}
	return st, err
}

func (s *Server) stopBrowser(ctx context.Context, req *request, args json.RawMessage) (any, error) {
	return s.control(ctx, req, source.Stop, args, options.Options{})
}

func (s *Server) restartBrowser(ctx context.Context, req *request, args json.RawMessage) (any, error) {
	return s.control(ctx, req, source.Restart, args, options.Options{})
}
