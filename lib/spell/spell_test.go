package spell

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 frames", 1: "1 frame", 2: "2 frames"} {
		if got := Count(n, "frame"); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}

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
