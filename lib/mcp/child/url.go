package child

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"unicode"

	"btools/lib/lazy"
	"btools/lib/mcp/oauth"
)

// urlRule is how the URL of a child begins.
var urlRule = lazy.Regexp(`^(?i:https?)://`)

// Remote is a child at a URL, by streamable HTTP. The headers, and the token in a file,
// are sent with each request. An error does not show what may be secret, and the Spec has
// its name even then.
func Remote(name, at string, headers map[string]string, tokenFile string) (Spec, error) {
	c := Spec{Name: name, URL: at, Headers: headers, TokenFile: tokenFile}
	u, err := url.Parse(at)
	if err != nil || u.Hostname() == "" || !urlRule().MatchString(at) {
		return c, errors.New("is not a URL: it is https://HOST/PATH, or http://HOST/PATH")
	}
	c.Name = cmp.Or(name, nameOfHost(u.Hostname()))
	switch {
	case u.User != nil:
		return c, errors.New("has a user and a password in its URL: headers or token_file in [child.NAME] of " +
			"--config keep a secret")
	case !oauth.IsSafe(u) && (len(headers) > 0 || tokenFile != ""):
		return c, errors.New("needs https: headers and tokens are not sent over http")
	}
	for name, value := range headers {
		if !headerName().MatchString(name) || strings.ContainsFunc(value, unicode.IsControl) {
			return c, fmt.Errorf("cannot send the header %q", name)
		}
		if tokenFile != "" && strings.EqualFold(name, "Authorization") {
			return c, errors.New("has a token_file and a header Authorization, which are the same")
		}
	}
	return c, nil
}

var headerName = lazy.Regexp(`^[a-zA-Z0-9-]+$`)

// nameOfHost is a short name for a host: example for mcp.example.com.
func nameOfHost(host string) string {
	labels := strings.Split(host, ".")
	if net.ParseIP(host) != nil || len(labels) < 2 {
		return nameOf(host)
	}
	return nameOf(labels[len(labels)-2])
}

// shownURL is a URL without what may be secret: it is in errors, logs and lists.
func shownURL(at string) string {
	scheme, rest, _ := strings.Cut(at, "://")
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	host, path, below := strings.Cut(rest, "/")
	host = host[strings.LastIndexByte(host, '@')+1:]
	if below {
		host += "/" + path
	}
	return scheme + "://" + host
}

// header is what is sent with each request: the headers, and the token as it is now.
func (c *Spec) header() (http.Header, error) {
	h := http.Header{}
	for name, value := range c.Headers {
		h.Set(name, value)
	}
	if c.TokenFile == "" {
		return h, nil
	}
	b, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return nil, fmt.Errorf("%s does not contain a token: expected one word", c.TokenFile)
	}
	h.Set("Authorization", "Bearer "+token)
	return h, nil
}
