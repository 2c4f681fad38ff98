package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"btools/lib/agent/instances"
	"btools/lib/agent/source"
	"btools/lib/cdp"
	"btools/lib/jsonrpc"
)

// instanceTool is the name of the tool for browsers that join by the extension.
const instanceTool = "browser_instance"

// instanceAct does what the tool is called for.
func (s *Server) instanceAct(ctx context.Context, req *request, args json.RawMessage) (any, error) {
	launched := s.Source.Launched
	var r instances.Request
	if err := json.Unmarshal(args, &r); err != nil {
		return nil, err
	}
	switch action := jsonrpc.GetString(args, "action"); action {
	case "", "list":
		all, err := launched.List(ctx)
		if err != nil {
			return nil, source.Explain(err)
		}
		return map[string]any{"instances": all}, nil
	case "new":
		i, err := launched.New(ctx, r)
		if err != nil {
			return nil, source.Explain(err)
		}
		if r.URL != "" {
			if err := show(ctx, req.host.browsers, i.ID, r.URL); err != nil {
				launched.End(ctx, i.ID)
				return nil, fmt.Errorf("cannot open %s in the browser that was launched, which was stopped: %w", r.URL,
					source.Explain(err))
			}
		}
		return map[string]any{"instance": i}, nil
	case "close":
		id := jsonrpc.GetString(args, "instanceId")
		if err := launched.End(ctx, id); err != nil {
			return nil, source.Explain(err)
		}
		return map[string]any{"closed": id}, nil
	case "profiles":
		all, err := launched.Profiles()
		if err != nil {
			return nil, err
		}
		return map[string]any{"profiles": all}, nil
	default:
		return nil, fmt.Errorf("there is no action %q", action)
	}
}

// show opens a page in the tabs of the session in a browser, where the browser tools
// find it.
func show(ctx context.Context, browsers source.Browsers, instance, address string) error {
	at, err := browsers.Take(ctx, source.BrowserRef{Instance: instance})
	if err != nil {
		return err
	}
	defer at.Release()
	ctx, cancel := context.WithTimeout(ctx, showBound)
	defer cancel()
	conn, err := cdp.Dial(ctx, at.WSURL, func(cdp.Event) {})
	if err != nil {
		return err
	}
	defer conn.Close()
	page := func() (id, at string, err error) { // a session begins with a blank one
		var all struct {
			TargetInfos []struct{ TargetID, Type, URL string }
		}
		err = conn.Call(ctx, "", "Target.getTargets", nil, &all)
		for _, t := range all.TargetInfos {
			if t.Type == "page" {
				return t.TargetID, t.URL, err
			}
		}
		return "", "", cmp.Or(err, errors.New("its session has no tab"))
	}
	id, before, err := page()
	if err != nil {
		return err
	}
	var to struct{ SessionID string }
	params := map[string]any{"targetId": id, "flatten": true}
	if err := conn.Call(ctx, "", "Target.attachToTarget", params, &to); err != nil {
		return err
	}
	var gone struct{ ErrorText string }
	err = conn.Call(ctx, to.SessionID, "Page.navigate", map[string]string{"url": address}, &gone)
	// It may be slow, or fail, which the browser tools show. Else the browser tells where
	// it is a little later.
	for now := before; err == nil && gone.ErrorText == "" && now == before && address != before; {
		select {
		case <-time.After(20 * time.Millisecond):
			_, now, err = page()
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// showBound is how long the page of a browser that was launched may take to begin.
const showBound = 10 * time.Second
