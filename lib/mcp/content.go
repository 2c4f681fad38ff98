package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"

	"btools/lib/jsonrpc"
)

// WithText adds a text to an array of content.
func WithText(content json.RawMessage, text string) json.RawMessage {
	items := content[:len(content)-1]
	comma := ","
	if len(bytes.TrimSpace(items[1:])) == 0 {
		comma = ""
	}
	return fmt.Appendf(nil, `%s%s{"type":"text","text":%s}]`, items, comma, jsonrpc.Quote(text))
}
