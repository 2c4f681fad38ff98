package front

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// The OpenAPI document of bpool has each path below a browser's address, with its method, and no other; its codes of
// errors have the statuses with which they are answered.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	const lease = "/lease/{lease}"
	text, err := os.ReadFile("../pool/web/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths      map[string]map[string]any
		Components struct {
			PathItems map[string]map[string]any
			Schemas   struct {
				Code struct {
					OneOf []struct {
						Const  string
						Status []int `json:"x-status"`
					}
				}
			}
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{strings.TrimSuffix(DownloadsPath, "/"): "get", DownloadsPath + "{id}": "get"}
	for _, e := range endpoints {
		path := e.path
		if strings.HasSuffix(path, "/") {
			path += "{id}"
		}
		want[path] = strings.ToLower(e.method)
	}
	have := map[string]string{}
	for path, item := range doc.Paths {
		below, ok := strings.CutPrefix(path, lease)
		if !ok {
			continue
		}
		if ref, ok := item["$ref"].(string); ok {
			item = doc.Components.PathItems[strings.TrimPrefix(ref, "#/components/pathItems/")]
		}
		var methods []string
		for name := range item {
			if name != "parameters" {
				methods = append(methods, name)
			}
		}
		have[below] = strings.Join(methods, " ")
	}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if have[path] != want[path] {
			t.Errorf("the document has %q of %s%s, want %q", have[path], lease, path, want[path])
		}
		delete(have, path)
	}
	if len(have) > 0 {
		t.Errorf("the document has paths that are not served: %v", have)
	}
	for _, c := range doc.Components.Schemas.Code.OneOf {
		if s := statuses[c.Const]; s != 0 && !slices.Contains(c.Status, s) {
			t.Errorf("the document has %s with the statuses %v, want %d", c.Const, c.Status, s)
		}
	}
}
