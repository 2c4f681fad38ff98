// Package coordinator is an MCP server that has others below it: it starts
// them when they are needed, each for the browser that it is to drive, merges
// their tools into one list, and relays what is said either way as it is.
package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/server"

	"btools/lib/jsonrpc"
)

// Options say what a coordinator coordinates.
type Options struct {
	Children []Child
	Browsers Browsers
	Release  string // of bmcp
	CacheDir string // of the children's lists; "": none is kept
	// Eager has each session start all its children when it begins, one for
	// each browser.
	Eager bool
	// Detect lists the installed browsers.
	Detect func(context.Context) ([]json.RawMessage, error)
	Stderr io.Writer
	Log    *slog.Logger
}

// Coordinator is what all sessions share.
type Coordinator struct {
	Options
	own      *server.MCPServer
	ownTools []json.RawMessage

	mu       sync.Mutex
	listings map[string]*listing // by the child's name
	sessions map[*Session]bool
	merged   *merged // nil: to be made again
}

// listing is what is known of a child: from its last run, until it has said it
// itself.
type listing struct {
	Capabilities json.RawMessage   `json:"capabilities,omitempty"`
	Instructions string            `json:"instructions,omitempty"`
	Tools        []json.RawMessage `json:"tools"`

	known   bool          // there is one, if only of the last run
	live    bool          // the child has said it in this run
	greeted chan struct{} // closed when its capabilities are known
	listed  chan struct{} // closed when its tools are known, or it can't be started
	said    chan struct{} // the same, but for those of the last run
	err     error         // why it could not be started the last time
}

// New makes a coordinator.
func New(o Options) *Coordinator {
	c := &Coordinator{Options: o, listings: map[string]*listing{}, sessions: map[*Session]bool{}}
	for i := range c.Children {
		l := c.readCache(&c.Children[i])
		l.greeted, l.listed, l.said = make(chan struct{}), make(chan struct{}), make(chan struct{})
		if l.known {
			close(l.greeted)
			close(l.listed)
		}
		c.listings[c.Children[i].Name] = l
	}
	c.makeOwn()
	return c
}

// Close stops everything.
func (c *Coordinator) Close() {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.sessions))
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(s.Close)
	}
	wg.Wait()
	c.Browsers.close()
}

// merged is the list of all tools, and where each is.
type merged struct {
	tools  []json.RawMessage
	routes map[string]route
	notes  []string // on tools that are renamed or left out
}

// route is where a tool is.
type route struct {
	child *Child
	name  string // that the child knows it by
	pools bool   // it has got the arguments browser_pool and browser_instance
	tool  json.RawMessage
}

// tools are all tools as they are known now.
func (c *Coordinator) tools() *merged {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.merged == nil {
		c.merged = c.mergeLocked()
	}
	return c.merged
}

func (c *Coordinator) mergeLocked() *merged {
	m := &merged{tools: slices.Clone(c.ownTools), routes: map[string]route{}}
	_, pools := c.Browsers.(*pooled)
	for i := range c.Children {
		child := &c.Children[i]
		for _, tool := range c.listings[child.Name].Tools {
			name := jsonrpc.GetString(tool, "name")
			if name == "" {
				m.notes = append(m.notes, "child "+child.Name+" has a tool without a name")
				continue
			}
			as := name
			_, taken := m.routes[name]
			if taken || c.isOwn(name) || child.Prefix == PrefixAlways {
				if child.Prefix == PrefixNever {
					m.notes = append(m.notes, "the tool "+name+" of "+child.Name+" is left out: there is one already")
					continue
				}
				as = child.Name + "__" + name
				if _, taken := m.routes[as]; taken || c.isOwn(as) {
					m.notes = append(m.notes, "the tool "+name+" of "+child.Name+" is left out: there are two")
					continue
				}
				tool = jsonrpc.Set(tool, "name", quote(as))
				if child.Prefix != PrefixAlways {
					m.notes = append(m.notes, "the tool "+name+" of "+child.Name+" is "+as+": there is one already")
				}
			}
			r := route{child: child, name: name}
			if pools && child.takesEndpoint() {
				tool, r.pools = withPools(tool)
			}
			r.tool = tool
			m.tools = append(m.tools, tool)
			m.routes[as] = r
		}
	}
	return m
}

// withPools gives a tool the arguments that choose its browser, unless it has
// such of its own.
func withPools(tool json.RawMessage) (json.RawMessage, bool) {
	schema := jsonrpc.Get(tool, "inputSchema")
	properties := jsonrpc.Get(schema, "properties")
	if jsonrpc.Get(properties, "browser_pool") != nil || jsonrpc.Get(properties, "browser_instance") != nil {
		return tool, false
	}
	for _, p := range [][2]string{
		{"browser_pool", `{"type":"string","description":"The pool of browsers to use (default: the default pool)"}`},
		{"browser_instance", `{"type":"string","description":"The instance of the pool to use, by its ID or alias (default: any)"}`},
	} {
		properties = jsonrpc.Append(properties, p[0], json.RawMessage(p[1]))
	}
	if schema == nil {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	return jsonrpc.Set(tool, "inputSchema", jsonrpc.Set(schema, "properties", properties)), true
}

// greet notes what a child says of itself when it is initialized.
func (c *Coordinator) greet(child *Child, result json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.listings[child.Name]
	l.err = nil
	l.Capabilities = slices.Clone(jsonrpc.Get(result, "capabilities"))
	l.Instructions = jsonrpc.GetString(result, "instructions")
	closeOnce(l.greeted)
}

// list notes a child's tools, and tells the sessions if they have changed.
func (c *Coordinator) list(child *Child, tools []json.RawMessage) {
	for i, t := range tools {
		var b bytes.Buffer // as the cache has it
		if json.Compact(&b, t) != nil {
			c.failed(child, fmt.Errorf("child %s lists what is no JSON: %s", child.Name, clip(t)))
			return
		}
		tools[i] = b.Bytes()
	}
	c.mu.Lock()
	l := c.listings[child.Name]
	same := slices.EqualFunc(l.Tools, tools, func(a, b json.RawMessage) bool { return string(a) == string(b) })
	fresh := !l.live
	l.Tools, l.known, l.live, l.err = tools, true, true, nil
	if !same {
		c.merged = nil
	}
	closeOnce(l.listed)
	closeOnce(l.said)
	sessions := slices.Collect(maps.Keys(c.sessions))
	kept := *l
	c.mu.Unlock()
	if !same || fresh {
		c.writeCache(child, &kept)
	}
	if !same {
		for _, s := range sessions {
			s.toolsChanged()
		}
	}
}

// failed notes that a child could not be started.
func (c *Coordinator) failed(child *Child, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.listings[child.Name]
	l.err = err
	closeOnce(l.greeted)
	closeOnce(l.listed)
	closeOnce(l.said)
}

func closeOnce(c chan struct{}) {
	if !isClosed(c) {
		close(c)
	}
}

// await waits until all children are as far as of says, or the context ends.
func (c *Coordinator) await(ctx context.Context, of func(*listing) chan struct{}) {
	for i := range c.Children {
		c.mu.Lock()
		reached := of(c.listings[c.Children[i].Name])
		c.mu.Unlock()
		select {
		case <-reached:
		case <-ctx.Done():
		}
	}
}

// retry reports whether a child that could not be started is to be started
// again; who calls a tool that is not known waits for it then.
func (c *Coordinator) retry(child *Child) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.listings[child.Name]
	if l.err == nil || l.live || !isClosed(l.said) {
		return false
	}
	l.said = make(chan struct{})
	return true
}

// isLive reports whether a child has been asked for its tools in this run.
func (c *Coordinator) isLive(child *Child) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listings[child.Name].live
}

// capabilities are ours, and those of the children.
func (c *Coordinator) capabilities(own json.RawMessage) (all json.RawMessage, instructions []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all = own
	for i := range c.Children {
		l := c.listings[c.Children[i].Name]
		for _, name := range []string{"prompts", "resources", "logging", "completions"} {
			v := jsonrpc.Get(l.Capabilities, name)
			if v == nil {
				continue
			}
			had := jsonrpc.Get(all, name)
			for _, part := range []string{"subscribe", "listChanged"} {
				if string(jsonrpc.Get(had, part)) == "true" {
					v = jsonrpc.Set(v, part, json.RawMessage("true"))
				}
			}
			all = jsonrpc.Set(all, name, v)
		}
		if l.Instructions != "" {
			instructions = append(instructions, l.Instructions)
		}
	}
	return all, instructions
}

// having are the children with a capability.
func (c *Coordinator) having(capability string) (some []*Child) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.Children {
		if jsonrpc.Get(c.listings[c.Children[i].Name].Capabilities, capability) != nil {
			some = append(some, &c.Children[i])
		}
	}
	return some
}
