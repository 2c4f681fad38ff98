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
	var out []string
	var word strings.Builder
	in, quote := false, byte(0)
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
				return nil, errors.New("it ends in a backslash")
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
		return nil, errors.New("a quote in it is not closed")
	}
	if in {
		out = append(out, word.String())
	}
	return out, nil
}
