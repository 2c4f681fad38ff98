// Package searchpage reads the result page of a search engine: titles, addresses
// and snippets. It goes by the structure of the page and knows no engine's class
// names, which change: results are links of one kind, each with a text about it.
// It neither loads nor runs anything.
package searchpage

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Result is one result of a search.
type Result struct {
	Title   string `json:"title"`
	URL     string `json:"url"`
	Snippet string `json:"snippet"`
}

// Results returns the results of a page in its order, each address once; none if
// the page is not a result page, as a question whether a person searches. base
// is the page's address.
func Results(source string, base *url.URL) []Result {
	doc, err := html.Parse(strings.NewReader(source))
	if err != nil {
		return nil
	}
	var best []Result
	value := 0
	for _, k := range kinds(links(doc, base)) {
		found := k.results()
		if !k.links[0].heading {
			// Without a text it is a list of other pages: videos, places.
			found = slices.DeleteFunc(found, func(r Result) bool { return r.Snippet == "" })
			if len(found) == 1 && !k.links[0].parts { // any link in any text
				continue
			}
		}
		if k.value(found) > value {
			best, value = found, k.value(found)
		}
	}
	return best
}

// kind are links that are alike: all titles of results are of one kind, the
// links to parts of these sites below them of another.
type kind struct {
	name  string
	links []*link
}

// kinds sorts links, those first that come first on the page.
func kinds(all []*link) []*kind {
	var kinds []*kind
	for _, l := range all {
		i := slices.IndexFunc(kinds, func(k *kind) bool { return k.name == l.kind })
		if i < 0 {
			i = len(kinds)
			kinds = append(kinds, &kind{name: l.kind})
		}
		kinds[i].links = append(kinds[i].links, l)
	}
	return kinds
}

// value says how well results look as such: those with a snippet count, and more
// where the links are headings.
func (k *kind) value(found []Result) int {
	value := 0
	for _, r := range found {
		if r.Snippet != "" {
			value += 2
		}
	}
	if k.links[0].heading {
		value += value/2 + len(found)
	}
	return value
}

func (k *kind) results() []Result {
	// A link belongs to all elements around it; an element with one link of this
	// kind alone belongs to its result.
	count := map[*html.Node]map[string]bool{}
	urls := map[string]bool{}
	for _, l := range k.links {
		for n := l.node; n != nil; n = n.Parent {
			if count[n] == nil {
				count[n] = map[string]bool{}
			}
			count[n][l.url] = true
		}
		urls[l.url] = true
	}
	var found []Result
	seen := map[string]bool{}
	for _, l := range k.links {
		if seen[l.url] {
			continue
		}
		seen[l.url] = true
		record := l.node
		r := Result{Title: l.title, URL: l.url}
		for record.Parent != nil && len(count[record.Parent]) == 1 && record.Parent.DataAtom != atom.Body {
			record = record.Parent
			// Around the only result is the rest of the page.
			if len(urls) == 1 && snippet(record, l) != "" {
				break
			}
		}
		r.Snippet = snippet(record, l)
		// A result may be several rows of a table, or elements side by side.
		for next := record.NextSibling; r.Snippet == "" && next != nil && count[next] == nil; next = next.NextSibling {
			r.Snippet = snippet(next, l)
		}
		found = append(found, r)
	}
	return found
}

// minSnippet is the number of characters from which a text is a snippet and not
// a label.
const minSnippet = 20

// snippet returns the longest text of a result that is neither its title nor its
// address; "": it has none.
func snippet(record *html.Node, l *link) string {
	var best string
	for _, b := range blocks(record, l) {
		if utf8.RuneCountInString(b) > utf8.RuneCountInString(best) && b != l.title && !isAddress(b, l.url) {
			best = b
		}
	}
	if utf8.RuneCountInString(best) < minSnippet {
		return ""
	}
	return best
}

// blocks returns the texts of the paragraphs of a result, without its title and
// without links to other pages.
func blocks(record *html.Node, l *link) []string {
	var all []string
	var words []string
	flush := func() {
		if len(words) > 0 {
			all = append(all, tidy(strings.Join(words, "")))
			words = nil
		}
	}
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		switch {
		case n.Type == html.TextNode:
			words = append(words, n.Data)
		case n == l.node, n == l.titleNode, n.Type == html.ElementNode && isNoText(n):
			flush()
			return
		case n.DataAtom == atom.A && resolve(l.base, attribute(n, "href")) != l.url &&
			utf8.RuneCountInString(text(n)) > 2*minSnippet:
			flush() // a long link elsewhere is another page's title
			return
		}
		block := n.Type == html.ElementNode && !slices.Contains(inline, n.DataAtom)
		if block {
			flush()
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
		if block {
			flush()
		}
	}
	walk(record)
	flush()
	return all
}

// isAddress reports whether a text shows an address: "www.example.com › docs".
func isAddress(s, address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	s = strings.TrimPrefix(strings.TrimPrefix(s, "https://"), "http://")
	host := strings.TrimPrefix(u.Host, "www.")
	return strings.HasPrefix(strings.TrimPrefix(s, "www."), host) && len(strings.Fields(s)) <= 12
}
