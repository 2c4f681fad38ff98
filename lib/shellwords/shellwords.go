// Package shellwords splits a line into words as a shell does, without running or
// replacing anything.
package shellwords

import (
	"errors"
	"strings"
)

// Split splits a line at its spaces. What is in single quotes is taken as it
// is; in double quotes a backslash takes the next character as it is if that
// is one of $ ` " \ or a newline, elsewhere any. A newline after a backslash
// vanishes.
func Split(line string) ([]string, error) {
	words, last, in, err := split(line)
	if err != nil {
		return nil, err
	}
	if in {
		words = append(words, last)
	}
	return words, nil
}

// Begun splits a line that is being typed. The last word is the one at its end,
// "" after a space; a quote in it may be open.
func Begun(line string) []string {
	words, last, _, _ := split(line)
	return append(words, last)
}

// split returns the words, the one at the end apart, and whether there is that one.
func split(line string) (out []string, last string, in bool, err error) {
	var word strings.Builder
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == '\'' && c == '\'', quote == '"' && c == '"':
			quote = 0
		case quote == '\'':
			word.WriteByte(c)
		case c == '\\':
			i++
			if i == len(line) {
				return out, word.String(), in, errors.New("it ends in a backslash")
			}
			switch next := line[i]; {
			case next == '\n':
				continue
			case quote == '"' && !strings.ContainsRune("$`\"\\", rune(next)):
				word.WriteByte('\\')
				word.WriteByte(next)
			default:
				word.WriteByte(next)
			}
			in = true
		case quote == '"':
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if in {
				out = append(out, word.String())
				word.Reset()
				in = false
			}
		default:
			word.WriteByte(c)
			in = true
		}
	}
	if quote != 0 {
		err = errors.New("a quote in it is not closed")
	}
	return out, word.String(), in, err
}
