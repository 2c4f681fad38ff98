package firefox

import (
	"slices"
	"testing"
)

func TestKeysOf(t *testing.T) {
	for combination, want := range map[string][]string{
		"a": {"a"}, "Enter": {"\ue007"}, "Control+a": {"\ue009", "a"},
		"ControlOrMeta+Shift+Tab": {"\ue009", "\ue008", "\ue004"},
		"+":                       {"+"}, "Control++": {"\ue009", "+"}, "ü": {"ü"},
		"Shift+ж": {"\ue008", "Ж"}, "Ctrl+Esc": {"\ue009", "\ue00c"}, "a+b": nil, "Entre": nil, "": nil,
	} {
		if got, err := keysOf(combination); !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %q, %v; want %q", combination, got, err, want)
		}
	}
}
