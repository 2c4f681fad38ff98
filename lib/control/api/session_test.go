package api

import (
	"strings"
	"testing"
)

// People find a session by what they call it, and by nothing else.
func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64)
	for _, called := range []string{"a", "shop.1-b", "claude-1234", long, long[:37], long[:38]} {
		s := Session{Name: NameOf(called)}
		if len(s.Name) > 64 || s.Name == NameOf(called) || !s.IsCalled(called) || !s.IsCalled(s.Name) {
			t.Errorf("%s is not called %s", s.Name, called)
		}
		for _, other := range []string{"", "b", called[1:] + "y", called[:len(called)-1] + "y", called + "y"} {
			if s.IsCalled(other) {
				t.Errorf("%s is called %s", s.Name, other)
			}
		}
	}
	host := NameOf("claude-code-7f3a")
	if s := (&Session{Name: host + ".shop"}); !s.IsCalled("claude-code-7f3a.shop") || s.IsCalled("claude-code-7f3a") {
		t.Errorf("%s is not called by its session_id", s.Name)
	}
	for name, want := range map[string]string{host: "claude-code-7f3a", host + ".b": "claude-code-7f3a.b",
		"a-b.c": "a-b.c"} {
		if got := Called(name); got != want {
			t.Errorf("%s is called %s", name, got)
		}
	}
	for _, name := range []string{"a", "a-b", "a-abcdefghijklmnopqrstuvwxyz", strings.Repeat("A", 27)} {
		if s := (&Session{Name: name}); s.IsCalled(name[:1]) != (name == "a") {
			t.Errorf("%s is called %s", name, name[:1])
		}
	}
}
