// Package limits says which servers the pages of a session may reach: the origins that a
// person allows or blocks, and whether addresses of private networks are among them. It
// opens no connection and resolves no name.
package limits

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Limits are the rules for one session. Its zero value allows everything.
type Limits struct {
	Allow, Block []string // patterns of origins; without Allow, all that are not blocked are allowed
	Private      bool     // addresses that are not public are blocked
}

// ChromeArgs are the arguments by which the pages of a Chrome send no UDP by WebRTC, which
// goes past proxies. A headless shell knows the second one alone, others the first.
var ChromeArgs = []string{"--webrtc-ip-handling-policy=disable_non_proxied_udp",
	"--force-webrtc-ip-handling-policy=disable_non_proxied_udp"}

// Refusal is the error of a request that a rule forbids.
type Refusal struct{ Rule, Why string }

func (r *Refusal) Error() string { return r.Rule + ": " + r.Why }

// Any reports whether there is a rule.
func (l Limits) Any() bool { return len(l.Allow) > 0 || len(l.Block) > 0 || l.Private }

// Server returns an error if no page may reach a server. The scheme of a tunnel is not
// known: it is "", as a tunnel shows a host and a port and nothing else.
func (l Limits) Server(scheme, host string, port int) error {
	host = canonical(host)
	name := strings.TrimPrefix(scheme+"://", "://") + join(host, port)
	is := func(p string) bool { return matches(p, scheme, host, port) }
	if i := slices.IndexFunc(l.Block, is); i >= 0 {
		return &Refusal{"--block-origins", l.Block[i] + " matches " + name}
	}
	if len(l.Allow) > 0 && !slices.ContainsFunc(l.Allow, is) {
		return &Refusal{"--allow-origins", "no pattern matches " + name}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return l.Address(ip)
	}
	return nil
}

// Address returns an error if no page may reach an address.
func (l Limits) Address(ip netip.Addr) error {
	if kind := kindOf(ip); l.Private && kind != "" {
		return &Refusal{"--block-private", fmt.Sprintf("%v is %s", ip.Unmap(), kind)}
	}
	return nil
}

// canonical returns a host in the spelling of patterns: lower case, without the final dot
// of a name or the brackets and the zone of an address.
func canonical(host string) string {
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().WithZone("").String()
	}
	return host
}

func join(host string, port int) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(port)
}

// pattern is the parts of a pattern; "" of a scheme or a port is any.
type pattern struct{ scheme, host, port string }

// defaultPort returns the port of a scheme that patterns may have; "": there is none.
func defaultPort(scheme string) string {
	switch scheme {
	case "http", "ws":
		return "80"
	case "https", "wss":
		return "443"
	}
	return ""
}

// matches reports whether a pattern, which CheckPattern accepts, has a server among its
// origins.
func matches(text, scheme, host string, port int) bool {
	p := split(text)
	isHost, _ := path.Match(p.host, host)
	return isHost && (p.port == "" || p.port == strconv.Itoa(port)) &&
		(p.scheme == "" || scheme == "" || defaultPort(p.scheme) == defaultPort(scheme))
}

// split returns the parts of a pattern. One without a scheme is of every scheme and, unless
// it has one, of every port.
func split(text string) (p pattern) {
	text = strings.ToLower(strings.TrimSuffix(text, "/"))
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "", text
	}
	p = pattern{scheme: scheme, host: rest, port: defaultPort(scheme)}
	if i := strings.LastIndexByte(rest, ':'); i >= 0 && !strings.HasSuffix(rest, "]") {
		p.host, p.port = rest[:i], rest[i+1:]
	}
	if p.port == "*" {
		p.port = ""
	}
	p.host = canonical(p.host)
	return p
}

const form = "an origin is such as https://example.com, https://*.example.com, http://localhost:3000 or example.com"

// CheckPattern returns an error if a text is not a pattern of origins, or is one that no
// server can match.
func CheckPattern(text string) error {
	if strings.ContainsAny(text, " ,;\t\n") {
		return errors.New("is more than one origin: give each one in an option of its own")
	}
	scheme, rest, hasScheme := strings.Cut(text, "://")
	if hasScheme && defaultPort(strings.ToLower(scheme)) == "" {
		return fmt.Errorf("has the scheme %q, which is not http, https, ws or wss", scheme)
	}
	if !hasScheme {
		rest = text
	}
	rest = strings.TrimSuffix(rest, "/")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		return fmt.Errorf("has a path, which an origin does not have: %s", form)
	}
	p := split(text)
	if n, err := strconv.Atoi(p.port); p.port != "" && (err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != p.port) {
		return fmt.Errorf("has the port %q, which is not a number from 1 to 65535, or *", p.port)
	}
	if strings.HasPrefix(rest, "[") || strings.Contains(p.host, ":") {
		if _, err := netip.ParseAddr(p.host); err != nil || !strings.HasPrefix(rest, "[") {
			return errors.New("has an address of IPv6 that cannot be read: it is such as [2001:db8::1]")
		}
		return nil
	}
	return checkHost(p.host)
}

// checkHost returns an error if a pattern matches no host as browsers write it.
func checkHost(host string) error {
	for _, c := range host {
		switch {
		case c > 127:
			return errors.New("has letters that are not ASCII: browsers ask for such a name as xn--…")
		case c != '*' && c != '-' && c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z'):
			return fmt.Errorf("has %q in its host: %s", c, form)
		}
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	switch {
	case host == "" || strings.HasPrefix(host, ".") || strings.Contains(host, ".."):
		return fmt.Errorf("has no host that can be asked for: %s", form)
	case strings.Contains(host, "*"):
		return nil
	}
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || strings.Trim(last, "0123456789") == "" {
		if _, err := netip.ParseAddr(host); err != nil {
			return errors.New("has an address in a spelling that browsers change: write it as 127.0.0.1")
		}
	}
	return nil
}
