// Package guard decides who may use a port of this machine: local programs, or
// remote ones with the token, but no web page unless its origin is allowed.
package guard

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"btools/lib/control"
	"btools/lib/tokens"
)

// Guard checks requests. The zero value allows requests from this machine that
// do not come from a web page.
type Guard struct {
	// Tokens are those of which every request has one; nil: none is needed.
	Tokens *tokens.File
	// Origins are the origins of web pages that may send requests; "*" is any.
	Origins []string
	// AnyHost allows requests that name another host: their path has a secret, or the answer has none.
	AnyHost bool
	// NoPages refuses all web pages; there is no option that allows them.
	NoPages bool
	// Browsers, if not nil, are refused, unless Origins allow the page. The server of
	// the requests has ConnContext.
	Browsers *Browsers
	// Page says that the port has a page of its own: it may load its parts and open WebSockets, a link on another
	// page may lead to it, and Browsers are refused whatever they ask for.
	Page bool
	// User, if not nil, returns the user of this machine whose programs may connect,
	// besides this program's own user and root. The server of the requests has
	// ConnContext.
	User func() int
}

// Refusal is the answer to a request that is refused.
type Refusal struct {
	Status int // of HTTP
	Reason *control.Error
}

// Error returns the message.
func (no *Refusal) Error() string { return no.Reason.Message }

// Unwrap returns the reason.
func (no *Refusal) Unwrap() error { return no.Reason }

// Refuse returns a refusal.
func Refuse(status int, code, format string, args ...any) *Refusal {
	return &Refusal{status, control.Errorf(code, format, args...)}
}

// Codes of refusals, in addition to those of the control protocol.
const (
	Unauthorized = "unauthorized"
	Forbidden    = "forbidden"
	NotFound     = "not_found"
)

// Check returns a refusal, or nil if it allows the request. A web page can send
// requests to any port of this machine, but its browser marks them: a WebSocket
// with an Origin, any other request with a Sec-Fetch-Site. By DNS rebinding a
// page can pretend to have our origin, but then the Host is a name.
func (g *Guard) Check(r *http.Request) *Refusal {
	if g.Page {
		return g.checkPage(r)
	}
	if g.Tokens != nil {
		t := g.Tokens.Find(given(r))
		if p := peerOf(r); p != nil {
			p.token.Store(t) // nil, too: the connection of a proxy in front has requests of several clients
		}
		if t == nil {
			return Refuse(http.StatusUnauthorized, Unauthorized,
				"no valid token: send Authorization: Bearer TOKEN, or ?token=TOKEN")
		}
	} else if !g.AnyHost && !loopbackHost(r.Host) {
		return Refuse(http.StatusForbidden, Forbidden,
			"the Host %q is neither a loopback address nor localhost: others need --token-file", r.Host)
	}
	origins := r.Header.Values("Origin")
	allowed := len(origins) == 1 && g.allows(origins[0])
	// Programs may send our own origin. So may a page of the program that had
	// the port before us, but only with a Sec-Fetch-Site or as a WebSocket.
	own := len(origins) == 1 && origins[0] == "http://"+r.Host && loopbackHost(r.Host) && r.Header.Get("Upgrade") == ""
	if len(origins) > 0 && !allowed && !own {
		return Refuse(http.StatusForbidden, Forbidden, "the Origin %q is not allowed%s", strings.Join(origins, ", "),
			g.hint())
	}
	site := r.Header.Get("Sec-Fetch-Site")
	if site == "same-origin" && len(origins) == 0 {
		// A page that was loaded from here loads its resources.
		allowed = g.allows("http://"+r.Host) || g.allows("https://"+r.Host)
	}
	if site != "" && site != "none" && !allowed {
		return Refuse(http.StatusForbidden, Forbidden, "requests from web pages are refused (Sec-Fetch-Site is %q)%s",
			site, g.hint())
	}
	if g.User != nil {
		if no := CheckUser(r, g.User()); no != nil {
			return no
		}
	}
	if allowed {
		return nil
	}
	return g.Browsers.check(r)
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

// WriteResponse writes the refusal in the format of the control protocol's
// errors.
func (no *Refusal) WriteResponse(w http.ResponseWriter) {
	b, _ := json.Marshal(map[string]any{"error": no.Reason})
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
// address, which DNS rebinding cannot forge. Browsers do not trust other
// addresses that reach this machine, such as 0.0.0.0 and [::ffff:127.0.0.1]:
// requests from pages there carry no Sec-Fetch-Site.
func loopbackHost(host string) bool {
	name, ok := HostName(host)
	a, err := netip.ParseAddr(name)
	return ok && (strings.EqualFold(name, "localhost") || err == nil && a.IsLoopback() && !a.Is4In6())
}

// HostName returns a Host header without its port; false if the port is not a
// number.
func HostName(host string) (string, bool) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), true
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return name, err == nil
}

// maxGiven is how many tokens of a query are looked at.
const maxGiven = 8

// given returns the tokens that a request has.
func given(r *http.Request) (all []string) {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		all = append(all, strings.TrimSpace(token))
	}
	for _, part := range queryParts(r) {
		if v, ok := strings.CutPrefix(part, "token="); ok && len(all) < maxGiven {
			all = append(all, v)
			if plain, err := url.QueryUnescape(v); err == nil && plain != v {
				all = append(all, plain)
			}
		}
	}
	return all
}

func queryParts(r *http.Request) []string { return strings.Split(r.URL.RawQuery, "&") }

// isToken reports whether a part of a query is a token of ours. A page may have a parameter with this name, too.
func (g *Guard) isToken(part string) bool {
	v, ok := strings.CutPrefix(part, "token=")
	if !ok {
		return false
	}
	plain, err := url.QueryUnescape(v)
	return g.Tokens.Find([]string{v}) != nil || err == nil && g.Tokens.Find([]string{plain}) != nil
}

// StripCredentials removes the token, and the Origin, which has been checked,
// from a request before it is passed on.
func (g *Guard) StripCredentials(r *http.Request) {
	r.Header.Del("Origin")
	if g.Tokens == nil {
		return
	}
	r.Header.Del("Authorization")
	r.Header.Del("Referer") // it may contain the address with the token
	r.URL.RawQuery = strings.Join(slices.DeleteFunc(queryParts(r), g.isToken), "&")
}
