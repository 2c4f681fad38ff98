package results

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Bounds of Request.Limit, in characters.
const (
	defaultLimit = 10_000
	maxLimit     = 100_000
)

// Request says what to show of a text. Offset and Limit are counted in the
// characters of what Pattern, Query and Flatten yield, or else of the text.
type Request struct {
	Offset  int    `json:"offset"`
	Limit   int    `json:"limit"`   // 0: defaultLimit
	All     bool   `json:"-"`       // the default limit is none
	Pattern string `json:"pattern"` // a regular expression; shows the lines that match
	Context int    `json:"context"` // lines around each of them
	Query   string `json:"query"`   // JMESPath, of JSON or of the nodes of a snapshot
	Flatten bool   `json:"flatten"` // shows the nodes of a snapshot as a list, or has Query search it
}

// Page is a part of a text.
type Page struct {
	Text   string
	Offset int // of the page
	End    int // of the page: where the next one begins
	Total  int // characters
}

// Show returns the part of a text that is asked for. It ends with the context.
func Show(ctx context.Context, text string, r Request) (Page, error) {
	switch {
	case r.Pattern != "" && (r.Query != "" || r.Flatten):
		return Page{}, errors.New("pattern searches the text, query and flatten its nodes: give one of them")
	case r.Context != 0 && r.Pattern == "":
		return Page{}, errors.New("context is the number of lines around those that match pattern, which is missing")
	}
	switch {
	case r.Limit == 0 && r.All:
		r.Limit = math.MaxInt32
	case r.Limit == 0:
		r.Limit = defaultLimit
	case r.Limit < 0 || r.Limit > maxLimit:
		return Page{}, fmt.Errorf("limit is 1 to %d characters, not %d", maxLimit, r.Limit)
	}
	var err error
	switch {
	case r.Pattern != "":
		text, err = search(ctx, text, r.Pattern, r.Context)
	case r.Query != "":
		text, err = query(ctx, text, r.Query, r.Flatten)
	case r.Flatten:
		w := &window{offset: r.Offset, limit: r.Limit}
		if err := flattened(ctx, text, w); err != nil {
			return Page{}, err
		}
		return w.page()
	}
	if err != nil {
		return Page{}, err
	}
	w := &window{offset: r.Offset, limit: r.Limit, text: text, total: utf8.RuneCountInString(text)}
	return w.page()
}

// window is the part of a text from which a page is cut.
type window struct {
	offset, limit int // of the page

	text  string
	first int // characters before it
	total int // characters of the whole text
}

// add adds a line to the text, but keeps it only if it may be of the page.
func (w *window) add(line []byte) {
	before := w.total
	w.total += utf8.RuneCount(line)
	switch {
	case w.total <= w.offset:
		w.first = w.total
	case before < w.offset+w.limit:
		w.text += string(line)
	}
}

// page cuts out the page, at characters. It ends with a line if one ends in its last
// quarter.
func (w *window) page() (Page, error) {
	if w.offset > w.total || w.offset < 0 {
		return Page{}, fmt.Errorf("offset is at most %d, the number of characters, not %d", w.total, w.offset)
	}
	rest := w.text[byteOf(w.text, w.offset-w.first):]
	p := Page{Text: head(rest, byteOf(rest, w.limit)), Offset: w.offset, Total: w.total}
	p.End = p.Offset + utf8.RuneCountInString(p.Text)
	return p, nil
}

// head returns the beginning of a text that has at most so many bytes. It ends
// with a line if one ends in its last quarter, and never within a character.
func head(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	for bytes > 0 && !utf8.RuneStart(text[bytes]) {
		bytes--
	}
	if i := strings.LastIndexByte(text[:bytes], '\n'); i >= bytes-bytes/4 {
		return text[:i+1]
	}
	return text[:bytes]
}

// byteOf is the index of the nth character, or the length of a text that has no
// more.
func byteOf(text string, n int) int {
	if n >= len(text) {
		return len(text)
	}
	for i := range text {
		if n == 0 {
			return i
		}
		n--
	}
	return len(text)
}
