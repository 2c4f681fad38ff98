package virtual

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A client may navigate at once: the session has prepared the new page by then.
// Otherwise the renderer crashed.
func TestNewPagesCanBeNavigatedAtOnce(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.Write([]byte("<html>"))
	}))
	defer site.Close()
	b := openShell(t)
	for range 8 {
		p, page := attached(t, newSession(t, b, Options{}))
		p.must(page, "Page.navigate", map[string]any{"url": site.URL})
		for {
			m := p.call(page, "Runtime.evaluate", map[string]any{"expression": "location.href"})
			for _, e := range append(p.events, m) {
				if s := string(e); strings.Contains(s, "rashed") {
					t.Fatalf("the page has crashed: %s", s)
				}
			}
			if strings.Contains(string(m), site.URL) {
				break
			}
		}
	}
}
