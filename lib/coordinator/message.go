package coordinator

import (
	"encoding/json"

	"btools/lib/jsonrpc"
)

func orEmpty(args json.RawMessage) json.RawMessage {
	if len(args) == 0 || string(args) == "null" {
		return json.RawMessage("{}")
	}
	return args
}

// firstText is what a result says.
func firstText(result json.RawMessage) string {
	for c := range jsonrpc.Elements(jsonrpc.Get(result, "content")) {
		if t := jsonrpc.GetString(c, "text"); t != "" {
			return t
		}
	}
	return "it failed, and does not say why"
}
