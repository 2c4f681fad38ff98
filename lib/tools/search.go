package tools

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// pattern is what is looked for in a line.
type pattern struct {
	*regexp.Regexp
	word string // in lower case: a line of ASCII without it does not match; "": none
}

// find is where a line matches, nil if it does not. A regular expression takes a hundred
// times as long as a word.
func (p pattern) find(line string) []int {
	if p.word != "" && isASCII(line) && !strings.Contains(strings.ToLower(line), p.word) {
		return nil
	}
	return p.FindStringIndex(line)
}

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// sayFound says how many lines match what was searched for.
func (r *output) sayFound(n int, text, regex string) {
	sought := fmt.Sprintf("%q", text)
	if text == "" {
		sought = "/" + regex + "/"
		if strings.HasPrefix(regex, "/") {
			sought = regex
		}
	}
	switch sought = clipped(sought, maxTitle); n {
	case 0:
		r.say("No matches found for %s.", sought)
	case 1:
		r.say("Found 1 match for %s:", sought)
	default:
		r.say("Found %d matches for %s:", n, sought)
	}
}

// maxSought is how many bytes a text may have that is looked for: the time that it takes to look for
// one grows with its square. A longer one is found by a part of it.
const maxSought = 2000

// isTooLong returns an error if a text is too long to be looked for.
func isTooLong(text string) error {
	if len(text) <= maxSought {
		return nil
	}
	return fmt.Errorf("a text of %d bytes is too long to be looked for: give a part of it, of at most %d", len(text),
		maxSought)
}

// searched is what finds a text, in any case, or a regular expression in a line.
func searched(text, regex string) (p pattern, err error) {
	if err := isTooLong(text + regex); err != nil {
		return p, err
	}
	switch {
	case isBlank(text) && regex == "":
		return p, errors.New("one of text and regex is needed")
	case text != "" && regex != "":
		return p, errors.New("only one of text and regex can be given")
	case text != "":
		words := strings.Fields(text)
		for i, word := range words {
			if isASCII(word) && len(word) > len(p.word) {
				p.word = strings.ToLower(word)
			}
			words[i] = regexp.QuoteMeta(word)
		}
		p.Regexp, err = regexp.Compile("(?i)" + strings.Join(words, `\s+`))
		return p, err
	}
	if strings.HasPrefix(regex, "/") {
		if end := strings.LastIndexByte(regex, '/'); end > 0 {
			flags := strings.Map(func(r rune) rune {
				if strings.ContainsRune("ims", r) {
					return r
				}
				return -1
			}, regex[end+1:])
			regex = regex[1:end]
			if flags != "" {
				regex = "(?" + flags + ")" + regex
			}
		}
	}
	if p.Regexp, err = regexp.Compile(regex); err != nil {
		return p, fmt.Errorf("regex is not a regular expression: %w", err)
	}
	return p, nil
}

// around is how many lines before and after a match are shown.
const around = 2

// matches are the lines of an outline that match, with their neighbours, and all of them
// below the lines that they belong to.
func matches(outline string, is pattern) (found string, n int) {
	lines := strings.Split(outline, "\n")
	show := make([]bool, len(lines))
	for i, line := range lines {
		at := is.find(line)
		if at == nil {
			continue
		}
		n++
		for k := max(0, i-around); k <= min(len(lines)-1, i+around); k++ {
			show[k] = true
		}
		lines[i] = excerpt(line, at[0], at[1])
	}
	var above []int // the lines that a line belongs to
	for i, line := range lines {
		for len(above) > 0 && indent(lines[above[len(above)-1]]) >= indent(line) {
			above = above[:len(above)-1]
		}
		if show[i] {
			for _, k := range above {
				show[k] = true
			}
		}
		above = append(above, i)
	}
	var out []string
	for i, line := range lines {
		switch {
		case show[i]:
			out = append(out, excerpt(line, 0, 0))
		case i > 0 && show[i-1] && n > 0:
			out = append(out, strings.Repeat(" ", indent(line))+"…")
		}
	}
	return strings.Join(out, "\n"), n
}

// maxLine is how many bytes of a line are shown: of a longer one its beginning, which
// says what it is, and what is around the match.
const maxLine = 1200

// excerpt is a line, shortened to what is around a part of it if it is long.
func excerpt(line string, from, to int) string {
	if len(line) <= maxLine {
		return line
	}
	const head, before, after = 200, 300, 500
	to = min(to, from+after)
	if from < head+before {
		return strings.ToValidUTF8(line[:min(len(line), max(head+before, to+after))], "") + " …"
	}
	end, more := min(len(line), to+after), " …"
	if end == len(line) {
		more = ""
	}
	return strings.ToValidUTF8(line[:head]+" … "+line[from-before:end], "") + more
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
