//go:build linux

package cmdtest

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// Presence knows which pages of a site are open, whichever session they are in: each
// holds a request to its site. The zero value is ready.
type Presence struct {
	mu   sync.Mutex
	open map[string]int // by URL
}

// Here is what such a page has in its HTML.
const Here = `<script>new EventSource('/here?url=' + encodeURIComponent(location.href))</script>`

// Site serves a site; other answers all requests but those of Here.
func (p *Presence) Site(t *testing.T, other http.HandlerFunc) string {
	return Serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/here" {
			other(w, r)
			return
		}
		url := r.FormValue("url")
		p.add(url, 1)
		defer p.add(url, -1)
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
}

// Blank serves pages that show nothing.
func (p *Presence) Blank(t *testing.T) string {
	return p.Site(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, Here)
	})
}

func (p *Presence) add(url string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[string]int{}
	}
	p.open[url] += n
}

// Has reports whether a page is open whose URL contains the text.
func (p *Presence) Has(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for url, n := range p.open {
		if n > 0 && strings.Contains(url, text) {
			return true
		}
	}
	return false
}
