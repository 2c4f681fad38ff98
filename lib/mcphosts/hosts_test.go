package mcphosts

import (
	"strings"
	"testing"
)

func TestLinks(t *testing.T) {
	t.Parallel()
	for _, h := range Hosts {
		link, ok := h.Link(local)
		if ok != (h.link != "") || ok && (!strings.HasPrefix(link, h.link) || strings.ContainsAny(link, " \"{")) {
			t.Errorf("%s: %q", h.Name, link)
		}
		if p, err := h.Path(); err != nil || strings.ContainsAny(p, "~") || strings.Contains(p, "CONFIG") {
			t.Errorf("%s: %q, %v", h.Name, p, err)
		}
	}
	if h, _ := Find("claude-desktop"); h.Check(remote) == nil || h.Check(local) != nil {
		t.Error("claude-desktop has no servers by address")
	}
}

// Where a host reads its configuration is told with the directory, as it differs from system to system.
func TestWhere(t *testing.T) {
	t.Parallel()
	for _, h := range Hosts {
		if where := h.Where(); strings.HasPrefix(where, "Claude") || strings.Contains(where, "CONFIG") {
			t.Errorf("%s: %s", h.Name, where)
		}
	}
}
