package coordinator

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// toolList is a session's list of tools for one audience: children may list other
// tools to other hosts.
type toolList struct {
	own      map[string][]json.RawMessage // what the session's own children have listed, by child
	names    map[toolKey]string           // the names that the host was given
	keys     map[string]toolKey           // the same, by the name
	merged   *merged                      // nil: to be made again
	known    *snapshot                    // what it is made from
	lastSent *merged                      // what the host has been sent or notified of; nil: nothing
}

// toolKey identifies a tool of a child, by the child's own name for it.
type toolKey struct{ child, name string }

// merged is the merged list of tools, with the route of each.
type merged struct {
	tools  []json.RawMessage
	routes map[string]route
	notes  []string // on tools that are renamed or left out
	old    map[string]string
}

// route is where a tool is found.
type route struct {
	child    *Child
	name     string // that the child knows it by
	tool     json.RawMessage
	stripped []string // the arguments that the child does not get
}

// route returns the route of a tool by its name, today's or an old one.
func (m *merged) route(name string) (r route, ok bool) {
	if r, ok = m.routes[name]; !ok {
		r, ok = m.routes[m.old[name]]
	}
	return r, ok
}

const (
	// maxToolName is the length of a tool's name that all hosts take: VS Code
	// and others leave a tool out whose name is longer.
	maxToolName = 64
	// maxGiven bounds the names that are kept for a host.
	maxGiven = 4 * maxItems
)

func sameTools(a, b []json.RawMessage) bool {
	return slices.EqualFunc(a, b, func(a, b json.RawMessage) bool { return string(a) == string(b) })
}

// toolLists are the lists of tools of a session.
type toolLists struct {
	c   *Catalog
	mu  sync.Mutex
	all map[mcp.Audience]*toolList // by audience
}

// tools returns the tools for an audience, as they are known now.
func (s *Session) tools(to mcp.Audience) *merged { return s.lists.tools(to) }

func (t *toolLists) tools(to mcp.Audience) *merged {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mergedLocked(t.listLocked(to))
}

func (t *toolLists) listLocked(to mcp.Audience) *toolList {
	l := t.all[to]
	if l == nil {
		l = &toolList{own: map[string][]json.RawMessage{}, names: map[toolKey]string{}, keys: map[string]toolKey{}}
		t.all[to] = l
	}
	return l
}

func (t *toolLists) mergedLocked(l *toolList) *merged {
	if known := t.c.now.Load(); l.merged == nil || l.known != known {
		l.known = known
		l.merged = t.c.merge(l)
	}
	return l.merged
}

// give returns the tools for the host to see. Their names stay as they are for
// this host: it may ignore changes of the list.
func (t *toolLists) give(to mcp.Audience) *merged {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.listLocked(to)
	m := t.mergedLocked(l)
	if len(l.names) > maxGiven {
		l.names, l.keys = map[toolKey]string{}, map[string]toolKey{}
	}
	for name, r := range m.routes {
		key := toolKey{r.child.Name, r.name}
		l.names[key], l.keys[name] = name, key
	}
	l.lastSent = m
	return m
}

// watch reports changes from now on.
func (t *toolLists) watch(to mcp.Audience) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.listLocked(to); l.lastSent == nil {
		l.lastSent = t.mergedLocked(l)
	}
}

// set records the tools that a child of the session has listed.
func (t *toolLists) set(child *Child, to mcp.Audience, tools []json.RawMessage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.listLocked(to)
	if own, ok := l.own[child.Name]; !ok || !sameTools(own, tools) {
		l.own[child.Name], l.merged = tools, nil
	}
}

// changed returns the audiences whose lists differ from what was sent last, and
// marks these as sent.
func (t *toolLists) changed() map[mcp.Audience]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := map[mcp.Audience]bool{}
	for to, l := range t.all {
		now := t.mergedLocked(l)
		if l.lastSent == nil || sameTools(l.lastSent.tools, now.tools) {
			continue
		}
		changed[to], l.lastSent = true, now
	}
	return changed
}

// listTools records the tools of a child and notifies the hosts whose lists
// change.
func (s *Session) listTools(child *Child, to mcp.Audience, tools []json.RawMessage) {
	tools, changed, err := s.c.catalog.Update(child, to.Askable(s.hostParams()), tools)
	if err != nil {
		s.c.catalog.Failed(child, err)
		return
	}
	s.lists.set(child, to, tools)
	all := []*Session{s}
	if changed {
		s.c.mu.Lock()
		all = slices.Collect(maps.Keys(s.c.sessions))
		s.c.mu.Unlock()
	}
	for _, one := range all {
		one.toolsChanged()
	}
}

// toolsChanged notifies the hosts that have seen another list.
func (s *Session) toolsChanged() {
	changed := s.lists.changed()
	const method = "notifications/tools/list_changed"
	if changed[mcp.OfHandshake] && s.hostParams() != nil {
		s.send(nil, false, jsonrpc.Request(nil, method, nil))
	}
	s.subscribers(method, nil, func(req *request) bool { return changed[req.env.Audience] })
}

// merge merges the tools that each child has listed in the session, or else has
// listed last.
func (c *Catalog) merge(l *toolList) *merged {
	m := &merged{tools: slices.Clone(c.Own), routes: map[string]route{}, old: c.OldNames}
	if why := l.known.missing; why != "" {
		i := slices.IndexFunc(m.tools, func(tool json.RawMessage) bool {
			return jsonrpc.GetString(tool, "name") == c.StatusTool
		})
		about := jsonrpc.GetString(m.tools[i], "description") + " Tools are missing now: " + why
		m.tools[i] = jsonrpc.Set(m.tools[i], "description", jsonrpc.Quote(about))
	}
	for i := range c.Children {
		child := &c.Children[i]
		tools, ok := l.own[child.Name]
		if !ok {
			tools = l.known.tools[child.Name]
		}
		for n, tool := range tools {
			name := jsonrpc.GetString(tool, "name")
			as, note := c.nameOf(m, l, child, name)
			if note != "" {
				m.notes = append(m.notes, note)
			}
			if as == "" {
				continue
			}
			if as != name {
				tool = jsonrpc.Set(tool, "name", jsonrpc.Quote(as))
			}
			r := route{child: child, name: name}
			if child.drives {
				tool, r.stripped = c.Decorate(tool, n == 0 || !child.Builtin)
			}
			r.tool = tool
			m.tools = append(m.tools, tool)
			m.routes[as] = r
		}
	}
	return m
}

// nameOf returns the name of a child's tool in the list, "" if the tool is left
// out, and a note on that.
func (c *Catalog) nameOf(m *merged, l *toolList, child *Child, name string) (as, note string) {
	if name == "" {
		return "", "child " + child.Name + " has a tool without a name"
	}
	key := toolKey{child.Name, name}
	free := func(as string) bool {
		_, used := m.routes[as]
		given, ok := l.keys[as]
		return !used && !c.own[as] && (!ok || given == key)
	}
	the := "the tool " + name + " of " + child.Name
	var some []string
	switch given := l.names[key]; {
	case given != "":
		some = []string{given}
	case child.Prefix == PrefixNever:
		some = []string{name}
	case child.Prefix == PrefixAlways:
		some = prefixed(child.Name, name)
	default:
		some = append([]string{name}, prefixed(child.Name, name)...)
	}
	i := slices.IndexFunc(some, free)
	switch {
	case i < 0 && child.Prefix == PrefixNever:
		return "", the + " is left out: there is one already"
	case i < 0:
		return "", the + " is left out: there are two"
	}
	as = some[i]
	switch {
	case as != name && child.Prefix != PrefixAlways:
		note = the + " is " + as + ": there is one already"
	case as != name && as != child.Name+"__"+name:
		note = the + " is " + as + ": with all of the child's name it is longer than some hosts take"
	}
	if len(as) > maxToolName {
		note = the + " has a name that is longer than some hosts take: " + as
	}
	return as, note
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

// rename returns the call as the child expects it.
func (r *route) rename(m *jsonrpc.Message) *jsonrpc.Message {
	params := m.Params
	if jsonrpc.GetString(params, "name") != r.name {
		params = jsonrpc.Set(params, "name", jsonrpc.Quote(r.name))
	}
	args := jsonrpc.Get(params, "arguments")
	left := args
	for _, name := range r.stripped {
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
