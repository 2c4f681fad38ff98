package tools

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"strings"

	"btools/lib/browse"
	"btools/lib/searchpage"
	"btools/lib/webtext"
)

// maxAside is how many hidden pages a session has at once: others wait.
const maxAside = 4

// takeAside waits for the right to open a hidden page, which the function that it
// returns gives back.
func (s *Server) takeAside(ctx context.Context) (func(), error) {
	select {
	case s.aside <- struct{}{}:
		return func() { <-s.aside }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// opened is a page that has been read, and closed.
type opened struct {
	html, title string
	url         *url.URL
	status      int
}

// openApart reads a page in a context of its own, which nobody else uses and which is
// closed afterwards, whatever happens. It has the cookies of an agent's own session.
func (r *reply) openApart(ctx context.Context, where string) (*opened, error) {
	where, err := browse.Address(where)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(where)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("url must begin with http:// or https://, unlike %s", address(where))
	}
	free, err := r.server.takeAside(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	most := r.server.of(maxWait)
	late := fmt.Errorf("%s could not be read within %v", address(where), most)
	ctx, cancel := context.WithTimeoutCause(ctx, most, late)
	defer cancel()
	b, err := r.server.chromium(ctx)
	if err != nil {
		return nil, err
	}
	t, end, err := b.Fresh(ctx, r.server.Own)
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := t.Load(ctx, where); err != nil {
		return nil, err
	}
	p := &opened{}
	if p.html, err = t.HTML(ctx, ""); err != nil {
		return nil, err
	}
	state := t.State(ctx)
	if p.title, p.url, p.status = state.Title, webAddress(state.URL), state.Status.Code; p.url == nil {
		return nil, fmt.Errorf("%s is not a page but a file: browser_fetch reads it", address(u.String()))
	}
	return p, nil
}

// describe tells of the page that a text is from.
func (r *output) describe(p *opened, title string) {
	if title != "" {
		r.say("- Title: %s", clipped(title, maxTitle))
	}
	r.say("- URL: %s", address(p.url.String()))
	if p.status >= 400 {
		r.say("- Status: %d %s", p.status, http.StatusText(p.status))
	}
}

func extract(ctx context.Context, r *reply, a struct {
	URL       string
	MaxLength *int `json:"max_length"`
}) error {
	p, err := r.openApart(ctx, a.URL)
	if err != nil {
		return err
	}
	most := 5000
	switch {
	case a.MaxLength == nil && r.form.Value:
		most = math.MaxInt
	case a.MaxLength != nil:
		most = *a.MaxLength
	}
	article := webtext.Main(p.html, p.url)
	if article.Title == "" {
		article.Title = p.title
	}
	r.describe(p, article.Title)
	if article.Byline != "" {
		r.say("- By: %s", clipped(article.Byline, maxTitle))
	}
	if !article.Published.IsZero() {
		r.say("- Published: %s", article.Published.Format("2006-01-02"))
	}
	text, cut := webtext.Cut(article.Text, most)
	switch {
	case article.Text == "":
		r.say("The page has no text.")
		r.value = &text
		return nil
	case article.Whole:
		r.say("The page has no main text; this is all of it:")
	}
	r.quote("markdown", text)
	if cut {
		r.say("These are the first of %d characters: max_length sets how many are shown.", len([]rune(article.Text)))
	}
	return nil
}

func scrape(ctx context.Context, r *reply, a struct {
	URL           string
	IncludeImages bool `json:"include_images"`
}) error {
	p, err := r.openApart(ctx, a.URL)
	if err != nil {
		return err
	}
	r.describe(p, p.title)
	if text := webtext.Markdown(p.html, p.url); text != "" {
		r.quote("markdown", text)
	} else {
		r.say("The page has no text.")
		r.value = &text
	}
	if !a.IncludeImages {
		return nil
	}
	var lines []string
	for _, i := range webtext.Images(p.html, p.url) {
		size := ""
		if i.Width > 0 && i.Height > 0 {
			size = fmt.Sprintf(" (%d×%d)", i.Width, i.Height)
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("- %s%s %s", i.URL, size, oneLine(i.Alt))))
	}
	if lines == nil {
		r.say("The page has no images.")
		return nil
	}
	r.say("%d images:", len(lines))
	r.say("%s", fenced("", strings.Join(lines, "\n")))
	return nil
}

func searchWeb(ctx context.Context, r *reply, a struct {
	Query       string
	Count, Page *int
}) error {
	if strings.TrimSpace(a.Query) == "" {
		return errors.New("query is empty")
	}
	count, page := 10, 1
	if a.Count != nil {
		count = *a.Count
	}
	if a.Page != nil {
		page = *a.Page
	}
	template := os.Getenv("SEARCH_URL")
	if template == "" {
		template = searchpage.Default
	}
	where, err := searchpage.Address(template, a.Query, page)
	if err != nil {
		return fmt.Errorf("SEARCH_URL, in the environment of bmcp, %w", err)
	}
	p, err := r.openApart(ctx, where)
	if err != nil {
		return errors.New(hidden(template, err.Error()))
	}
	results := searchpage.Results(p.html, p.url)
	if len(results) == 0 {
		text, _ := webtext.Cut(webtext.Markdown(p.html, p.url), 500)
		return fmt.Errorf("there are no results on %s. It may ask whether a person searches: browser_navigate opens "+
			"it, and SEARCH_URL in the environment of bmcp names another engine. It begins:\n%s",
			hidden(template, address(p.url.String())), fenced("markdown", hidden(template, text)))
	}
	results = results[:min(len(results), count)]
	r.structured = map[string]any{"results": results}
	var lines []string
	for i, found := range results {
		lines = append(lines, fmt.Sprintf("%d. %s\n   %s", i+1, found.Title, found.URL))
		if found.Snippet != "" {
			lines = append(lines, "   "+found.Snippet)
		}
	}
	r.say("%d results of %s, page %d:", len(results), p.url.Host, page)
	r.say("%s", fenced("", strings.Join(lines, "\n")))
	return nil
}

// hidden is a text without what SEARCH_URL has as a parameter: it may be a key.
func hidden(template, text string) string {
	u, err := url.Parse(template)
	if err != nil || template == searchpage.Default {
		return text
	}
	for name, values := range u.Query() {
		for _, value := range values {
			if value != "" && !strings.Contains(value, "{") {
				for _, as := range []string{value, url.QueryEscape(value)} {
					text = strings.ReplaceAll(text, name+"="+as, name+"=xxxxx")
				}
			}
		}
	}
	return text
}
