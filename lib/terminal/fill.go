package terminal

import (
	"strings"
	"unicode/utf8"
)

// Fill breaks a text into lines of so many columns, one at least.
func Fill(text string, width int) []string {
	lines := []string{""}
	for _, w := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = w
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(w) <= width:
			*last += " " + w
		default:
			lines = append(lines, w)
		}
	}
	return lines
}
