package searchpage

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// link is a link to a page that is not the engine's.
type link struct {
	node      *html.Node // a
	titleNode *html.Node // the heading, or the part of the link that names the page
	title     string
	url       string
	base      *url.URL
	kind      string
	heading   bool // the link is in a heading or has one inside
	parts     bool // the link has more parts than its text: the site, an icon
}

// maxLinks bounds the work for a page that is not a result page.
const maxLinks = 2000

// links returns the links of a page to pages of others, outside its menus.
func links(doc *html.Node, base *url.URL) []*link {
	for n := range doc.Descendants() {
		if n.DataAtom == atom.Base && attribute(n, "href") != "" && base != nil {
			if u, err := base.Parse(attribute(n, "href")); err == nil {
				base = u
			}
			break
		}
	}
	var all []*link
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		if len(all) == maxLinks || n.Type == html.ElementNode && (isNoText(n) || isMenu(n)) {
			return
		}
		if n.DataAtom == atom.A {
			if l := newLink(n, base); l != nil {
				all = append(all, l)
			}
			return
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(doc)
	return all
}

func newLink(n *html.Node, base *url.URL) *link {
	l := &link{node: n, base: base, url: resolve(base, attribute(n, "href"))}
	if l.url == "" {
		return nil
	}
	if l.titleNode = around(n); l.titleNode != nil {
		l.kind, l.title, l.heading = l.titleNode.Data, text(n), true
		return l
	}
	if l.titleNode = inside(n); l.titleNode != nil {
		l.kind, l.title, l.heading = l.titleNode.Data, text(l.titleNode), true
		return l
	}
	l.titleNode = named(n)
	if l.title = text(l.titleNode); utf8.RuneCountInString(l.title) < 2 || isAddress(l.title, l.url) {
		return nil
	}
	l.kind = place(n)
	for c := range n.ChildNodes() {
		if c.Type == html.ElementNode {
			l.kind, l.parts = l.kind+" with parts", true
			break
		}
	}
	return l
}

// around returns the heading that a link is in.
func around(n *html.Node) *html.Node {
	for p, i := n.Parent, 0; p != nil && i < 4; p, i = p.Parent, i+1 {
		if isHeading(p) {
			return p
		}
	}
	return nil
}

// inside returns the heading in a link.
func inside(n *html.Node) *html.Node {
	for d := range n.Descendants() {
		if isHeading(d) && text(d) != "" {
			return d
		}
	}
	return nil
}

// named returns the part of a link without headings that is the title of the
// page: links also have the name of the site, its address and a picture.
func named(n *html.Node) *html.Node {
	var parts []*html.Node
	for d := range n.Descendants() {
		if d.Type != html.ElementNode || slices.Contains(inline, d.DataAtom) || text(d) == "" {
			continue
		}
		if t := attribute(d, "title"); t != "" && strings.HasPrefix(text(d), strings.TrimRight(t, ".… ")) {
			return d
		}
		if !hasBlock(d) {
			parts = append(parts, d)
		}
	}
	if len(parts) == 0 {
		return n
	}
	return parts[len(parts)-1]
}

func hasBlock(n *html.Node) bool {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && !slices.Contains(inline, d.DataAtom) {
			return true
		}
	}
	return false
}

// place returns where a link stands: the names of the elements around it, which
// change less than their classes.
func place(n *html.Node) string {
	var names []string
	for p := n; p != nil && len(names) < 4; p = p.Parent {
		names = append(names, p.Data)
	}
	return strings.Join(names, "<")
}

func isHeading(n *html.Node) bool {
	switch n.DataAtom {
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5:
		return true
	}
	return n.Type == html.ElementNode && attribute(n, "role") == "heading"
}

// isMenu reports whether an element is for finding one's way on the engine's
// own site.
func isMenu(n *html.Node) bool {
	switch n.DataAtom {
	case atom.Nav, atom.Footer, atom.Aside, atom.Form:
		// A form or a header around the whole page is none.
		return n.DataAtom != atom.Form || len(text(n)) < 2000
	}
	switch attribute(n, "role") {
	case "navigation", "contentinfo", "complementary", "search":
		return true
	}
	return false
}

func isNoText(n *html.Node) bool {
	switch n.DataAtom {
	case atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Svg, atom.Button, atom.Cite, atom.Head:
		return true
	}
	return attribute(n, "aria-hidden") == "true" && n.DataAtom != atom.A
}

// inline are the elements inside a paragraph.
var inline = []atom.Atom{atom.A, atom.B, atom.Strong, atom.I, atom.Em, atom.U, atom.Span, atom.Mark, atom.Small,
	atom.Sub, atom.Sup, atom.Code, atom.Font, atom.Time, atom.Abbr, atom.Wbr, atom.Img, atom.Q, atom.S, atom.Kbd}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Namespace == "" && a.Key == name {
			return a.Val
		}
	}
	return ""
}

// text returns the text of a node in one line.
func text(n *html.Node) string {
	var parts []string
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			parts = append(parts, d.Data)
		}
	}
	return tidy(strings.Join(parts, ""))
}

func tidy(s string) string { return strings.Join(strings.Fields(s), " ") }
