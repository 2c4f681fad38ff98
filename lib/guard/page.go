package guard

import (
	"net/http"
	"os"
	"strings"
)

// checkPage returns a refusal for a request to a port that has a page of its own, or nil.
func (g *Guard) checkPage(r *http.Request) *Refusal {
	if no := g.Browsers.check(r); no != nil {
		return no
	}
	if !loopbackHost(r.Host) {
		return Refuse(http.StatusForbidden, Forbidden, "the Host %q is neither a loopback address nor localhost",
			r.Host)
	}
	origins := r.Header.Values("Origin")
	isOwn := len(origins) == 1 && origins[0] == "http://"+r.Host
	if !isOwn && (len(origins) > 0 || r.Header.Get("Upgrade") != "") {
		return Refuse(http.StatusForbidden, Forbidden, "the Origin %q is not this page's", strings.Join(origins, ", "))
	}
	site := r.Header.Get("Sec-Fetch-Site")
	if site == "" || site == "none" || site == "same-origin" || isOpened(r) {
		return nil
	}
	return Refuse(http.StatusForbidden, Forbidden, "requests of other web pages are refused (Sec-Fetch-Site is %q)",
		site)
}

// isOpened reports whether a request loads the page as that of a tab: a link leads to it, say.
func isOpened(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/" && r.URL.RawQuery == "" &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// IsOurs reports whether a program of this user has sent a request; false if the system does not tell. The server of
// the request has ConnContext.
func IsOurs(r *http.Request) bool {
	p := peerOf(r)
	if p == nil {
		return false
	}
	s, err := p.socket()
	return err == nil && int(s.UID) == os.Getuid()
}
