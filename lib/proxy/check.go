package proxy

import (
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"btools/lib/control"
)

// refusal is an answer that no browser is asked for.
type refusal struct {
	status int
	error  *control.Error
}

func refuse(status int, code, format string, args ...any) *refusal {
	return &refusal{status, control.Errorf(code, format, args...)}
}

// Codes of refusals, beside those of the control protocol.
const (
	Unauthorized = "unauthorized"
	Forbidden    = "forbidden"
	NotFound     = "not_found"
)

// check decides whether a request may reach the browser, and have it
// launched. A web page must not: it can send requests to any port of this
// machine, but not without saying so. It gives a WebSocket's Origin, and
// with any other request a Sec-Fetch-Site; by DNS rebinding it can pretend to
// be of our origin, but then the Host is a name.
func (p *Proxy) check(r *http.Request) *refusal {
	if p.Token != "" {
		if !p.authorized(r) {
			return refuse(http.StatusUnauthorized, Unauthorized, "no valid token: send Authorization: Bearer TOKEN, or ?token=TOKEN")
		}
	} else if !loopbackHost(r.Host) {
		return refuse(http.StatusForbidden, Forbidden, "the Host %q is neither a loopback address nor localhost: others need --token-file", r.Host)
	}
	origins := r.Header.Values("Origin")
	allowed := len(origins) == 1 && (slices.Contains(p.Origins, origins[0]) || slices.Contains(p.Origins, "*"))
	if len(origins) > 0 && !allowed {
		return refuse(http.StatusForbidden, Forbidden, "the Origin %q is not allowed: see --allow-origin", strings.Join(origins, ", "))
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && !allowed {
		return refuse(http.StatusForbidden, Forbidden, "a web page may not ask (Sec-Fetch-Site is %q): see --allow-origin", site)
	}
	if r.ContentLength != 0 {
		return refuse(http.StatusRequestEntityTooLarge, control.BadRequest, "no request of DevTools has a body")
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	if isUpgrade(r) {
		if r.Method != http.MethodGet {
			return refuse(http.StatusMethodNotAllowed, control.BadRequest, "a WebSocket begins with GET, not %s", r.Method)
		}
		if browserPath(path) || path == "/session" || within(path, "/devtools/page/", "/session/") {
			return nil
		}
		return refuse(http.StatusNotFound, NotFound, "no WebSocket has the path %q", r.URL.Path)
	}
	method := http.MethodGet
	switch {
	case path == "/json/new":
		method = http.MethodPut
	case path == "/json", path == "/json/version", path == "/json/list", path == "/json/protocol",
		within(path, "/json/activate/", "/json/close/", "/devtools/"):
	default:
		return refuse(http.StatusNotFound, NotFound, "DevTools has no path %q", r.URL.Path)
	}
	if r.Method != method {
		return refuse(http.StatusMethodNotAllowed, control.BadRequest, "%s wants %s, not %s", path, method, r.Method)
	}
	return nil
}

// browserPath reports whether a WebSocket's path means the browser, whichever
// that is now.
func browserPath(path string) bool {
	return path == "" || path == "/" || path == "/devtools/browser" || within(path, "/devtools/browser/")
}

// within reports whether path is one of the prefixes and something more.
func within(path string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return len(path) > len(p) && strings.HasPrefix(path, p) })
}

func isUpgrade(r *http.Request) bool {
	return hasWord(r.Header["Connection"], "upgrade") && hasWord(r.Header["Upgrade"], "websocket")
}

func hasWord(values []string, word string) bool {
	for _, v := range values {
		for _, w := range strings.Split(v, ",") {
			if strings.EqualFold(strings.TrimSpace(w), word) {
				return true
			}
		}
	}
	return false
}

// loopbackHost reports whether a Host header is localhost or a loopback
// address, which no DNS rebinding can be. Others that reach us too, such as
// 0.0.0.0 and [::ffff:127.0.0.1], are not trustworthy to browsers: from there
// they say nothing of the page that asks.
func loopbackHost(host string) bool {
	name, ok := hostName(host)
	a, err := netip.ParseAddr(name)
	return ok && (strings.EqualFold(name, "localhost") || err == nil && a.IsLoopback() && !a.Is4In6())
}

// chromeHost reports whether Chrome accepts a Host header: an IP address or
// localhost.
func chromeHost(host string) bool {
	name, ok := hostName(host)
	return ok && (strings.EqualFold(name, "localhost") || net.ParseIP(name) != nil)
}

// hostName is a Host header without its port; false if that is no number.
func hostName(host string) (string, bool) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), true
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return name, err == nil
}

func (p *Proxy) authorized(r *http.Request) bool {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") && p.isToken(strings.TrimSpace(token)) {
		return true
	}
	return slices.ContainsFunc(queryParts(r), p.isTokenPart)
}

func queryParts(r *http.Request) []string { return strings.Split(r.URL.RawQuery, "&") }

func (p *Proxy) isTokenPart(part string) bool {
	v, ok := strings.CutPrefix(part, "token=")
	if !ok || p.isToken(v) {
		return ok
	}
	v, err := url.QueryUnescape(v)
	return err == nil && p.isToken(v)
}

func (p *Proxy) isToken(s string) bool {
	return subtle.ConstantTimeCompare([]byte(s), []byte(p.Token)) == 1
}

// clean removes what the browser is not to see: the token, and the Origin,
// which Chrome refuses whatever it is.
func (p *Proxy) clean(r *http.Request) {
	r.Header.Del("Origin")
	if p.Token == "" {
		return
	}
	r.Header.Del("Authorization")
	r.Header.Del("Referer") // which may hold the address with the token
	r.URL.RawQuery = strings.Join(slices.DeleteFunc(queryParts(r), p.isTokenPart), "&")
}

// describe is a request in a message.
func describe(r *http.Request) string { return fmt.Sprintf("%s %s", r.Method, r.URL.Path) }
