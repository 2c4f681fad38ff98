package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/child"
)

// toolsNamed are tools with these names.
func toolsNamed(names ...string) (all []json.RawMessage) {
	for _, name := range names {
		all = append(all, json.RawMessage(`{"name":`+string(jsonrpc.Quote(name))+`,"inputSchema":{"type":"object"}}`))
	}
	return all
}

// hosts are lists of hosts that share a catalog.
type hosts struct {
	*testing.T
	*Catalog
	lists []*List
	told  []int // of changes, how often
}

// newHosts are so many hosts of children with these names.
func newHosts(t *testing.T, n int, children ...string) *hosts {
	h := &hosts{T: t, told: make([]int, n)}
	var all []child.Spec
	for _, name := range children {
		all = append(all, child.Spec{Name: name, Argv: []string{"./none/" + name}})
	}
	h.Catalog = New(Options{Children: all})
	for range n {
		h.lists = append(h.lists, h.NewList())
	}
	return h
}

// says has a child list tools to a host.
func (h *hosts) says(host, child int, to mcp.Audience, tools ...string) {
	h.Helper()
	c := &h.Children[child]
	kept, _, err := h.Update(c, string(to), toolsNamed(tools...))
	if err != nil {
		h.Fatal(err)
	}
	h.lists[host].Set(c, to, kept)
	for i, l := range h.lists {
		if l.Changed()[mcp.OfHandshake] {
			h.told[i]++
		}
	}
}

// where is the child and its name of a tool in a host's list.
func (h *hosts) where(host int, to mcp.Audience, name string) string {
	if r, ok := h.lists[host].Tools(to).Route(name); ok {
		return r.Child.Name + "/" + r.Name
	}
	return ""
}

// A tool keeps the name that the host was given, whoever else comes by it: it
// would call another server. Names that some hosts don't take are shortened.
func TestNamesOfTools(t *testing.T) {
	h := newHosts(t, 2, "first", "second", "a-child-of-a-long-na")
	h.says(0, 1, mcp.OfHandshake, "same", "gone")
	h.lists[0].Give(mcp.OfHandshake)
	h.says(0, 0, mcp.OfHandshake, "same", "other", "gone") // it was late
	for name, want := range map[string]string{"same": "second/same", "first__same": "first/same",
		"other": "first/other", "second__same": ""} {
		if got := h.where(0, mcp.OfHandshake, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	h.says(0, 1, mcp.OfHandshake, "same")
	if got := h.where(0, mcp.OfHandshake, "gone"); got != "" {
		t.Errorf("what the host knows as second/gone is %s", got)
	}
	// Another host has seen nothing yet: the order of the children decides.
	if got := h.where(1, mcp.OfHandshake, "same"); got != "first/same" {
		t.Error(got)
	}

	long := strings.Repeat("x", 50)
	h.says(0, 0, mcp.OfHandshake, "same", long)
	h.says(0, 2, mcp.OfHandshake, long, strings.Repeat("y", 100_000), strings.Repeat("y", 64)+"z", "a\n### Result",
		"a\x1b### Result", "äö.1/2")
	notes := h.lists[0].Tools(mcp.OfHandshake).Notes
	if got := h.where(0, mcp.OfHandshake, "a-child-of-a__"+long); got != "a-child-of-a-long-na/"+long {
		t.Errorf("%q in %v", got, notes)
	}
	for _, want := range []string{"the tool " + long + " of a-child-of-a-long-na is a-child-of-a__" + long,
		"of a-child-of-a-long-na is " + strings.Repeat("y", 64) + ": hosts take"} {
		if !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("no %q in %q", want, notes)
		}
	}
	for as, want := range map[string]string{strings.Repeat("y", 62) + "_2": strings.Repeat("y", 64) + "z",
		"a_____Result": "a\n### Result", "a_____Result_2": "a\x1b### Result", "__.1_2": "äö.1/2"} {
		if got := h.where(0, mcp.OfHandshake, as); got != "a-child-of-a-long-na/"+want {
			t.Errorf("%s is %q, want %q, in %.500q", as, got, want, notes)
		}
	}
	var many []string
	for i := range maxTools + 7 {
		many = append(many, fmt.Sprint("t", i))
	}
	h.says(1, 2, mcp.OfHandshake, many...)
	listed := h.lists[1].Tools(mcp.OfHandshake)
	if h.where(1, mcp.OfHandshake, "t1999") == "" || h.where(1, mcp.OfHandshake, "t2000") != "" ||
		!slices.Contains(listed.Notes, "7 tools of a-child-of-a-long-na are left out: it has more than 2000") {
		t.Errorf("of %d tools there are %d, with the notes %.500q", len(many), len(listed.Listed), listed.Notes)
	}
}

// Each host has the list of its own children once they have spoken, and is
// told of the changes of that, and of no others.
func TestListsOfSeveralHosts(t *testing.T) {
	h := newHosts(t, 3, "child")
	const a, b, other = 0, 1, 2
	has := func(host int, name string, want bool, told int) {
		t.Helper()
		if got := h.where(host, mcp.OfHandshake, name) != ""; got != want || h.told[host] != told {
			t.Errorf("%s: %v, want %v; told %d times, want %d", name, got, want, h.told[host], told)
		}
	}
	h.says(a, 0, mcp.OfHandshake, "echo", "elicit")
	for _, l := range h.lists {
		l.Give(mcp.OfHandshake)
	}
	has(b, "elicit", true, 0) // as its own child has said nothing yet
	h.says(b, 0, mcp.OfHandshake, "echo")
	has(a, "elicit", true, 0)
	has(b, "elicit", false, 1)
	has(other, "elicit", false, 1)
	h.lists[b].Give(mcp.OfHandshake)
	h.says(a, 0, mcp.OfHandshake, "echo", "elicit", "enabled")
	has(a, "enabled", true, 1)
	has(b, "enabled", false, 1)
	// Hosts of the stateless protocol share a list, by what they can be asked.
	can := mcp.Audience(`{"roots":{}}`)
	h.says(b, 0, can, "rooted")
	has(b, "rooted", false, 1)
	if h.where(b, can, "rooted") == "" {
		t.Errorf("%s", h.lists[b].Tools(can).Listed)
	}
}

// A prompt or resource is of the child that has listed it, also while that one does not
// answer.
func TestOwners(t *testing.T) {
	h := newHosts(t, 1, "a", "b")
	a, b, l := &h.Children[0], &h.Children[1], h.lists[0]
	none := func(*child.Spec) bool { return false }
	l.SetOwners("prompts", map[string]*child.Spec{"p": a, "q": b}, none)
	l.SetOwners("resourceTemplates", map[string]*child.Spec{"t": b}, none)
	l.SetOwners("prompts", map[string]*child.Spec{"new": b}, func(c *child.Spec) bool { return c == a })
	for _, c := range []struct {
		list, name string
		want       *child.Spec
	}{
		{"prompts", "p", a}, {"prompts", "q", nil}, {"prompts", "new", b}, {"prompts", "t", nil},
		{"resources", "t", b}, {"resources", "p", nil},
	} {
		if got := l.Owner(c.list, c.name); got != c.want {
			t.Errorf("%s %s is of %v, want %v", c.list, c.name, got, c.want)
		}
	}
}
