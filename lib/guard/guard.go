// Package guard decides who may speak to a port of this machine: programs
// here, or with the token those elsewhere, but never a web page that was not
// named.
package guard

import (
	"crypto/subtle"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"btools/lib/control"
)

// Guard checks requests. The zero value lets through what comes from this
// machine and from no web page.
type Guard struct {
	// Token is what every request must bring; "": none is asked for.
	Token string
	// Origins are the web pages' origins that may ask; "*" is any.
	Origins []string
	// NoPages says that none may, whatever the options.
	NoPages bool
}

// Refusal is an answer to a request that is let no further.
type Refusal struct {
	Status int // of HTTP
	Error  *control.Error
}

// Refuse makes a refusal.
func Refuse(status int, code, format string, args ...any) *Refusal {
	return &Refusal{status, control.Errorf(code, format, args...)}
}

// Codes of refusals, beside those of the control protocol.
const (
	Unauthorized = "unauthorized"
	Forbidden    = "forbidden"
	NotFound     = "not_found"
)

// Check refuses a request, or returns nil. A web page can send requests to
// any port of this machine, but not without saying so: it gives a WebSocket's
// Origin, and with any other request a Sec-Fetch-Site; by DNS rebinding it can
// pretend to be of our origin, but then the Host is a name.
func (g *Guard) Check(r *http.Request) *Refusal {
	if g.Token != "" {
		if !g.authorized(r) {
			return Refuse(http.StatusUnauthorized, Unauthorized,
				"no valid token: send Authorization: Bearer TOKEN, or ?token=TOKEN")
		}
	} else if !loopbackHost(r.Host) {
		return Refuse(http.StatusForbidden, Forbidden,
			"the Host %q is neither a loopback address nor localhost: others need --token-file", r.Host)
	}
	origins := r.Header.Values("Origin")
	allowed := len(origins) == 1 && g.allows(origins[0])
	// Programs may give our own origin. A page of whoever had the port before
	// us can too, but not without a Sec-Fetch-Site, or by a WebSocket.
	own := len(origins) == 1 && origins[0] == "http://"+r.Host && loopbackHost(r.Host) && r.Header.Get("Upgrade") == ""
	if len(origins) > 0 && !allowed && !own {
		return Refuse(http.StatusForbidden, Forbidden, "the Origin %q is not allowed%s", strings.Join(origins, ", "),
			g.hint())
	}
	site := r.Header.Get("Sec-Fetch-Site")
	if site == "same-origin" && len(origins) == 0 {
		// A page that was loaded from here loads what belongs to it.
		allowed = g.allows("http://"+r.Host) || g.allows("https://"+r.Host)
	}
	if site != "" && site != "none" && !allowed {
		return Refuse(http.StatusForbidden, Forbidden, "requests from web pages are refused (Sec-Fetch-Site is %q)%s", site,
			g.hint())
	}
	return nil
}

func (g *Guard) allows(origin string) bool {
	return slices.Contains(g.Origins, origin) || slices.Contains(g.Origins, "*")
}

func (g *Guard) hint() string {
	if g.NoPages {
		return ""
	}
	return ": see --allow-origin"
}

// WriteResponse answers in the shape of the control protocol's errors.
func (no *Refusal) WriteResponse(w http.ResponseWriter) {
	b, _ := json.Marshal(map[string]any{"error": no.Error})
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)+1))
	w.Header().Set("Connection", "close")
	if no.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(no.Status)
	w.Write(append(b, '\n'))
}

// loopbackHost reports whether a Host header is localhost or a loopback
// address, which no DNS rebinding can be. Others that reach us too, such as
// 0.0.0.0 and [::ffff:127.0.0.1], are not trustworthy to browsers: from there
// they say nothing of the page that asks.
func loopbackHost(host string) bool {
	name, ok := HostName(host)
	a, err := netip.ParseAddr(name)
	return ok && (strings.EqualFold(name, "localhost") || err == nil && a.IsLoopback() && !a.Is4In6())
}

// HostName is a Host header without its port; false if that is no number.
func HostName(host string) (string, bool) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), true
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return name, err == nil
}

func (g *Guard) authorized(r *http.Request) bool {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") &&
		g.isToken(strings.TrimSpace(token)) {
		return true
	}
	return slices.ContainsFunc(queryParts(r), g.isTokenPart)
}

func queryParts(r *http.Request) []string { return strings.Split(r.URL.RawQuery, "&") }

func (g *Guard) isTokenPart(part string) bool {
	v, ok := strings.CutPrefix(part, "token=")
	if !ok || g.isToken(v) {
		return ok
	}
	v, err := url.QueryUnescape(v)
	return err == nil && g.isToken(v)
}

func (g *Guard) isToken(s string) bool {
	return subtle.ConstantTimeCompare([]byte(s), []byte(g.Token)) == 1
}

// StripCredentials removes what nobody behind the guard is to see: the token, and the
// Origin, which is judged already.
func (g *Guard) StripCredentials(r *http.Request) {
	r.Header.Del("Origin")
	if g.Token == "" {
		return
	}
	r.Header.Del("Authorization")
	r.Header.Del("Referer") // which may hold the address with the token
	r.URL.RawQuery = strings.Join(slices.DeleteFunc(queryParts(r), g.isTokenPart), "&")
}
