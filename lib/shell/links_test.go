package shell

import (
	"context"
	"encoding/json"
	"testing"

	"btools/lib/jsonrpc"
)

// library is a server that has one resource.
type library struct{ peer }

func (library) call(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, error) {
	if jsonrpc.GetString(params, "uri") != "file:///a" {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "no such resource")
	}
	return json.RawMessage(`{"contents":[{"uri":"file:///a","blob":"AAEC"}]}`), nil
}

// What a result links to is what a caller saves: a link alone is none of its bytes.
func TestLinked(t *testing.T) {
	t.Parallel()
	h := &host{to: library{}}
	const text, link = `{"type":"text","text":"x"}`, `{"type":"resource_link","name":"a","uri":"file:///a"}`
	for given, want := range map[string]string{
		text: text,
		text + "," + link: text +
			`,{"type":"resource","resource":{"uri":"file:///a","blob":"AAEC"}}`,
		`{"type":"resource_link","name":"b","uri":"file:///b"}`: "",
	} {
		got, err := h.withLinked(t.Context(), json.RawMessage(`{"content":[`+given+`]}`))
		if want == "" && err == nil || want != "" && (err != nil || string(got) != `{"content":[`+want+`]}`) {
			t.Errorf("%s: %s, %v", given, got, err)
		}
	}
}
