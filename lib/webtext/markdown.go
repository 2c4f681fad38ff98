package webtext

import (
	"net/url"
	"slices"
	"strings"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/strikethrough"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"btools/lib/lazy"
)

// Markdown returns a page or a part of it as Markdown: headings, lists, tables,
// code, links with whole addresses. base is the address against which links are
// resolved; nil: they stay as they are.
func Markdown(source string, base *url.URL) string {
	doc, err := parse(source)
	if err != nil {
		return plain(source)
	}
	out, err := markdown(doc, base)
	if err != nil {
		return plain(source)
	}
	return out
}

// unescaped undoes what the base plugin does to text in spite of the escape mode.
var unescaped = strings.NewReplacer("&lt;", "<", "&gt;", ">")

// blank are lines without text between paragraphs.
var blank = lazy.Regexp(`\n[ \t]*\n(?:[ \t]*\n)+`)

func markdown(doc *html.Node, address *url.URL) (string, error) {
	simplify(doc, 0)
	// Escaped characters cost tokens, and minutes in a text with thousands of them.
	conv := converter.NewConverter(converter.WithEscapeMode(converter.EscapeModeDisabled), converter.WithPlugins(
		base.NewBasePlugin(),
		commonmark.NewCommonmarkPlugin(),
		strikethrough.NewStrikethroughPlugin(),
		// A table without a header row keeps its first row, and a break inside
		// a cell does not end its row.
		table.NewTablePlugin(table.WithNewlineBehavior(table.NewlineBehaviorPreserve),
			table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal), table.WithSkipEmptyRows(true)),
	))
	conv.Register.TextTransformer(func(_ converter.Context, s string) string {
		return unescaped.Replace(s)
	}, converter.PriorityLate)
	var options []converter.ConvertOptionFunc
	if address != nil {
		options = append(options, converter.WithDomain(address.String()))
	}
	var out string
	err := safely(func() error {
		b, err := conv.ConvertNode(doc, options...)
		out = string(b)
		return err
	})
	return strings.TrimSpace(blank().ReplaceAllString(out, "\n\n")), err
}

// maxIndent is the depth of quotes and lists below which they are no longer
// indented: each level copies, and lengthens, all lines inside.
const maxIndent = 12

// simplify takes from a tree what costs tokens and tells nothing: templates,
// hidden parts, images without a description, the addresses of scripts
// and of data.
func simplify(n *html.Node, indent int) {
	for c := n.FirstChild; c != nil; {
		next := c.NextSibling
		switch {
		case c.Type == html.ElementNode && isSilent(c):
			n.RemoveChild(c)
		case c.DataAtom == atom.A && isScheme(attribute(c, "href"), "javascript", "data", "blob"):
			c.DataAtom, c.Data = atom.Span, "span"
		case c.DataAtom == atom.Img && isScheme(attribute(c, "src"), "data", "blob"):
			*c = html.Node{Type: html.TextNode, Data: attribute(c, "alt"),
				Parent: c.Parent, PrevSibling: c.PrevSibling, NextSibling: c.NextSibling}
		}
		inner := indent
		switch c.DataAtom {
		case atom.Blockquote, atom.Ul, atom.Ol:
			if inner++; inner > maxIndent {
				toDiv(c)
			}
		case atom.Table:
			if !isData(c) {
				unwrap(c)
			}
		}
		simplify(c, inner)
		c = next
	}
}

// maxColumns bounds tables: each row gets as many cells as the longest.
const maxColumns = 50

// isData reports whether a table is one of data, and makes it ready if so. Others
// lay out a page, with tables inside, and would be converted again at each level.
func isData(table *html.Node) bool {
	columns := 0
	var texts []*html.Node
	for n := range table.Descendants() {
		if n.Type == html.TextNode {
			texts = append(texts, n)
		}
		switch n.DataAtom {
		case atom.Table, atom.Ul, atom.Ol, atom.Blockquote, atom.Pre, atom.H1, atom.H2, atom.H3, atom.Form:
			return false
		case atom.Tr:
			columns = 0
		case atom.Td, atom.Th:
			if columns++; columns > maxColumns {
				return false
			}
			n.Attr = slices.DeleteFunc(n.Attr, func(a html.Attribute) bool {
				return (a.Key == "colspan" || a.Key == "rowspan") && len(a.Val) > 2
			})
		}
	}
	for _, n := range texts {
		n.Data = strings.ReplaceAll(n.Data, "|", `\|`)
	}
	return true
}

// unwrap turns a table into its cells, one after the other.
func unwrap(table *html.Node) {
	toDiv(table)
	for c := range table.ChildNodes() {
		switch c.DataAtom {
		case atom.Tbody, atom.Thead, atom.Tfoot, atom.Tr, atom.Td, atom.Th, atom.Caption:
			unwrap(c)
		}
	}
}

func toDiv(n *html.Node) { n.DataAtom, n.Data, n.Attr = atom.Div, "div", nil }

// isSilent reports whether an element has nothing to read.
func isSilent(n *html.Node) bool {
	switch n.DataAtom {
	case atom.Template, atom.Canvas, atom.Object, atom.Embed, atom.Audio, atom.Video, atom.Select,
		atom.Datalist:
		return true
	case atom.Dialog:
		return !has(n, "open")
	case atom.Img:
		return strings.TrimSpace(attribute(n, "alt")) == ""
	}
	return has(n, "hidden")
}

func isScheme(address string, schemes ...string) bool {
	before, _, found := strings.Cut(strings.ToLower(strings.TrimSpace(address)), ":")
	for _, s := range schemes {
		if found && before == s {
			return true
		}
	}
	return false
}

func has(n *html.Node, name string) bool {
	for _, a := range n.Attr {
		if a.Key == name {
			return true
		}
	}
	return false
}
