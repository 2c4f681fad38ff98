package child

import (
	"strings"
	"testing"
)

// A URL names its child, and is shown without what may be secret.
func TestURLs(t *testing.T) {
	for spec, want := range map[string]string{
		"https://mcp.linear.app/mcp":             "linear https://mcp.linear.app/mcp",
		"x=https://example.com/a?key=s3cret":     "x https://example.com/a",
		"http://localhost:8080":                  "localhost http://localhost:8080",
		"http://127.0.0.1:8080/mcp#s3cret":       "child http://127.0.0.1:8080/mcp",
		"https://u:s3cret@example.com/mcp?q=1":   "! https://example.com/mcp has a user and a password",
		"https:///mcp":                           "! https:///mcp is not a URL",
		"https://u:s3cret@[::1/mcp?x=s3cret":     "! https://[::1/mcp is not a URL",
		"https://example.com/%zz?s3cret=s3cret#": "! https://example.com/%zz is not a URL",
	} {
		c, err := Parse(spec)
		got := c.Name + " " + c.Shown()
		if err != nil {
			got = "! " + c.Shown() + " " + err.Error()
		}
		if !strings.HasPrefix(got, want) || strings.Contains(got, "s3cret") {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
	for at, ok := range map[string]bool{"http://example.com/mcp": false, "https://example.com/mcp": true,
		"http://[::1]:8/mcp": true} {
		if _, err := Remote("r", at, map[string]string{"X-Key": "1"}, ""); (err == nil) != ok {
			t.Errorf("headers for %s: %v", at, err)
		}
	}
}
