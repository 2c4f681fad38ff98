package policy

import (
	"errors"
	"fmt"
	"strings"

	"btools/lib/jsonrpc"
)

// URL returns an error if a session may not navigate to an address. Only
// addresses of web pages are allowed: chrome: and devtools: pages control the
// whole browser, file: reads the host's files as its user, and schemes such as
// mailto: start a program of the host. Chrome itself refuses an address without
// a scheme.
func URL(raw string) error {
	u := normalize(raw)
	if scheme(u) == "view-source" {
		u = normalize(u[len("view-source:"):])
		if s := scheme(u); s != "http" && s != "https" && s != "data" {
			return fmt.Errorf("cannot open view-source:%.20s: only the source of a web page is shown in a "+
				"shared browser", u)
		}
	}
	return webURL(u)
}

// OpensFile reports whether a command opens a file: address, which only the
// session of the browser's user may.
func OpensFile(c Command) bool {
	return (c.Method == "Page.navigate" || c.Method == "Target.createTarget") &&
		scheme(normalize(jsonrpc.GetString(c.Params, "url"))) == "file"
}

// fetchURL checks the address of a request, which may be a WebSocket's.
func fetchURL(raw string) error {
	if s := scheme(normalize(raw)); s == "ws" || s == "wss" {
		return nil
	}
	return webURL(normalize(raw))
}

func webURL(u string) error {
	switch s := scheme(u); s {
	case "", "http", "https", "data", "javascript":
		return nil
	case "blob": // of an origin, which may be "null"
		if s := scheme(normalize(u[len("blob:"):])); s == "" || s == "http" || s == "https" {
			return nil
		}
		return errors.New("cannot open this blob: address: only those of web pages are allowed in a shared browser")
	case "about": // others are chrome: pages to some versions of Chrome
		page := u[len("about:"):]
		if i := strings.IndexAny(page, "?#"); i >= 0 {
			page = page[:i]
		}
		if page == "blank" || page == "srcdoc" || page == "" {
			return nil
		}
		return fmt.Errorf("cannot open about:%.20s: only about:blank is allowed in a shared browser", page)
	default:
		why, ok := closed[s]
		if !ok {
			why = "others may start programs of its machine"
		}
		return fmt.Errorf("cannot open %.20s: addresses: only web pages are allowed, for %s", s, why)
	}
}

// closed are why addresses of some schemes are not opened.
var closed = map[string]string{
	"file":     "these read the files of the browser's machine",
	"chrome":   "these control the whole browser",
	"devtools": "these control the whole browser",
}

// normalize applies the URL standard's first steps to an address: control
// characters and spaces are stripped from its ends, and tabs and line ends are
// removed.
func normalize(raw string) string {
	raw = strings.TrimFunc(raw, func(r rune) bool { return r <= ' ' })
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, raw)
}

// scheme returns the scheme of a normalized address, in lower case; "": it has
// none.
func scheme(u string) string {
	for i := range len(u) {
		switch c := u[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && ('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'):
		case i > 0 && c == ':':
			return strings.ToLower(u[:i])
		default:
			return ""
		}
	}
	return ""
}
