package shell

import (
	"slices"
	"testing"
)

func TestShownOptions(t *testing.T) {
	t.Parallel()
	got := shown([]string{"--url=https://u:s3cret@a.example/mcp?token=s3cret", "--proxy=http://u:s3cret@p:8080",
		"--mcp=/bin/echo --key=s3cret", "--mcp=https://a.example/mcp?key=s3cret", "--env=KEY=s3cret", "--tools=all",
		"--header=Authorization: s3cret"})
	want := []string{"--url=https://a.example/mcp", "--proxy=http://p:8080", "--mcp=/bin/echo",
		"--mcp=https://a.example/mcp", "--env=KEY", "--tools=all", "--header=Authorization"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
