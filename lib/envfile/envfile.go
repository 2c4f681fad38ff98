// Package envfile reads files of environment variables, as systemd's
// EnvironmentFile= and the .env files of projects have them.
package envfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Variable is one assignment.
type Variable struct {
	Name, Value string
	Source      string // FILE:LINE
}

// Read reads a file: NAME=VALUE a line, "export " before it or not. Blank
// lines and those that begin with # or ; are ignored. A value goes to the end
// of the line, or to a # after a space; in single quotes it is as it stands, in
// double quotes a backslash goes before ", \, $, ` and what else should stand
// for itself, and \n, \r and \t are a line's end and so on. Quotes may span
// lines. Nothing is expanded. Of one that is set twice the last one holds.
func Read(path string) ([]Variable, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("cannot read the variables in %s: %w", path, err)
	}
	return Parse(path, string(b), nil)
}

// SyntaxError is that of a line.
type SyntaxError struct {
	At   string // FILE:LINE
	text string
	why  string // with % in the place of the text
}

func (e *SyntaxError) Error() string { return e.with(fmt.Sprintf("%.60q", e.text)) }

// Untold returns the error without the text of the line.
func (e *SyntaxError) Untold() string { return e.with("its text") }

func (e *SyntaxError) with(text string) string {
	return e.At + ": " + strings.Replace(e.why, "%", text, 1)
}

// Parse is Read for the text of a file. It calls comment, if there is one, for each line that is ignored.
func Parse(path, text string, comment func(at, line string)) (all []Variable, err error) {
	text = strings.TrimPrefix(text, "\ufeff")
	for line := 1; text != ""; {
		first, rest, _ := strings.Cut(text, "\n")
		at := fmt.Sprintf("%s:%d", path, line)
		line++
		text = rest
		first = strings.TrimSpace(first)
		if first == "" || first[0] == '#' || first[0] == ';' {
			if comment != nil {
				comment(at, first)
			}
			continue
		}
		name, value, ok := strings.Cut(first, "=")
		if after, found := strings.CutPrefix(name, "export"); found && strings.TrimLeft(after, " \t") != after {
			name = after
		}
		name = strings.TrimSpace(name)
		if !ok || !validName(name) {
			return nil, &SyntaxError{at, first, "% is not NAME=VALUE"}
		}
		value = strings.TrimLeft(value, " \t")
		if value == "" || value[0] != '"' && value[0] != '\'' {
			all = append(all, Variable{name, uncommented(value), at})
			continue
		}
		// Only a value in quotes goes on in the next line.
		raw := value
		var end int
		for {
			if value, end = unquote(raw); end >= 0 {
				break
			}
			if text == "" {
				return nil, &SyntaxError{at, raw[1:], "the quote before % is not closed"}
			}
			next, rest, _ := strings.Cut(text, "\n")
			raw += "\n" + strings.TrimSuffix(next, "\r")
			text = rest
			line++
		}
		if left := strings.TrimSpace(raw[end:]); left != "" && left[0] != '#' {
			return nil, &SyntaxError{at, left, "% follows the closing quote"}
		}
		all = append(all, Variable{name, value, at})
	}
	return all, nil
}

func validName(s string) bool {
	return s != "" && (s[0] < '0' || s[0] > '9') &&
		strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// uncommented is a value without the comment that follows it.
func uncommented(s string) string {
	for i := range s {
		if s[i] == '#' && (i == 0 || s[i-1] == ' ' || s[i-1] == '\t') {
			s = s[:i]
			break
		}
	}
	return strings.TrimSpace(s)
}

// unquote reads the quoted text that raw begins with, and returns where it
// ends, -1 if it does not.
func unquote(raw string) (value string, end int) {
	var b strings.Builder
	for i := 1; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == raw[0]:
			return b.String(), i + 1
		case c == '\\' && raw[0] == '"' && i+1 < len(raw):
			i++
			switch raw[i] {
			case 'n':
				b.WriteByte('\n')
			case 'r':
				b.WriteByte('\r')
			case 't':
				b.WriteByte('\t')
			case '\n': // the line goes on
			case '"', '\\', '$', '`':
				b.WriteByte(raw[i])
			default:
				b.WriteByte('\\')
				b.WriteByte(raw[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", -1
}
