package coordinator

import (
	"context"
	"encoding/json"
	"fmt"

	"btools/lib/coordinator/instances"
	"btools/lib/jsonrpc"
)

// instanceTool is the name of the tool for browsers that join by the extension.
const instanceTool = "browser_instance"

// instanceTools are the tools for browsers that join by the extension, if there
// is a hub.
func (c *Coordinator) instanceTools() []ownTool {
	if c.Instances == nil {
		return nil
	}
	return []ownTool{{instanceTool, "Browser instances", "List the browsers that have joined by the extension, " +
		"launch another one (new), close one that was launched here, or list the profiles of the user's own " +
		"browsers. In mode chromium (the default) and testing the browser has a new profile; in mode chrome it is " +
		"the user's browser with one of their profiles, and their logins.",
		schemaFile(instanceTool + ".input"), schemaFile(instanceTool + ".output"), false, true, c.instanceAct}}
}

// instanceAct does what the tool is called for.
func (c *Coordinator) instanceAct(ctx context.Context, _ *Session, args json.RawMessage) (any, error) {
	var r instances.Request
	if err := json.Unmarshal(args, &r); err != nil {
		return nil, err
	}
	switch action := jsonrpc.GetString(args, "action"); action {
	case "", "list":
		all, err := c.Instances.List(ctx)
		if err != nil {
			return nil, explain(err)
		}
		return map[string]any{"instances": all}, nil
	case "new":
		i, err := c.Instances.New(ctx, r)
		if err != nil {
			return nil, explain(err)
		}
		return map[string]any{"instance": i}, nil
	case "close":
		id := jsonrpc.GetString(args, "instanceId")
		if err := c.Instances.End(ctx, id); err != nil {
			return nil, explain(err)
		}
		return map[string]any{"closed": id}, nil
	case "profiles":
		all, err := c.Instances.Profiles()
		if err != nil {
			return nil, err
		}
		return map[string]any{"profiles": all}, nil
	default:
		return nil, fmt.Errorf("there is no action %q", action)
	}
}
