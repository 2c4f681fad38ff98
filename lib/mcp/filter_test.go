package mcp

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestFilter(t *testing.T) {
	const want = `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":false,` +
		`"resourceSubscriptions":["a://x","a://y","a://z"]}`
	const resources = "notifications/resources/updated"
	for _, test := range []struct {
		can, agreed string
		uris        []string
		wants, not  [][2]string // methods and parameters of notifications
	}{
		{`{"tools":{},"resources":{"subscribe":true}}`,
			`{"resourceSubscriptions":["a://x","a://y"],"toolsListChanged":true}`, []string{"a://x", "a://y"},
			[][2]string{{"notifications/tools/list_changed"}, {resources, `{"uri":"a://x"}`},
				{resources, `{"uri":"a://y/below"}`}, {resources, `{"uri":"a://y#part"}`}},
			[][2]string{{"notifications/prompts/list_changed"}, {"notifications/resources/list_changed"},
				{resources, `{"uri":"a://xy"}`}, {resources, `{"uri":"a://z"}`}, {resources, "{}"},
				{"notifications/message"}}},
		{`{"prompts":{},"resources":{}}`, `{"promptsListChanged":true}`, nil,
			[][2]string{{"notifications/prompts/list_changed"}}, [][2]string{{resources, `{"uri":"a://x"}`}}},
		{"{}", "{}", nil, nil, [][2]string{{"notifications/tools/list_changed"}}},
	} {
		f, uris := Agree(json.RawMessage(want), json.RawMessage(test.can), 2)
		if string(f) != test.agreed || !slices.Equal(uris, test.uris) {
			t.Errorf("%s: %s, %q, want %s, %q", test.can, f, uris, test.agreed, test.uris)
		}
		for i, some := range [][][2]string{test.not, test.wants} {
			for _, n := range some {
				if got := f.Wants(n[0], json.RawMessage(n[1])); got != (i == 1) {
					t.Errorf("%s: %s passes: %v", f, n, got)
				}
			}
		}
	}
}
