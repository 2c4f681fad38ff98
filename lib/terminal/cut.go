package terminal

import (
	"strings"
	"unicode"
)

// maxBytes is how many bytes a column may have: characters that take none could be any number.
const maxBytes = 16

// Cut returns a text of others in one line of at most so many columns, with escapes as Printable has them. A character
// that may take two columns counts as such.
func Cut(text string, width int) string {
	text = Printable(strings.Join(strings.Fields(text[:min(len(text), maxBytes*max(0, width))]), " "))
	for i, r := range text {
		if width -= columnsOf(r); width < 0 {
			return text[:i]
		}
	}
	return text
}

// columnsOf returns how many columns a character takes at most.
func columnsOf(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r < 0x1200, r >= 0x2e80:
		return 2
	}
	return 1
}
