package guard

import (
	"net/http"
	"strings"
)

// CORS says what web pages may do here whose origin may ask: browsers want
// to be told (CORS).
type CORS struct {
	Methods string   // of HTTP
	Headers []string // that a request may have
	Prefix  string   // of the names of others that it may have
	Exposed string   // headers of answers that a page may read
}

// corsMaxAge is how long a browser keeps what it was told, in seconds.
const corsMaxAge = "600"

// HandleCORS says in an answer that a page may read it, if its origin is allowed.
// It reports whether all was asked that a page's request may come, which is
// answered then: that comes without the token, and changes nothing.
func (g *Guard) HandleCORS(w http.ResponseWriter, r *http.Request, may CORS) (answered bool) {
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
	h.Set("Access-Control-Max-Age", corsMaxAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}
