package tools

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"btools/lib/browse"
)

// A host pays for each snapshot, so it is shown one document once, and then what differs from that.

// shown is the snapshot of a document that an agent has been shown, in lines.
type shown struct {
	document string
	lines    []string
}

const (
	maxShown = 8    // documents whose snapshots are kept
	maxView  = 8000 // bytes of a snapshot that nobody has asked for
	maxGone  = 3    // removed elements that are named
)

// delta is what of a snapshot an agent has not been shown yet.
type delta struct {
	text  string   // "": nothing differs
	whole bool     // it is the whole snapshot
	file  string   // that has the whole snapshot in place of the text; "": none has
	lines []change // those that differ, if each has taken the place of one
	focus bool     // nothing differs but what has the focus
}

// change is a line, and what has taken its place.
type change struct{ old, now string }

// state returns how a sentence on the element of the line goes on.
func (c change) state() string {
	was, is := parts(c.old), parts(c.now)
	said := ", now"
	if was.name != is.name {
		said += " " + is.name
	} else if is.states == "" && is.value == "" {
		if was.states == "" {
			return ", now empty"
		}
		return ", now without" + was.states
	}
	if said += is.states; is.value != "" {
		said += ": " + is.value
	}
	return said
}

// element is a line of a snapshot in parts: role and name, states, ref, value.
type element struct{ name, states, ref, value string }

func parts(line string) (e element) {
	line = strings.TrimLeft(line, " -")
	e.name, _, _ = strings.Cut(line, " ")
	e.name = strings.TrimSuffix(e.name, ":")
	rest := line[len(e.name):]
	if name, err := strconv.QuotedPrefix(strings.TrimPrefix(rest, " ")); err == nil && name[0] == '"' {
		e.name, rest = e.name+" "+name, rest[1+len(name):]
	}
	for strings.HasPrefix(rest, " [") && strings.Contains(rest, "]") {
		state, after, _ := strings.Cut(rest, "]")
		rest = after
		if ref, ok := strings.CutPrefix(state, " [ref="); ok {
			e.ref = ref
		} else if state += "]"; state != active {
			e.states += state
		}
	}
	e.value = strings.TrimPrefix(strings.TrimPrefix(rest, ":"), " ")
	return e
}

// show records a snapshot that an agent is shown, and returns what of it is new.
func (s *Server) show(document, text string) (d delta) {
	now := strings.Split(text, "\n")
	i := slices.IndexFunc(s.shown, func(k shown) bool { return k.document == document })
	d = delta{text: text, whole: true}
	if i >= 0 {
		d = difference(s.shown[i].lines, now)
		s.shown = slices.Delete(s.shown, i, i+1)
	}
	s.shown = append(s.shown, shown{document, now})
	s.shown = s.shown[max(0, len(s.shown)-maxShown):]
	return d
}

// look returns what a result shows of a page.
func (r *reply) look(ctx context.Context, p browse.Page) (d delta, err error) {
	switch {
	case r.page == pageChanges && r.server.SnapshotFiles:
		d.file, err = r.snapshotFile(ctx, p)
		return d, err
	case r.page == pageChanges || r.onlyNew:
		return r.changes(ctx, p)
	}
	document := p.Document()
	if d.text, err = p.Snapshot(ctx, r.snapshot); err == nil && r.snapshot == (browse.SnapshotOptions{}) {
		r.server.show(document, d.text)
	}
	return d, err
}

// snapshotFile saves the snapshot in a file, and returns its name in the first directory of the agent.
func (r *reply) snapshotFile(ctx context.Context, p browse.Page) (name string, err error) {
	text, err := p.Snapshot(ctx, browse.SnapshotOptions{})
	if err != nil {
		return "", err
	}
	now := strings.NewReplacer(":", "-", ".", "-").Replace(time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	name = ".playwright-mcp/page-" + now + ".yml"
	_, err = r.server.save(ctx, name, []byte(text))
	return name, err
}

// changes returns what of a page an agent has not been shown yet. Of what is large and not asked for it returns the
// beginning, or an outline.
func (r *reply) changes(ctx context.Context, p browse.Page) (d delta, err error) {
	document := p.Document()
	text, err := p.Snapshot(ctx, browse.SnapshotOptions{})
	if err != nil {
		return d, err
	}
	if d = r.server.show(document, text); len(d.text) <= maxView || r.page == pageSnapshot {
		return d, nil
	}
	what, part := "what has changed", d.text
	if d.whole {
		what = "the headings, links, buttons and fields"
		if part, err = p.Snapshot(ctx, browse.SnapshotOptions{Interactive: true, Headings: true}); err != nil {
			r.server.shown = r.server.shown[:len(r.server.shown)-1] // it is not shown
			return d, err
		}
	}
	lines := strings.Split(part, "\n")
	first := beginning(lines)
	if len(first) < len(lines) {
		what = fmt.Sprintf("%d of %d lines of %s", len(first), len(lines), what)
	}
	d.text = fmt.Sprintf("%s\n# %s: browser_snapshot shows the whole page (%d characters), with a target a part; "+
		"browser_find looks for a text", strings.Join(first, "\n"), what, len(text))
	return d, nil
}

// beginning returns the lines that have room in a view: headings may have half of it, wherever they are, and the first
// others the rest.
func beginning(lines []string) (all []string) {
	left := map[bool]int{true: maxView / 2, false: maxView}
	isHeading := func(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " "), "- heading") }
	for _, line := range lines {
		if isHeading(line) && left[true] > 0 {
			left[true] -= 1 + len(line)
			left[false] -= 1 + len(line)
		}
	}
	left[true] = maxView / 2
	for _, line := range lines {
		heading := isHeading(line)
		if left[heading] -= 1 + len(line); left[heading] >= 0 {
			all = append(all, line)
		}
	}
	return all
}

// difference returns the lines that differ, with the lines that these belong to, or all if these are the larger part.
// That something does not have the focus any more is no difference.
func difference(old, now []string) (d delta) {
	plain := func(line string) string { return strings.Replace(line, active, "", 1) }
	is := map[string]bool{}  // the lines
	has := map[string]bool{} // the refs, and the lines that are not fewer than they were
	left := map[string]int{} // how many more there are of a line
	for _, line := range now {
		is[line], has[parts(line).ref] = true, true
		left[line]++
	}
	old, d.focus = slices.Clone(old), true
	paired := true
	for i, line := range old {
		if !is[line] {
			old[i] = plain(line)
		}
		left[old[i]]--
	}
	for line, n := range left {
		has[line] = n >= 0
	}
	var out []string
	written, changed := 0, 0 // now[:written] is written or left out
	for _, h := range hunks(old, now) {
		out = append(out, above(now, written, h.now)...)
		out = append(out, now[h.now:h.nowEnd]...)
		if gone := gone(old[h.old:h.oldEnd], h.now == h.nowEnd, has); gone != "" {
			out, changed, paired = append(out, gone), changed+1, false
		}
		written, changed = h.nowEnd, changed+h.nowEnd-h.now
		if h.nowEnd > h.now && h.nowEnd-h.now != h.oldEnd-h.old {
			paired = false
		}
		for i := 0; paired && i < h.nowEnd-h.now; i++ {
			d.lines = append(d.lines, change{old[h.old+i], now[h.now+i]})
		}
		d.focus = d.focus && h.nowEnd-h.now == 1 && h.oldEnd-h.old == 1 && plain(now[h.now]) == old[h.old]
	}
	if !paired {
		d.lines = nil
	}
	if changed == 0 {
		return delta{}
	}
	d.text = strings.Join(append([]string{"# what has changed:"}, out...), "\n")
	if all := strings.Join(now, "\n"); 3*len(d.text) > 2*len(all) {
		d.text, d.whole = all, true
	}
	return d
}

// above are the lines that a line belongs to, but for those before from.
func above(lines []string, from, at int) (all []string) {
	depth := indent(lines[min(at, len(lines)-1)])
	for k := at - 1; k >= from && depth > 0; k-- {
		if d := indent(lines[k]); d < depth {
			all, depth = append(all, lines[k]), d
		}
	}
	slices.Reverse(all)
	return all
}

// active is the state of what has the focus.
const active = " [active]"

// gone is a line on what is not in the page any more: elements, and texts if nothing is in their place; "" if there is
// none. Has are the refs that are there, and the lines of which none is missing.
func gone(old []string, empty bool, has map[string]bool) string {
	var all []string
	depth := 0
	for _, line := range old {
		if ref := parts(line).ref; has[line] || ref != "" && has[ref] || ref == "" && !empty {
			continue
		}
		if d := indent(line); all == nil || d <= depth {
			all, depth = append(all, strings.TrimSuffix(strings.TrimLeft(line, " -"), ":")), d
		}
	}
	if all == nil {
		return ""
	}
	more := ""
	if n := len(all) - maxGone; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return strings.Repeat(" ", depth) + "# gone: " + strings.Join(all[:min(maxGone, len(all))], ", ") + more
}

// hunk is a part of old lines that another part has taken the place of.
type hunk struct{ old, oldEnd, now, nowEnd int }

// hunks are the parts that differ. What is equal is found by the lines that are there once, whose longest common
// subsequence is that of most snapshots, because of the refs.
func hunks(old, now []string) (all []hunk) {
	last := hunk{}
	add := func(oldEnd, nowEnd int) { // up to lines that are equal
		h := hunk{last.oldEnd, oldEnd, last.nowEnd, nowEnd}
		for h.old < h.oldEnd && h.now < h.nowEnd && old[h.old] == now[h.now] {
			h.old, h.now = h.old+1, h.now+1
		}
		for h.old < h.oldEnd && h.now < h.nowEnd && old[h.oldEnd-1] == now[h.nowEnd-1] {
			h.oldEnd, h.nowEnd = h.oldEnd-1, h.nowEnd-1
		}
		if h.old < h.oldEnd || h.now < h.nowEnd {
			all = append(all, h)
		}
		last.oldEnd, last.nowEnd = oldEnd, nowEnd
	}
	for _, p := range anchors(old, now) {
		add(p.old, p.now)
	}
	add(len(old), len(now))
	return all
}

// place is where a line is in both.
type place struct{ old, now int }

// anchors are the most lines that are once in both, in the same order.
func anchors(old, now []string) (all []place) {
	type line struct{ olds, nows, old int }
	lines := map[string]line{}
	for i, s := range old {
		l := lines[s]
		l.olds, l.old = l.olds+1, i
		lines[s] = l
	}
	for _, s := range now {
		l := lines[s]
		l.nows++
		lines[s] = l
	}
	type link struct {
		place
		before int // in links; -1: none
	}
	var links []link
	var ends []int // of the subsequence of each length, the link with the least old
	for j, s := range now {
		l := lines[s]
		if l.olds != 1 || l.nows != 1 {
			continue
		}
		n, _ := slices.BinarySearchFunc(ends, l.old, func(end, old int) int { return links[end].old - old })
		before := -1
		if n > 0 {
			before = ends[n-1]
		}
		links = append(links, link{place{l.old, j}, before})
		if n == len(ends) {
			ends = append(ends, 0)
		}
		ends[n] = len(links) - 1
	}
	if len(ends) == 0 {
		return nil
	}
	for i := ends[len(ends)-1]; i >= 0; i = links[i].before {
		all = append(all, links[i].place)
	}
	slices.Reverse(all)
	return all
}
