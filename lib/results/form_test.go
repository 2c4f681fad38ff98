package results

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"btools/lib/jsonrpc"
)

// Of a server that keeps nothing, a caller gets the beginning, and the way to the whole.
func TestCut(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("日本語\n", 100)
	result := json.RawMessage(`{"content":[{"type":"text","text":` + string(jsonrpc.Quote(text)) +
		`},{"type":"image","data":"AA=="}]}`)
	for most, cut := range map[int]bool{0: false, len(text): false, 200: true} {
		got := Form{Text: most}.Cut(result)
		var parts []string
		for part := range jsonrpc.Elements(jsonrpc.Get(got, "content")) {
			parts = append(parts, jsonrpc.GetString(part, "text"))
		}
		if !cut && string(got) != string(result) || cut && (len(parts) != 3 || len(parts[0]) > most ||
			!strings.HasPrefix(text, parts[0]) || !utf8.ValidString(parts[0]) ||
			!strings.HasPrefix(parts[2], CutMark)) {
			t.Errorf("of %d bytes: %s", most, got)
		}
	}
}
