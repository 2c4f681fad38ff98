// Package words splits a line into words as a shell does, without running
// anything.
package words

import (
	"errors"
	"strings"
)

// Split splits a line at its spaces; quotes of either kind hold words
// together, a backslash takes the next character as it is, but not in single
// quotes.
func Split(line string) ([]string, error) {
	var out []string
	var word strings.Builder
	in, open := false, rune(0)
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && open != '\'':
			escaped, in = true, true
		case open != 0:
			if r == open {
				open = 0
			} else {
				word.WriteRune(r)
			}
		case r == '\'' || r == '"':
			open, in = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if in {
				out = append(out, word.String())
				word.Reset()
				in = false
			}
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if open != 0 || escaped {
		return nil, errors.New("a quote in it is not closed")
	}
	if in {
		out = append(out, word.String())
	}
	return out, nil
}
