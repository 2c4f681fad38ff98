package guard

import (
	"net/http"
	"strings"
)

// CORS says what web pages of an allowed origin may do here, as their browsers
// require.
type CORS struct {
	Methods string   // of HTTP
	Headers []string // that a request may have
	Prefix  string   // of the names of other headers that it may have
	Exposed string   // headers of answers that a page may read
}

// corsMaxAge is how long a browser caches the answer to a preflight request, in
// seconds.
const corsMaxAge = "600"

// HandleCORS adds the headers that let a page read the answer, if its origin is
// allowed. It answers preflight requests itself and reports that: they come
// without the token, and change nothing.
func (g *Guard) HandleCORS(w http.ResponseWriter, r *http.Request, may CORS) (answered bool) {
	if len(g.Origins) == 0 {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	origins := r.Header.Values("Origin")
	if len(origins) != 1 || !g.allows(origins[0]) || g.Tokens == nil && !loopbackHost(r.Host) {
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
