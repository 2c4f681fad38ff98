package coordinator

import (
	"encoding/json"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// Members of a result's _meta.
const (
	metaPool     = "btools/pool"
	metaInstance = "btools/instance"
	metaReplaced = "btools/replaced"
	metaRestored = "btools/restored"
)

func (a *answer) noted() json.RawMessage { return a.host.noted(a.lease, a.result) }

// noted adds to a result what its reader has to know of the browser that it comes from.
func (h *Host) noted(p *source.Lease, result json.RawMessage) json.RawMessage {
	if len(result) == 0 || result[0] != '{' {
		return result // what no client takes, but its child's
	}
	r := h.browsers.Note(h.ctx, p)
	meta := jsonrpc.Get(result, "_meta")
	set := func(name, value string) {
		if value != "" {
			meta = jsonrpc.Set(meta, name, jsonrpc.Quote(value))
		}
	}
	set(metaInstance, p.Instance)
	set(metaPool, p.Pool)
	set(metaReplaced, r.Replaced)
	set(metaRestored, r.Restored)
	if meta != nil {
		result = jsonrpc.Set(result, "_meta", meta)
	}
	if text := r.Text(); text != "" {
		if content := jsonrpc.Get(result, "content"); len(content) > 1 && content[0] == '[' {
			result = jsonrpc.Set(result, "content", mcp.WithText(content, text))
		}
	}
	return result
}
