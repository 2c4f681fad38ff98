// Package lazy has values that take time to make and that most processes never
// need: they are made at their first use, and not at each start of a program.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns the regular expression of a valid text, which is compiled once.
func Regexp(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
