package webtext

import (
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	readability "codeberg.org/readeck/go-readability/v2"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Article is the main text of a page.
type Article struct {
	Title     string
	Byline    string
	Site      string
	Published time.Time // zero: not stated
	Text      string    // Markdown
	// Whole is set if no part of the page is its main text, as on a front page or
	// in a web application: Text is then that of the whole page.
	Whole bool
}

const (
	// maxElements bounds the time of readability, which is more than linear.
	maxElements = 50_000
	// minMain is the length of a text below which it is not taken for the main
	// text of a page that has ten times as much.
	minMain = 500
)

// Main returns the main text of a page, without menus, advertisements and
// comments. base is the page's address.
func Main(source string, base *url.URL) Article {
	whole := Article{Whole: true}
	doc, err := parse(source)
	if err != nil {
		whole.Text = plain(source)
		return whole
	}
	whole.Title = title(doc)
	var a Article
	err = safely(func() error {
		parser := readability.NewParser()
		parser.MaxElemsToParse = maxElements
		parser.KeepClasses = true // of code: its language
		found, err := parser.ParseAndMutate(doc, base)
		if err != nil || found.Node == nil {
			return err
		}
		a = Article{Title: found.Title(), Byline: found.Byline(), Site: found.SiteName()}
		a.Published, _ = found.PublishedTime()
		a.Text, err = markdown(found.Node, base)
		return err
	})
	if err == nil && len(a.Text) >= minMain {
		return withTitle(a, whole.Title)
	}
	// Readability has changed the tree.
	whole.Text = Markdown(source, base)
	if err == nil && a.Text != "" && utf8.RuneCountInString(whole.Text) < 10*utf8.RuneCountInString(a.Text) {
		return withTitle(a, whole.Title)
	}
	return whole
}

// withTitle gives an article the title of its page if readability found none.
func withTitle(a Article, title string) Article {
	if a.Title = strings.TrimSpace(a.Title); a.Title == "" {
		a.Title = title
	}
	return a
}

func title(doc *html.Node) string {
	for n := range doc.Descendants() {
		if n.DataAtom == atom.Title && n.Namespace == "" {
			return text(n)
		}
	}
	return ""
}
