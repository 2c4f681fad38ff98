package searchpage

import (
	"encoding/base64"
	"errors"
	"net/url"
	"strconv"
	"strings"
)

// Default is the address of Brave Search: {query}, and {page0}, the number of
// the page counted from 0.
const Default = "https://search.brave.com/search?q={query}&source=web&offset={page0}"

// Address returns the address of a result page. template has {query}, and, for
// pages after the first, {page} (counted from 1), {page0} (from 0) or {start}
// (the number of the first result, counted from 0, ten a page).
func Address(template, query string, page int) (string, error) {
	switch {
	case !strings.Contains(template, "{query}"):
		return "", errors.New("has no {query}: https://search.example/?q={query}")
	case page > 1 && !strings.Contains(template, "{page}") && !strings.Contains(template, "{page0}") &&
		!strings.Contains(template, "{start}"):
		return "", errors.New("has no {page}, {page0} or {start}: it leads to page 1 only")
	}
	address := strings.NewReplacer("{query}", url.QueryEscape(query), "{page}", strconv.Itoa(page),
		"{page0}", strconv.Itoa(page-1), "{start}", strconv.Itoa(10*(page-1))).Replace(template)
	if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("is not the address of a web page")
	}
	return address, nil
}

// resolve returns the address to which a link of a result page leads, behind the
// engine's counter of clicks; "": to a page of the engine itself or to an
// advertisement.
func resolve(base *url.URL, href string) string {
	u, err := url.Parse(strings.TrimSpace(href))
	if err != nil {
		return ""
	}
	if base != nil {
		u = base.ResolveReference(u)
	}
	if isAdvertisement(u) {
		return ""
	}
	if to := target(u); to != nil {
		u = to
	} else if base != nil && u.Host == base.Host {
		return ""
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || isAdvertisement(u) {
		return ""
	}
	u.Fragment, _, _ = strings.Cut(u.Fragment, ":~:") // the text to be marked
	return u.String()
}

// target returns the address in the counter of clicks of an engine.
func target(u *url.URL) *url.URL {
	q := u.Query()
	var to string
	switch {
	case strings.HasSuffix(u.Host, "duckduckgo.com") && strings.HasPrefix(u.Path, "/l"):
		to = q.Get("uddg")
	case strings.HasSuffix(u.Host, "bing.com") && strings.HasPrefix(u.Path, "/ck/"):
		b, _ := base64.RawURLEncoding.DecodeString(strings.TrimRight(strings.TrimPrefix(q.Get("u"), "a1"), "="))
		to = string(b)
	case u.Path == "/url": // Google and those that answer as it
		if to = q.Get("q"); to == "" {
			to = q.Get("url")
		}
	case strings.HasSuffix(u.Host, "search.yahoo.com"):
		_, after, _ := strings.Cut(u.EscapedPath(), "/RU=")
		before, _, _ := strings.Cut(after, "/")
		to, _ = url.PathUnescape(before)
	}
	if !strings.HasPrefix(to, "http://") && !strings.HasPrefix(to, "https://") {
		return nil
	}
	t, err := url.Parse(to)
	if err != nil {
		return nil
	}
	return t
}

// isAdvertisement reports whether an address is the counter of clicks on an
// advertisement.
func isAdvertisement(u *url.URL) bool {
	switch {
	case strings.HasSuffix(u.Host, "duckduckgo.com"):
		return strings.HasPrefix(u.Path, "/y.js")
	case strings.HasSuffix(u.Host, "brave.com"):
		return strings.HasPrefix(u.Path, "/a/redirect")
	}
	return strings.HasPrefix(u.Path, "/aclk") || strings.HasPrefix(u.Path, "/pagead/")
}
