// Package webtext turns the HTML of a page into what a language model reads: a
// page or a part of it as Markdown, its main text, and its images. It neither
// loads nor runs anything; its callers get the HTML from a browser.
//
// Pages are hostile: whatever they contain, each function returns.
package webtext

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// parse returns the tree of an HTML document or of a part of one, without
// drawings: their titles are not those of pages.
func parse(source string) (*html.Node, error) {
	doc, err := html.Parse(strings.NewReader(source))
	if err != nil {
		return nil, fmt.Errorf("cannot parse the page: %w", err)
	}
	var drawings []*html.Node
	for n := range doc.Descendants() {
		if n.DataAtom == atom.Svg {
			drawings = append(drawings, n)
		}
	}
	for _, n := range drawings {
		n.Parent.RemoveChild(n)
	}
	return doc, nil
}

// plain returns the text of HTML that cannot be parsed into a tree, which is
// HTML nested more than 512 deep.
func plain(source string) string {
	var text strings.Builder
	var skip string
	z := html.NewTokenizer(strings.NewReader(source))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return strings.TrimSpace(text.String())
		case html.StartTagToken:
			name, _ := z.TagName()
			switch a := atom.Lookup(name); a {
			case atom.Script, atom.Style, atom.Noscript, atom.Title:
				skip = a.String()
			}
		case html.EndTagToken:
			if name, _ := z.TagName(); string(name) == skip {
				skip = ""
			}
		case html.TextToken:
			if words := strings.Fields(string(z.Text())); skip == "" && len(words) > 0 {
				text.WriteString(strings.Join(words, " ") + "\n")
			}
		}
	}
}

// safely calls one of the libraries that read pages. Should a page make it
// panic, then it has read nothing: one page must not end the sessions of all.
func safely(read func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot read the page: %v", r)
		}
	}()
	return read()
}

// Cut shortens a text to at most max characters, if possible at the end of a
// line or of a word, and reports whether it was longer.
func Cut(text string, max int) (string, bool) {
	if len(text) <= max || utf8.RuneCountInString(text) <= max {
		return text, false
	}
	end := 0
	for range max {
		_, size := utf8.DecodeRuneInString(text[end:])
		end += size
	}
	cut := text[:end]
	if i := strings.LastIndexByte(cut, '\n'); i > len(cut)*3/4 {
		cut = cut[:i]
	} else if i := strings.LastIndexFunc(cut, unicode.IsSpace); i > len(cut)*3/4 {
		cut = cut[:i]
	}
	return strings.TrimRightFunc(cut, unicode.IsSpace), true
}

// resolve returns the address of a web page or file to which a reference in a
// page leads; "" if it is none, as javascript: and data: are.
func resolve(base *url.URL, ref string) string {
	u, err := url.Parse(strings.TrimSpace(ref))
	if err != nil || strings.TrimSpace(ref) == "" {
		return ""
	}
	if base != nil {
		u = base.ResolveReference(u)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return u.String()
}

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
	var words []string
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			words = append(words, strings.Fields(d.Data)...)
		}
	}
	return strings.Join(words, " ")
}
