package tools

import (
	"context"
	"net/url"
	"strings"

	"btools/lib/browse"
	"btools/lib/webtext"
)

func getMarkdown(ctx context.Context, r *reply, t *browse.Tab, a struct{ Selector browse.Target }) error {
	html, err := t.HTML(ctx, a.Selector)
	if err != nil {
		return err
	}
	r.page = pageState
	text := webtext.Markdown(html, webAddress(t.State(ctx).URL))
	if text == "" {
		r.say("There is no text.")
		r.value = &text
		return nil
	}
	r.quote("markdown", text)
	return nil
}

func getDOM(ctx context.Context, r *reply, t *browse.Tab, a struct {
	Selector browse.Target
	Depth    *int
}) error {
	text, err := t.DOM(ctx, a.Selector, a.Depth)
	if err != nil {
		return err
	}
	r.page = pageState
	r.quote("html", text)
	return nil
}

// webAddress is the address of a page, nil if it is not one of the web.
func webAddress(raw string) *url.URL {
	u, err := url.Parse(raw)
	if err != nil || !strings.HasPrefix(u.Scheme, "http") {
		return nil
	}
	return u
}
