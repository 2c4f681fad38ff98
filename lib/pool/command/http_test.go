package command

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/tokens"
)

// Everybody may ask whether the service is well, and only who has a token is told why it is not.
func TestHealthz(t *testing.T) {
	t.Parallel()
	v, _ := startService(t, "_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	log := slog.New(slog.DiscardHandler)
	path := t.TempDir() + "/tokens"
	if err := os.WriteFile(path, []byte("sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	known, err := tokens.Open(path, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	f := &front.Front{Guard: guard.Guard{Tokens: known}, Log: log}
	f.Routes = (&handler{service: v}).routes(f)
	check := func(query string, status int, want string) {
		t.Helper()
		w := httptest.NewRecorder()
		ctx := guard.ConnContext(t.Context(), nil)
		f.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/healthz"+query, nil))
		if w.Code != status || !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("/healthz%s: %d %s, want %d %s", query, w.Code, w.Body, status, want)
		}
	}
	check("", 200, "ok\n")
	v.StopLeasing()
	check("", 503, "not healthy\n")
	check("?token=wrong", 503, "not healthy\n")
	check("?token=sesame", 503, "the service is stopping")
}
