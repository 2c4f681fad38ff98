package proxy

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"btools/lib/control"
	"btools/lib/guard"
	"btools/lib/virtual/sessions"
)

// check decides whether a request may reach the browser and launch it: the
// guard must allow it, and it must be a DevTools request.
func (p *Proxy) check(r *http.Request) *guard.Refusal {
	if no := p.Guard.Check(r); no != nil || p.Sessions != nil { // which know their paths
		return no
	}
	if r.ContentLength != 0 {
		return guard.Refuse(http.StatusRequestEntityTooLarge, control.BadRequest, "a DevTools request has no body")
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	if isUpgrade(r) {
		if r.Method != http.MethodGet {
			return guard.Refuse(http.StatusMethodNotAllowed, control.BadRequest,
				"a WebSocket request must use GET, not %s", r.Method)
		}
		if browserPath(path) || path == "/session" || isUnder(path, "/devtools/page/", "/session/") {
			return nil
		}
		return guard.Refuse(http.StatusNotFound, guard.NotFound, "there is no WebSocket at the path %q", r.URL.Path)
	}
	if _, ok := p.downloads(r); ok {
		return nil
	}
	method := http.MethodGet
	switch {
	case path == "/json/new":
		method = http.MethodPut
	case path == "/json", path == "/json/version", path == "/json/list", path == "/json/protocol",
		isUnder(path, "/json/activate/", "/json/close/", "/devtools/"):
	default:
		return guard.Refuse(http.StatusNotFound, guard.NotFound, "DevTools has no path %q", r.URL.Path)
	}
	if r.Method != method {
		return guard.Refuse(http.StatusMethodNotAllowed, control.BadRequest, "%s must be requested with %s, not %s",
			path, method, r.Method)
	}
	return nil
}

// downloads returns the GUID of the download that a request wants; "": the list
// of all. It returns false if it wants something else.
func (p *Proxy) downloads(r *http.Request) (guid string, ok bool) {
	if p.Downloads == nil {
		return "", false
	}
	return sessions.ParseDownloads(strings.TrimPrefix(r.URL.Path, "/"))
}

// browserPath reports whether a WebSocket's path means the running browser,
// whichever that is.
func browserPath(path string) bool {
	return path == "" || path == "/" || path == "/devtools/browser" || isUnder(path, "/devtools/browser/")
}

// isUnder reports whether path continues one of the prefixes.
func isUnder(path string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return len(path) > len(p) && strings.HasPrefix(path, p)
	})
}

func isUpgrade(r *http.Request) bool {
	return hasToken(r.Header["Connection"], "upgrade") && hasToken(r.Header["Upgrade"], "websocket")
}

func hasToken(values []string, word string) bool {
	for _, v := range values {
		for _, w := range strings.Split(v, ",") {
			if strings.EqualFold(strings.TrimSpace(w), word) {
				return true
			}
		}
	}
	return false
}

// chromeHost reports whether Chrome accepts a Host header: an IP address or
// localhost.
func chromeHost(host string) bool {
	name, ok := guard.HostName(host)
	return ok && (strings.EqualFold(name, "localhost") || net.ParseIP(name) != nil)
}

// describe formats a request for a message.
func describe(r *http.Request) string { return fmt.Sprintf("%s %s", r.Method, r.URL.Path) }
