package shell

import (
	"context"
	"encoding/json"

	"btools/lib/control"
	"btools/lib/jsonrpc"
)

// withLinked returns a result in which the resources stand that it has links to.
func (h *host) withLinked(ctx context.Context, result json.RawMessage) (json.RawMessage, error) {
	var all []json.RawMessage
	links := false
	for part := range jsonrpc.Elements(jsonrpc.Get(result, "content")) {
		if jsonrpc.GetString(part, "type") != "resource_link" {
			all = append(all, part)
			continue
		}
		links = true
		uri := jsonrpc.Get(part, "uri")
		read, err := h.to.call(ctx, "resources/read", jsonrpc.Set(nil, "uri", uri))
		if err != nil {
			return nil, control.Errorf(control.Failed, "cannot read %s, which the result links to: %v",
				jsonrpc.String(uri), err)
		}
		for resource := range jsonrpc.Elements(jsonrpc.Get(read, "contents")) {
			item := jsonrpc.Set(nil, "resource", resource)
			all = append(all, jsonrpc.Set(item, "type", json.RawMessage(`"resource"`)))
		}
	}
	if !links {
		return result, nil
	}
	return jsonrpc.Set(result, "content", jsonrpc.Array(all)), nil
}
