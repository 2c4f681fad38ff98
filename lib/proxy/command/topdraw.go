package command

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"btools/lib/spell"
	"btools/lib/terminal"
	"btools/lib/terminal/picture"
	"btools/lib/terminal/screen"
)

// topColumns are the columns of the list, with the least width of each.
var topColumns = []struct {
	head  string
	width int
	text  func(*topRow) string
}{
	{"PROGRAM", 9, func(r *topRow) string { return r.Program }},
	{"SESSION", 16, func(r *topRow) string { return r.Key }},
	{"HOLDER", 16, func(r *topRow) string { return r.Holder }},
	{"CONTROL", 10, (*topRow).control},
	{"TITLE", 18, func(r *topRow) string { return cmp.Or(r.title, r.reason()) }},
	{"ORIGIN", 16, func(r *topRow) string { return originOf(r.url) }},
	{"TABS", 4, func(r *topRow) string { return strconv.Itoa(r.Tabs) }},
	{"IDLE", 4, func(r *topRow) string { return span(r.Idle) }},
	{"LAST COMMAND", 26, (*topRow).last},
}

// Columns by their place.
const (
	ofProgram = iota
	ofSession
	ofHolder
	ofControl
	ofTitle
	ofOrigin
	ofTabs
	ofIdle
	ofLast
)

// byImportance are the columns, the last to go first.
var byImportance = []int{ofSession, ofControl, ofTitle, ofOrigin, ofProgram, ofIdle, ofTabs, ofHolder, ofLast}

// widthsFor returns the widths of columns in so many; 0: it is left out.
func widthsFor(width int) []int {
	widths := make([]int, len(topColumns))
	left := width + 1
	for i, c := range byImportance {
		if w := topColumns[c].width; w < left || i == 0 {
			widths[c] = w
			left -= w + 1
		}
	}
	grows := max(0, min(left/2, 16))
	widths[ofSession] += grows
	if widths[ofTitle] > 0 {
		widths[ofTitle] += left - grows
	}
	return widths
}

// control returns who has control of a session, or why somebody should.
func (r *topRow) control() string {
	by := ""
	switch {
	case r.held != nil:
		by = "you"
	case r.Control != nil:
		by = r.Control.By
	case r.Ask != nil:
		return "needs you"
	case r.Hibernated:
		return "hibernated"
	}
	if r.Control != nil && r.Control.Private {
		by += ", private"
	}
	return by
}

// reason returns why nothing is known of the pages of a session.
func (r *topRow) reason() string { return cmp.Or(r.Why, r.why) }

// last returns the last command of a client, and how long ago it was.
func (r *topRow) last() string {
	if r.did == nil {
		return ""
	}
	return span(int(time.Since(r.did.At.Time).Seconds())) + " " + cmp.Or(r.did.Type, r.did.Method)
}

// span returns a number of seconds in few characters; below 0: not known.
func span(seconds int) string {
	switch {
	case seconds < 0:
		return ""
	case seconds < 60:
		return strconv.Itoa(seconds) + "s"
	case seconds < 60*60:
		return strconv.Itoa(seconds/60) + "m"
	case seconds < 24*60*60:
		return strconv.Itoa(seconds/60/60) + "h"
	}
	return strconv.Itoa(seconds/24/60/60) + "d"
}

// originOf returns the origin of an address as people know it, or what it is instead.
func originOf(address string) string {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme == "about":
		return address
	case u.Scheme == "https":
		return u.Host
	case u.Scheme == "http":
		return "http://" + u.Host
	case u.Scheme == "":
		return ""
	}
	return u.Scheme + ":…"
}

// draw shows what has changed.
func (t *top) draw(ctx context.Context) {
	size := t.screen.Size()
	t.mu.Lock()
	rows := max(0, size.Height-3)
	t.arrange(rows)
	onScreen := t.shown[t.first:min(len(t.shown), t.first+rows)]
	var lines []string
	if t.watched != nil {
		lines = t.linesOfPicture(size)
		onScreen = append([]*topRow{t.watched}, onScreen...)
	} else {
		lines = t.linesOf(onScreen, size.Width)
	}
	lines = append(lines, make([]string, max(0, size.Height-1-len(lines)))...)
	lines = append(lines[:size.Height-1], terminal.Cut(t.lastLine(), size.Width))
	t.see(ctx, onScreen)
	picture := t.picture
	t.mu.Unlock()
	t.screen.Show(lines, picture)
}

// arrange finds the rows that pass the filter and, of them, the selected one and the first on the screen.
func (t *top) arrange(rows int) {
	t.shown = slices.DeleteFunc(slices.Clone(t.all), func(r *topRow) bool {
		text := strings.Join([]string{r.Key, r.Program, r.Holder, r.title, originOf(r.url)}, " ")
		return !strings.Contains(strings.ToLower(text), strings.ToLower(t.filter))
	})
	at := slices.IndexFunc(t.shown, func(r *topRow) bool { return r.Key == t.selected })
	if at < 0 {
		at = min(t.at, len(t.shown)-1)
	}
	t.at = max(0, at)
	if t.at < len(t.shown) {
		t.selected = t.shown[t.at].Key
	}
	t.first = max(0, min(max(t.first, t.at-rows+1), t.at, len(t.shown)-rows))
}

// linesOf returns the lines of the list.
func (t *top) linesOf(rows []*topRow, width int) []string {
	title := spell.Count(len(t.all), "session")
	if asks := len(slices.DeleteFunc(slices.Clone(t.all), func(r *topRow) bool { return r.Ask == nil })); asks > 0 {
		title += fmt.Sprintf(", %d need you", asks)
	}
	if t.filter != "" {
		title += fmt.Sprintf(", %d with %s", len(t.shown), t.filter)
	}
	widths := widthsFor(width)
	lines := []string{terminal.Cut(title, width), "\x1b[1m" + t.lineOf(nil, widths)}
	for _, r := range rows {
		line := t.lineOf(r, widths)
		if r.Key == t.selected {
			line = "\x1b[7m" + strings.Repeat(" ", width) + line
		}
		lines = append(lines, line)
	}
	return lines
}

// lineOf returns the line of a row; nil: of the heads. Each cell has its place, whatever the width of the one before.
func (t *top) lineOf(r *topRow, widths []int) string {
	var b strings.Builder
	at := 1
	for i, c := range topColumns {
		w := widths[i]
		if w == 0 {
			continue
		}
		text := c.head
		if r != nil {
			text = c.text(r)
		}
		if i == ofOrigin && len(text) > w { // its end says whose it is
			text = "…" + text[len(text)-w+1:]
		}
		text = terminal.Cut(text, w)
		if i == ofControl && t.colors && r != nil && (r.Ask != nil || r.Control != nil || r.held != nil) {
			text = "\x1b[33m" + text + "\x1b[39m"
		}
		fmt.Fprintf(&b, "\x1b[%dG%s", at, text)
		at += w + 1
	}
	return b.String()
}

// linesOfPicture returns the lines around the picture of a session, and places that.
func (t *top) linesOfPicture(size screen.Size) []string {
	r := t.watched
	words := []string{r.Key, originOf(r.url), r.control(), r.title}
	lines := []string{"\x1b[1m" + terminal.Cut(strings.Join(slices.DeleteFunc(words, func(s string) bool {
		return s == ""
	}), " · "), size.Width)}
	why := t.noPicture
	if !t.isKitty {
		why = "This terminal has not said that it shows pictures, by the graphics protocol of kitty: o opens the page."
	}
	switch {
	case why != "":
		t.removePicture()
		lines = append(lines, terminal.Fill(terminal.Cut(why, 4*size.Width), size.Width)...)
	case t.png != nil && t.placed != size:
		t.picture, t.placed = picture.Place(t.png, t.number, size, 1, 1), size
	}
	return lines
}

// removePicture has no picture shown.
func (t *top) removePicture() {
	if t.picture != "" {
		t.picture, t.placed = picture.Remove(t.number), screen.Size{}
	}
}

// lastLine returns what there is to say, or to press.
func (t *top) lastLine() string {
	switch {
	case t.isFiltering:
		return "/" + t.filter + "_"
	case t.message != "":
		return t.message
	case t.err != nil:
		return t.err.Error()
	case t.watched == nil && t.at < len(t.shown) && t.shown[t.at].Ask != nil:
		ask := t.shown[t.at].Ask
		return cmp.Or(ask.By, "the agent") + " asks: " + ask.Instructions
	case len(t.all) == 0:
		return "q quit · bproxy share, bmcp and bpool serve with ISOLATION=context have sessions"
	case t.watched != nil:
		return "q quit · Esc list · o page · t take over · g give back"
	}
	return "q quit · ↑↓ select · Enter picture · o page · t take over · g give back · / filter · r refresh"
}

// watch takes a picture of a session each second, if the terminal shows any.
func (t *top) watch(ctx context.Context, r *topRow) {
	select {
	case <-t.kitty:
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(topEvery)
	defer tick.Stop()
	for {
		png, err := t.shoot(ctx, r)
		if ctx.Err() != nil {
			return
		}
		t.set(func() {
			if !bytes.Equal(png, t.png) {
				t.png, t.placed = png, screen.Size{}
			}
			if t.noPicture = ""; err != nil {
				t.noPicture = "no picture: " + err.Error()
			}
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
