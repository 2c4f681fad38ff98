package guard

import (
	"net/http"
	"strings"
)

// Sharing says what web pages may do here whose origin may ask: browsers want
// to be told (CORS).
type Sharing struct {
	Methods string   // of HTTP
	Headers []string // that a request may have
	Prefix  string   // of the names of others that it may have
	Exposed string   // headers of answers that a page may read
}

// pagesRemember is how long a browser keeps what it was told, in seconds.
const pagesRemember = "600"

// Pages says in an answer that a page may read it, if its origin is allowed.
// It reports whether all was asked that a page's request may come, which is
// answered then: that comes without the token, and changes nothing.
func (g *Guard) Pages(w http.ResponseWriter, r *http.Request, may Sharing) (answered bool) {
	if len(g.Origins) == 0 {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	origins := r.Header.Values("Origin")
	if len(origins) != 1 || !g.allows(origins[0]) || g.Token == "" && !loopbackHost(r.Host) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origins[0])
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		h.Set("Access-Control-Expose-Headers", may.Exposed)
		return false
	}
	headers := may.Headers
	for name := range strings.SplitSeq(r.Header.Get("Access-Control-Request-Headers"), ",") {
		if name = http.CanonicalHeaderKey(strings.TrimSpace(name)); strings.HasPrefix(name, may.Prefix) {
			headers = append(headers[:len(headers):len(headers)], name)
		}
	}
	h.Set("Access-Control-Allow-Methods", may.Methods)
	h.Set("Access-Control-Allow-Headers", strings.Join(headers, ", "))
	h.Set("Access-Control-Max-Age", pagesRemember)
	w.WriteHeader(http.StatusNoContent)
	return true
}
