package shell

import (
	"encoding/json"
	"strings"

	"btools/lib/jsonrpc"
	"btools/lib/lazy"
)

// page is what the results of a session have last said of its page.
type page struct {
	url, title string
	tabs       int
	refs       []string // of its elements, with their roles and names: "e5 button \"Add\""
}

var (
	pageURL   = lazy.Regexp(`(?m)^### Page\n- Page URL: (.*)$`)
	pageTitle = lazy.Regexp(`(?m)^- Page Title: (.*)$`)
	openTab   = lazy.Regexp(`(?m)^- \d+: (?:\(current\) )?\[`)
	element   = lazy.Regexp(`(?m)^\s*- '?([a-z]+(?: "(?:[^"\\]|\\.)*")?)[^\n]*? \[ref=([a-z0-9]+)\]`)
)

// maxRefs bounds what completions offer.
const maxRefs = 1000

// see takes from a result what it says of the page.
func (p *page) see(result json.RawMessage) {
	for part := range jsonrpc.Elements(jsonrpc.Get(result, "content")) {
		text := jsonrpc.GetString(part, "text")
		m := pageURL().FindStringSubmatch(text)
		if m == nil {
			continue
		}
		if m[1] != p.url {
			p.refs = nil
		}
		p.url, p.title, p.tabs = m[1], "", max(len(openTab().FindAllString(text, -1)), 1)
		if m := pageTitle().FindStringSubmatch(text); m != nil {
			p.title = m[1]
		}
		if !strings.Contains(text, "[ref=") {
			continue
		}
		p.refs = p.refs[:0]
		for _, m := range element().FindAllStringSubmatch(text, maxRefs) {
			p.refs = append(p.refs, m[2]+" "+m[1])
		}
	}
}
