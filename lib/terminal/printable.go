// Package terminal is what a program must know of a terminal: its size, its
// foreground, and which bytes it takes for commands.
package terminal

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Printable is a text of others without what a terminal takes for commands:
// control characters, those that turn the direction of the text, and bytes
// that are not UTF-8 are shown as escapes, such as \x1b. Tabs and newlines stay.
func Printable(s string) string { return string(Escape([]byte(s), true)) }

// Escape is Printable of a copy. Without whole, b may begin or end in the
// middle of a character, which stays as it is.
func Escape(b []byte, whole bool) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r == '\n', r == '\t':
			out = append(out, b[i])
		case r == utf8.RuneError && n == 1:
			switch {
			case !whole && !utf8.FullRune(b[i:]):
				return append(out, b[i:]...)
			case !whole && continues(b[:i+1]):
				out = append(out, b[i])
			default:
				out = fmt.Appendf(out, `\x%02x`, b[i])
			}
		case unicode.Is(unicode.Bidi_Control, r):
			out = fmt.Appendf(out, `\u%04x`, r)
		case unicode.IsControl(r):
			out = fmt.Appendf(out, `\x%02x`, r)
		default:
			out = append(out, b[i:i+n]...)
		}
		i += n
	}
	return out
}

// EscapeJSON returns JSON whose texts have escapes in the place of what a terminal takes for commands.
func EscapeJSON(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for _, r := range string(b) {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// continues reports whether b is nothing but the rest of a character that
// began before it.
func continues(b []byte) bool {
	for _, c := range b {
		if utf8.RuneStart(c) {
			return false
		}
	}
	return len(b) < utf8.UTFMax
}
