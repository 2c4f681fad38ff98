package coordinator

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// toolsNamed are tools with these names.
func toolsNamed(names ...string) (all []json.RawMessage) {
	for _, name := range names {
		all = append(all, toolNamed(name))
	}
	return all
}

func toolNamed(name string) json.RawMessage {
	return json.RawMessage(`{"name":` + string(jsonrpc.Quote(name)) + `,"inputSchema":{"type":"object"}}`)
}

// withChildren is a coordinator with children that are never started.
func withChildren(t *testing.T, names ...string) *Coordinator {
	o := Options{Source: source.ChildLaunched("firefox", true), Release: "0", Log: slog.New(slog.DiscardHandler),
		Stderr: io.Discard,
		Detect: func(context.Context) ([]json.RawMessage, error) { return nil, nil }}
	for _, name := range names {
		o.Children = append(o.Children, Child{Name: name, Argv: []string{"./none/" + name}})
	}
	c := New(o)
	t.Cleanup(c.Close)
	return c
}

// A tool keeps the name that the host was given, whoever else comes by it: it
// would call another server. Names that some hosts don't take are shortened.
func TestNamesOfTools(t *testing.T) {
	c := withChildren(t, "first", "second", "a-child-of-a-long-na")
	s := c.NewSession(func(json.RawMessage, bool, []byte) {}, false)
	child := func(i int) *Child { return &c.Children[i] }
	where := func(s *Session, name string) string {
		if r, ok := s.tools(mcp.OfHandshake).routes[name]; ok {
			return r.child.Name + "/" + r.name
		}
		return ""
	}
	s.listTools(child(1), mcp.OfHandshake, toolsNamed("same", "gone"))
	s.lists.give(mcp.OfHandshake)
	s.listTools(child(0), mcp.OfHandshake, toolsNamed("same", "other", "gone")) // it was late
	for name, want := range map[string]string{"same": "second/same", "first__same": "first/same",
		"other": "first/other", "second__same": ""} {
		if got := where(s, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	s.listTools(child(1), mcp.OfHandshake, toolsNamed("same"))
	if got := where(s, "gone"); got != "" {
		t.Errorf("what the host knows as second/gone is %s", got)
	}
	// Another host has seen nothing yet: the order of the children decides.
	if got := where(c.NewSession(func(json.RawMessage, bool, []byte) {}, false), "same"); got != "first/same" {
		t.Error(got)
	}

	long := strings.Repeat("x", 50)
	s.listTools(child(0), mcp.OfHandshake, toolsNamed("same", long))
	s.listTools(child(2), mcp.OfHandshake, toolsNamed(long, strings.Repeat("y", 65)))
	m := s.tools(mcp.OfHandshake)
	if got := where(s, "a-child-of-a__"+long); got != "a-child-of-a-long-na/"+long {
		t.Errorf("%q in %v", got, m.notes)
	}
	for _, want := range []string{"the tool " + long + " of a-child-of-a-long-na is a-child-of-a__" + long,
		"has a name that is longer than some hosts take"} {
		if !slices.ContainsFunc(m.notes, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("no %q in %q", want, m.notes)
		}
	}
}

// Each session has the list of its own children once they have spoken, and is
// told of the changes of that, and of no others.
func TestListsOfSeveralHosts(t *testing.T) {
	c := withChildren(t, "child")
	type host struct {
		*Session
		told int
	}
	hosts := make([]host, 3)
	for i := range hosts {
		h := &hosts[i]
		h.Session = c.NewSession(func(_ json.RawMessage, _ bool, message []byte) {
			if strings.Contains(string(message), "tools/list_changed") {
				h.told++
			}
		}, false)
		params := json.RawMessage("{}")
		h.params.Store(&params)
	}
	has := func(h *host, name string, want bool, told int) {
		t.Helper()
		if _, ok := h.tools(mcp.OfHandshake).routes[name]; ok != want || h.told != told {
			t.Errorf("%s: %v, want %v; told %d times, want %d", name, ok, want, h.told, told)
		}
	}
	child := &c.Children[0]
	a, b, other := &hosts[0], &hosts[1], &hosts[2]
	a.listTools(child, mcp.OfHandshake, toolsNamed("echo", "elicit"))
	for i := range hosts {
		hosts[i].lists.give(mcp.OfHandshake)
	}
	has(b, "elicit", true, 0) // as its own child has said nothing yet
	b.listTools(child, mcp.OfHandshake, toolsNamed("echo"))
	has(a, "elicit", true, 0)
	has(b, "elicit", false, 1)
	has(other, "elicit", false, 1)
	b.lists.give(mcp.OfHandshake)
	a.listTools(child, mcp.OfHandshake, toolsNamed("echo", "elicit", "enabled"))
	has(a, "enabled", true, 1)
	has(b, "enabled", false, 1)
	// Hosts of the stateless protocol share a session, by what they can be asked.
	can := mcp.Audience(`{"roots":{}}`)
	b.listTools(child, can, toolsNamed("rooted"))
	has(b, "rooted", false, 1)
	if _, ok := b.tools(can).routes["rooted"]; !ok {
		t.Errorf("%v", b.tools(can).routes)
	}
}
