package shell

import (
	"cmp"
	"encoding/json"
	"strings"

	"btools/lib/jsonrpc"
	"btools/lib/lazy"
	"btools/lib/results"
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
	var now results.PageState
	json.Unmarshal(jsonrpc.Get(result, "_meta", results.MetaPage), &now) // which other servers do not give
	for part := range jsonrpc.Elements(jsonrpc.Get(result, "content")) {
		text := jsonrpc.GetString(part, "text")
		if m := pageURL().FindStringSubmatch(text); m != nil && now == (results.PageState{}) {
			now.URL = m[1]
			if m := pageTitle().FindStringSubmatch(text); m != nil {
				now.Title = m[1]
			}
		}
		if now.URL == "" {
			continue
		}
		if now.URL != p.url {
			p.refs = nil
		}
		p.url, p.title, p.tabs = now.URL, now.Title, cmp.Or(len(openTab().FindAllString(text, -1)), p.tabs, 1)
		if !strings.Contains(text, "[ref=") {
			continue
		}
		p.refs = p.refs[:0]
		for _, m := range element().FindAllStringSubmatch(text, maxRefs) {
			p.refs = append(p.refs, m[2]+" "+m[1])
		}
	}
}
