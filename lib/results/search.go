package results

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	maxPattern = 1000    // bytes of a regular expression
	maxContext = 100     // lines around a match
	maxLine    = 500     // bytes that are shown of a longer line
	longLine   = 4 << 10 // bytes of a line whose search looks at the context
	maxFound   = 4 << 20 // bytes of all lines that are shown
	lookEvery  = 4 << 10 // characters of a long line
)

// search returns the lines that match, and those around them, as grep -n shows
// them: with their numbers, and "--" between lines that are not neighbours.
func search(ctx context.Context, text, pattern string, around int) (string, error) {
	if len(pattern) > maxPattern {
		return "", fmt.Errorf("pattern has at most %d bytes, not %d", maxPattern, len(pattern))
	}
	if around < 0 || around > maxContext {
		return "", fmt.Errorf("context is 0 to %d lines, not %d", maxContext, around)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return "", fmt.Errorf("pattern is not a regular expression: %w", err)
	}
	f := found{around: around}
	for line := range strings.Lines(text) {
		if err := context.Cause(ctx); err != nil {
			return "", err
		}
		line = strings.TrimRight(line, "\r\n")
		at, err := find(ctx, re, line)
		if err != nil {
			return "", err
		}
		f.add(line, at)
		if f.out.Len() > maxFound {
			return "", fmt.Errorf("pattern matches too much: the lines have more than %d bytes", maxFound)
		}
	}
	if f.matches == 0 {
		return "", fmt.Errorf("no line matches pattern; the text has %d lines", f.number)
	}
	return f.out.String(), nil
}

// found collects the lines that are shown.
type found struct {
	around  int
	out     strings.Builder
	before  []string // lines that the next match shows
	after   int      // lines that the last match still shows
	number  int      // of lines
	shown   int      // the number of the last line that is shown
	matches int
}

// add looks at the next line; at is where it matches, negative if it does not.
func (f *found) add(line string, at int) {
	f.number++
	switch {
	case at >= 0:
		first := f.number - len(f.before)
		if f.matches > 0 && first > f.shown+1 {
			f.out.WriteString("--\n")
		}
		for i, other := range f.before {
			f.show(first+i, '-', other, 0)
		}
		f.show(f.number, ':', line, at)
		f.matches++
		f.before, f.after = f.before[:0], f.around
	case f.after > 0:
		f.show(f.number, '-', line, 0)
		f.after--
	case f.around > 0:
		if len(f.before) == f.around {
			f.before = append(f.before[:0], f.before[1:]...)
		}
		f.before = append(f.before, line)
	}
}

func (f *found) show(number int, mark byte, line string, at int) {
	fmt.Fprintf(&f.out, "%d%c%s\n", number, mark, excerpt(line, at))
	f.shown = number
}

// excerpt is a line, or, if it is long, what is around a place in it.
func excerpt(line string, at int) string {
	if len(line) <= maxLine {
		return line
	}
	from := max(0, min(at-maxLine/4, len(line)-maxLine))
	to := from + maxLine
	for from > 0 && !utf8.RuneStart(line[from]) {
		from--
	}
	for to < len(line) && !utf8.RuneStart(line[to]) {
		to++
	}
	out := line[from:to]
	if from > 0 {
		out = "…" + out
	}
	if to < len(line) {
		out += "…"
	}
	return out
}

// find returns where a line matches, negative if it does not. The search of a long
// line ends with the context.
func find(ctx context.Context, re *regexp.Regexp, line string) (int, error) {
	var at []int
	if len(line) <= longLine {
		at = re.FindStringIndex(line)
	} else {
		at = re.FindReaderIndex(&runes{ctx: ctx, rest: line})
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
	}
	if at == nil {
		return -1, nil
	}
	return at[0], nil
}

// runes reads a text until the context ends.
type runes struct {
	ctx  context.Context
	rest string
	n    int
}

func (r *runes) ReadRune() (rune, int, error) {
	r.n++
	if r.rest == "" || r.n%lookEvery == 0 && r.ctx.Err() != nil {
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRuneInString(r.rest)
	r.rest = r.rest[size:]
	return c, size, nil
}
