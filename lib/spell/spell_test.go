package spell

import "testing"

func TestNearest(t *testing.T) {
	for _, c := range []struct{ word, want string }{
		{"headles", "headless"}, {"no-headles", "no-headless"}, {"pört", ""}, {"porto", "port"}, {"x", ""},
		{"nonsense", ""},
		{"port", "port"},
	} {
		if got := Nearest(c.word, []string{"headless", "no-headless", "port", "profile"}); got != c.want {
			t.Errorf("Nearest(%q) = %q, want %q", c.word, got, c.want)
		}
	}
}
