package command

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/pool"
	"btools/lib/pool/web"
	"btools/lib/tokens"
)

// Each route of a service has a path in the OpenAPI document, and each path a route. What is below the path of a lease
// is compared by package front.
func TestOpenAPIRoutes(t *testing.T) {
	t.Parallel()
	v, _ := startService(t, "_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	f := &front.Front{Guard: guard.Guard{Tokens: &tokens.File{}}, Log: slog.New(slog.DiscardHandler)}
	routes := (&handler{service: v}).routes(f)
	w := httptest.NewRecorder()
	web.Describe(&front.Response{ResponseWriter: w}, nil)
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	var have []string
	for path, methods := range doc.Paths {
		if strings.HasPrefix(path, pool.RemotePrefix) {
			path, methods = pool.RemotePrefix, nil
		}
		have = append(have, path)
		k := slices.IndexFunc(routes, func(r front.Route) bool { return r.Path == path })
		if k < 0 {
			t.Errorf("the document has %s, which is not served", path)
			continue
		}
		for method := range methods {
			if routes[k].Get != (method == "get") {
				t.Errorf("the document has %s of %s, which is not served", method, path)
			}
		}
	}
	for _, r := range routes {
		if !slices.Contains(have, r.Path) {
			t.Errorf("%s is served, and the document does not have it", r.Path)
		}
	}
}
