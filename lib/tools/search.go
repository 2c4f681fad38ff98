package tools

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// searched is what says whether a line matches a text or a regular expression.
func searched(text, regex string) (func(string) bool, error) {
	switch {
	case (text == "") == (regex == ""):
		return nil, errors.New("one of text and regex is needed")
	case text != "":
		lower := strings.ToLower(text)
		return func(line string) bool { return strings.Contains(strings.ToLower(line), lower) }, nil
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
	re, err := regexp.Compile(regex)
	if err != nil {
		return nil, fmt.Errorf("regex is not a regular expression: %w", err)
	}
	return re.MatchString, nil
}

// around is how many lines before and after a match are shown.
const around = 2

// matches are the lines of an outline that match, each with its neighbours and
// below the lines that it belongs to.
func matches(outline string, is func(string) bool) (found string, n int) {
	lines := strings.Split(outline, "\n")
	show := make([]bool, len(lines))
	for i, line := range lines {
		if !is(line) {
			continue
		}
		n++
		for k := max(0, i-around); k <= min(len(lines)-1, i+around); k++ {
			show[k] = true
		}
		depth := indent(line)
		for k := i - 1; k >= 0 && depth > 0; k-- {
			if d := indent(lines[k]); d < depth {
				show[k], depth = true, d
			}
		}
	}
	var out []string
	for i, line := range lines {
		switch {
		case show[i]:
			out = append(out, line)
		case i > 0 && show[i-1] && n > 0:
			out = append(out, strings.Repeat(" ", indent(line))+"…")
		}
	}
	return strings.Join(out, "\n"), n
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
