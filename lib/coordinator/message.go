package coordinator

import (
	"encoding/json"
	"fmt"

	"btools/lib/jsonrpc"
)

// quote is a string in JSON.
func quote(s string) json.RawMessage {
	b, _ := json.Marshal(s) // which a string never fails
	return b
}

// withParams is the request with other parameters.
func withParams(m *jsonrpc.Message, params json.RawMessage) *jsonrpc.Message {
	other, _ := jsonrpc.Parse(jsonrpc.Set(m.Raw, "params", params))
	return other
}

func clip(b []byte) string {
	if len(b) > 200 {
		return fmt.Sprintf("%q…", b[:200])
	}
	return fmt.Sprintf("%q", b)
}

// errorOf is the error of a response, nil if it is none.
func errorOf(m *jsonrpc.Message) error {
	if m.Error == nil {
		return nil
	}
	e := &jsonrpc.Error{}
	if err := json.Unmarshal(m.Error, e); err != nil {
		e.Code, e.Message = jsonrpc.InternalError, string(m.Error)
	}
	return e
}

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
