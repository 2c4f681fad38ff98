package virtual

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
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
	b := sharedBrowser(t)
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
	// So may it if the page was made with an address, which the headless shell does not
	// begin to load before the page is prepared.
	p := connect(t, newSession(t, b, Options{}), "")
	began := time.Now()
	for n := range 3 {
		page := p.open(fmt.Sprint(site.URL, "/first/", n), "")
		next := fmt.Sprint(site.URL, "/next/", n)
		p.goTo(page, next)
		p.awaitTrue(page, fmt.Sprintf("location.href === %q && document.hasFocus()", next))
	}
	if took := time.Since(began); took > 3*readyTimeout { // each would wait that long
		t.Errorf("three pages that were made with an address took %v", took)
	}
}
