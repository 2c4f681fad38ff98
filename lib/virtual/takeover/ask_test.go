package takeover

import (
	"strings"
	"testing"
	"time"
)

// There is one ask at a time, and six within an hour.
func TestAsks(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	var a Asks
	for n := range 20 {
		ask := Ask{Instructions: "log in", Since: now.Add(time.Duration(n/MaxAsks) * AskInterval).
			Add(time.Duration(n%MaxAsks) * time.Minute)}
		if err := a.Begin(ask); err != nil {
			t.Fatalf("ask %d: %v", n, err)
		}
		if err := a.Begin(ask); err == nil || !strings.Contains(err.Error(), "one ask at a time") {
			t.Fatalf("two at once: %v", err)
		}
		open := a.Open
		if a.End(&ask) || !a.End(open) || a.End(open) {
			t.Fatal("another one was ended, or one twice")
		}
		if n%MaxAsks == MaxAsks-1 {
			ask.Since = ask.Since.Add(time.Minute)
			if err := a.Begin(ask); err == nil || !strings.Contains(err.Error(), "10:00") &&
				!strings.Contains(err.Error(), "00") {
				t.Fatalf("a seventh: %v", err)
			}
		}
	}
}

// A condition has a kind and a value.
func TestCheckCondition(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "url=https://shop/*", "text=Welcome", "selector=#account", "cookie=session"} {
		if err := CheckCondition(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"text", "text=", "=x", "title=x", "text=" + strings.Repeat("x", 3000)} {
		if CheckCondition(bad) == nil {
			t.Errorf("%.20s is taken", bad)
		}
	}
}
