package agenttool

import (
	"testing"
	"testing/fstest"
)

// A host is told of a tool's effect only where that is not what it has to suppose.
func TestListed(t *testing.T) {
	files := fstest.MapFS{
		"schemas/look.json": {Data: []byte("{\n  \"type\": \"object\",\n" +
			`  "properties": {"n": {"type": "integer"}}` + "\n}")},
		"schemas/look.output.json": {Data: []byte(`{"type": "object"}`)},
	}
	const input = `"inputSchema":{"type":"object","properties":{"n":{"type":"integer"}}},"name":"look",`
	const output = `"outputSchema":{"type":"object"}}`
	for effect, hint := range map[Effect]string{Reads: `,"readOnlyHint":true`, Acts: `,"destructiveHint":false`,
		Destroys: ""} {
		tool := Tool[func()]{Name: "look", Title: "Look", About: "See", Effect: effect, Closed: effect == Reads}
		tool.Read(files)
		if effect == Reads {
			hint += `,"openWorldHint":false`
		}
		want := `{"annotations":{"title":"Look"` + hint + `},"description":"See",` + input + output
		if got := string(tool.Listed); got != want {
			t.Errorf("effect %d: %s, want %s", effect, got, want)
		}
		// An integer that no float has is left as it is.
		const args = `{"n":9007199254740993}`
		if got, err := tool.Arguments.Accept([]byte(args)); err != nil || string(got) != args {
			t.Errorf("%s: %s, %v", args, got, err)
		}
		if got, err := tool.Arguments.Accept([]byte(`{"m":1}`), "session_id"); err == nil {
			t.Errorf("an argument that there is not: %s", got)
		}
	}
}
