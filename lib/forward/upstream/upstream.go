// Package upstream has the URLs of proxies: their schemes, hosts and credentials.
package upstream

import (
	"errors"
	"net"
	"net/url"
)

// URL is that of a proxy. It prints without its credentials.
type URL struct {
	Scheme string // http, https or socks5
	Addr   string // host:port
	User   *url.Userinfo
}

// ports are the default ports of the schemes.
var ports = map[string]string{"http": "80", "https": "443", "socks5": "1080"}

// Parse reads the URL of a proxy: http, https or socks5, a host, and perhaps a
// port, a user and a password, which are percent-encoded. The URL "direct://"
// means no proxy: the result is nil. No error repeats the URL.
func Parse(s string) (*URL, error) {
	if s == "direct://" {
		return nil, nil
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, errNotURL
	}
	scheme := u.Scheme
	if scheme == "socks5h" { // as curl calls it
		scheme = "socks5"
	}
	switch {
	case ports[scheme] == "" || u.Hostname() == "":
		return nil, errNotURL
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("a proxy's URL has no path, no query and no fragment: percent-encode /, ?, # and @ in " +
			"its password")
	}
	port := u.Port()
	if port == "" {
		port = ports[scheme]
	}
	password, _ := u.User.Password()
	if scheme == "socks5" && u.User != nil && (u.User.Username() == "" || len(u.User.Username()) > 255 ||
		password == "" || len(password) > 255) {
		return nil, errors.New("a SOCKS proxy takes a user and a password of 1 to 255 bytes each")
	}
	return &URL{Scheme: scheme, Addr: net.JoinHostPort(u.Hostname(), port), User: u.User}, nil
}

var errNotURL = errors.New("it is not the URL of a proxy: expected http://, https:// or socks5://, USER:PASSWORD@ " +
	"with percent-encoded characters if the proxy needs them, and HOST:PORT; or direct://")

// String returns the URL without credentials.
func (u *URL) String() string {
	if u == nil {
		return "direct://"
	}
	return u.Scheme + "://" + u.Addr
}

// GoString is String, so that no format prints the credentials.
func (u *URL) GoString() string { return u.String() }

// Secret returns the URL with its credentials, which Parse reads.
func (u *URL) Secret() string {
	if u == nil {
		return "direct://"
	}
	return u.URL().String()
}

// URL returns it with its credentials.
func (u *URL) URL() *url.URL { return &url.URL{Scheme: u.Scheme, Host: u.Addr, User: u.User} }
