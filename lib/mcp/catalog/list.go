package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/child"
)

// List is what one host is given, or several that have one in common: a list of tools for each
// audience, and whose the prompts and resources are.
type List struct {
	catalog *Catalog

	mu     sync.Mutex
	apps   bool // the host of the handshake shows MCP Apps
	of     map[mcp.Audience]*audienceList
	owners map[string]map[string]*child.Spec // by the list, such as prompts, and the name in it
}

// NewList makes the list of a host that has been given nothing.
func (c *Catalog) NewList() *List {
	return &List{catalog: c, of: map[mcp.Audience]*audienceList{}, owners: map[string]map[string]*child.Spec{}}
}

// audienceList is the list of tools for one audience: children may list other tools to
// other hosts.
type audienceList struct {
	own    map[string][]json.RawMessage // what the host's own children have listed, by child
	names  map[toolKey]string           // the names that the host was given
	keys   map[string]toolKey           // the same, by the name
	apps   bool                         // it has those of MCP Apps
	merged *Tools                       // nil: to be made again
	from   *snapshot                    // what it is made from
	given  *Tools                       // what the host has been sent or notified of; nil: nothing
}

// toolKey identifies a tool of a child, by the child's own name for it.
type toolKey struct{ child, name string }

// Tools are the tools of bmcp and of all children, by unique names.
type Tools struct {
	Listed []json.RawMessage
	Notes  []string // on tools that are renamed or left out
	routes map[string]Route
	old    map[string]string
	more   func(name string) (Route, bool) // finds tools that are not listed; nil: not all children are known yet
}

// Route is where a tool of a child is found.
type Route struct {
	Child    *child.Spec
	Name     string // that the child knows it by
	Tool     json.RawMessage
	Stripped []string // the arguments that the child does not get
}

// Route returns the route of a tool by its name, today's or an old one.
func (t *Tools) Route(name string) (r Route, ok bool) {
	if r, ok = t.routes[name]; !ok {
		r, ok = t.routes[t.old[name]]
	}
	if !ok && t.more != nil {
		return t.more(name)
	}
	return r, ok
}

const (
	// maxToolName is the length of a tool's name that all hosts take: VS Code
	// and others leave a tool out whose name is longer.
	maxToolName = 64
	// maxTools bounds the tools of one child: more are no use to a model.
	maxTools = 2000
	// maxGiven bounds the names that are kept for a host.
	maxGiven = 80_000
)

func sameTools(a, b []json.RawMessage) bool {
	return slices.EqualFunc(a, b, func(a, b json.RawMessage) bool { return string(a) == string(b) })
}

// Greet notes what the host of the handshake can do, before it is given anything.
func (l *List) Greet(capabilities json.RawMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.apps = mcp.HasApps(capabilities); l.apps {
		delete(l.of, mcp.OfHandshake)
	}
}

// Tools returns the tools for an audience, as they are known now.
func (l *List) Tools(to mcp.Audience) *Tools {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.toolsLocked(l.forLocked(to))
}

func (l *List) forLocked(to mcp.Audience) *audienceList {
	a := l.of[to]
	if a == nil {
		a = &audienceList{own: map[string][]json.RawMessage{}, names: map[toolKey]string{}, keys: map[string]toolKey{},
			apps: mcp.HasApps(json.RawMessage(to)) || to == mcp.OfHandshake && l.apps}
		l.of[to] = a
	}
	return a
}

func (l *List) toolsLocked(a *audienceList) *Tools {
	if now := l.catalog.now.Load(); a.merged == nil || a.from != now {
		a.from = now
		a.merged = l.catalog.merge(a)
	}
	return a.merged
}

// Give returns the tools for the host to see. Their names stay as they are for
// this host: it may ignore changes of the list.
func (l *List) Give(to mcp.Audience) *Tools {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.forLocked(to)
	a.given = l.toolsLocked(a)
	if len(a.names) > maxGiven {
		a.names, a.keys = map[toolKey]string{}, map[string]toolKey{}
	}
	for name, r := range a.given.routes {
		key := toolKey{r.Child.Name, r.Name}
		a.names[key], a.keys[name] = name, key
	}
	return a.given
}

// Watch has Changed report changes from now on.
func (l *List) Watch(to mcp.Audience) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.forLocked(to); a.given == nil {
		a.given = l.toolsLocked(a)
	}
}

// Set records the tools that a child of the host has listed.
func (l *List) Set(child *child.Spec, to mcp.Audience, tools []json.RawMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.forLocked(to)
	if own, ok := a.own[child.Name]; !ok || !sameTools(own, tools) {
		a.own[child.Name], a.merged = tools, nil
	}
}

// Changed returns the audiences whose lists differ from what was sent last, and
// marks these as sent.
func (l *List) Changed() map[mcp.Audience]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := map[mcp.Audience]bool{}
	for to, a := range l.of {
		now := l.toolsLocked(a)
		if a.given == nil || sameTools(a.given.Listed, now.Listed) {
			continue
		}
		changed[to], a.given = true, now
	}
	return changed
}

// SetOwners records whose the items of a list are. Of children that have failed to
// answer, what they listed before stays known.
func (l *List) SetOwners(list string, now map[string]*child.Spec, failed func(*child.Spec) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, child := range l.owners[list] {
		if now[name] == nil && failed(child) {
			now[name] = child
		}
	}
	l.owners[list] = now
}

// Owner returns the child that has listed a prompt or resource, nil if none has.
func (l *List) Owner(list, name string) *child.Spec {
	l.mu.Lock()
	defer l.mu.Unlock()
	if child := l.owners[list][name]; child != nil || list != "resources" {
		return child
	}
	return l.owners["resourceTemplates"][name]
}

// merge merges the tools that each child has listed for the host, or else has
// listed last.
func (c *Catalog) merge(l *audienceList) *Tools {
	m := &Tools{Listed: slices.Clone(c.Own), routes: map[string]Route{}, old: c.OldNames, more: c.unlisted}
	if why := l.from.missing; why != "" {
		i := slices.IndexFunc(m.Listed, func(tool json.RawMessage) bool {
			return jsonrpc.GetString(tool, "name") == c.StatusTool
		})
		about := jsonrpc.GetString(m.Listed[i], "description") + " Tools are missing now: " + why
		m.Listed[i] = jsonrpc.Set(m.Listed[i], "description", jsonrpc.Quote(about))
	}
	for i := range c.Children {
		child := &c.Children[i]
		tools, ok := l.own[child.Name]
		if !ok {
			tools = l.from.tools[child.Name]
		}
		if tools == nil && !child.Builtin { // it may have a tool of that name
			m.more = nil
		}
		if child.Builtin && l.apps {
			tools = slices.Concat(tools, c.Apps)
		}
		if more := len(tools) - maxTools; more > 0 {
			m.Notes = append(m.Notes, fmt.Sprintf("%d tools of %s are left out: it has more than %d", more, child.Name,
				maxTools))
			tools = tools[:maxTools]
		}
		for n, tool := range tools {
			name := jsonrpc.GetString(tool, "name")
			as, note := c.nameOf(m, l, child, name)
			if note != "" {
				m.Notes = append(m.Notes, note)
			}
			if as == "" {
				continue
			}
			if as != name {
				tool = jsonrpc.Set(tool, "name", jsonrpc.Quote(as))
			}
			r := Route{Child: child, Name: name}
			if child.Drives() {
				tool, r.Stripped = c.Decorate(tool, n == 0 || !child.Builtin)
			}
			r.Tool = tool
			m.Listed = append(m.Listed, tool)
			m.routes[as] = r
		}
	}
	return m
}

// unlisted returns the route of a tool of the built-in child that is not listed, by its own name or with the child's in
// front.
func (c *Catalog) unlisted(name string) (r Route, ok bool) {
	i := slices.IndexFunc(c.Children, func(spec child.Spec) bool { return spec.Builtin })
	if i < 0 {
		return r, false
	}
	spec := &c.Children[i]
	for _, tool := range c.Unlisted {
		own := jsonrpc.GetString(tool, "name")
		if name == spec.Name+"__"+own || name == own && spec.Prefix != child.PrefixAlways {
			tool, stripped := c.Decorate(tool, false)
			return Route{Child: spec, Name: own, Tool: tool, Stripped: stripped}, true
		}
	}
	return r, false
}

// nameOf returns the name of a child's tool in the list, "" if the tool is left
// out, and a note on that.
func (c *Catalog) nameOf(m *Tools, l *audienceList, spec *child.Spec, name string) (as, note string) {
	if name == "" {
		return "", "spec " + spec.Name + " has a tool without a name"
	}
	key := toolKey{spec.Name, name}
	free := func(as string) bool {
		_, used := m.routes[as]
		given, ok := l.keys[as]
		return !used && !c.own[as] && (!ok || given == key)
	}
	the := "the tool " + shown(name) + " of " + spec.Name
	plain := plainName(name)
	var some []string
	switch given := l.names[key]; {
	case given != "":
		some = []string{given}
	case spec.Prefix == child.PrefixNever:
		some = []string{plain}
	case spec.Prefix == child.PrefixAlways:
		some = prefixed(spec.Name, plain)
	default:
		some = append([]string{plain}, prefixed(spec.Name, plain)...)
	}
	if plain != name { // several may be the same without what hosts refuse
		for n := range 9 {
			end := fmt.Sprint("_", n+2)
			some = slices.Insert(some, n+1, some[0][:min(len(some[0]), maxToolName-len(end))]+end)
		}
	}
	i := slices.IndexFunc(some, free)
	switch {
	case i < 0 && spec.Prefix == child.PrefixNever:
		return "", the + " is left out: there is one already"
	case i < 0:
		return "", the + " is left out: there are two"
	}
	as = some[i]
	switch {
	case plain != name:
		note = the + " is " + as + ": hosts take at most 64 letters, digits, _, - and . as a name"
	case as != name && spec.Prefix != child.PrefixAlways:
		note = the + " is " + as + ": there is one already"
	case as != name && as != spec.Name+"__"+name:
		note = the + " is " + as + ": with all of the child's name it is longer than some hosts take"
	}
	if len(as) > maxToolName {
		note = the + " has a name that is longer than some hosts take: " + as
	}
	return as, note
}

// plainName returns a name with only what all hosts take in one.
func plainName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.", r) {
			return r
		}
		return '_'
	}, name[:min(len(name), 4*maxToolName)])
	return name[:min(len(name), maxToolName)]
}

// shown is a name in a note.
func shown(name string) string {
	if plainName(name) == name {
		return name
	}
	return fmt.Sprintf("%.80q", name)
}

// prefixed returns the possible names of a tool with its child's name in front,
// the best first. A name that is too long is shortened at either end: two children
// may have names that begin alike.
func prefixed(child, name string) []string {
	room := maxToolName - len("__") - len(name)
	if room < 1 || len(child) <= room {
		return []string{child + "__" + name}
	}
	return []string{child[:room] + "__" + name, child[len(child)-room:] + "__" + name}
}

// Rename returns the call as the child expects it.
func (r *Route) Rename(m *jsonrpc.Message) *jsonrpc.Message {
	params := m.Params
	if jsonrpc.GetString(params, "name") != r.Name {
		params = jsonrpc.Set(params, "name", jsonrpc.Quote(r.Name))
	}
	args := jsonrpc.Get(params, "arguments")
	left := args
	for _, name := range r.Stripped {
		left = jsonrpc.Delete(left, name)
	}
	if len(left) != len(args) {
		params = jsonrpc.Set(params, "arguments", left)
	}
	if &params[0] == &m.Params[0] {
		return m
	}
	return m.WithParams(params)
}
