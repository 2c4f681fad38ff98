// Package catalog is what the children are known to offer, from this run or the last, and the list that a host is
// given: which tools there are, by which names, and whose the prompts and resources are. It does not know hosts,
// browsers or processes: what is added to a tool for its browser is a function that it is given.
package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/mcp/child"
	"btools/lib/wait"
)

// Options configure a Catalog.
type Options struct {
	Children []child.Spec
	Builtin  []json.RawMessage // the tools of the built-in child
	Unlisted []json.RawMessage // those of it that are called, too, but not listed
	Apps     []json.RawMessage // those of it that hosts with MCP Apps have besides
	// Own are the tools of bmcp itself. StatusTool is the name of the one whose description
	// says what is missing.
	Own        []json.RawMessage
	StatusTool string
	// OldNames are names that tools had: a call by one of them is a call of the tool.
	OldNames map[string]string
	// Decorate gives a tool of a child that drives browsers more arguments, and returns
	// the names of those that the child does not get. First is true for the first tool of
	// the list that gets these arguments.
	Decorate func(tool json.RawMessage, first bool) (_ json.RawMessage, stripped []string)
	Dir      string // where lists are kept for the next run; "": none are
	Limits   Limits
	Log      *slog.Logger
}

// Limits bound how long hosts wait for children.
type Limits struct {
	// Initialize is how long the answer to the host's initialize waits for
	// children that are run for the first time: hosts give up after a second.
	Initialize time.Duration
	// List is how long the host's first tools/list waits: for each child once,
	// all requests together.
	List time.Duration
	// Late is how long a child is waited for that did not answer in time
	// before.
	Late time.Duration
}

// DefaultLimits are the limits of bmcp.
var DefaultLimits = Limits{Initialize: 800 * time.Millisecond, List: 20 * time.Second, Late: time.Second}

// Catalog is what the children are known to offer to all hosts: as they did in their last
// run, until they have answered in this one.
type Catalog struct {
	Options
	own map[string]bool // the names of Own

	now atomic.Pointer[snapshot]

	mu      sync.Mutex
	entries map[string]*entry // by the child's name
	changed wait.Broadcast    // of the state of a child
}

// snapshot is what the lists of hosts are made from. It does not change.
type snapshot struct {
	tools   map[string][]json.RawMessage // by the child's name
	missing string                       // why tools are missing
}

// state is how much is known of a child.
type state int

const (
	unknown     state = iota
	initialized       // its capabilities: it has answered initialize
	stale             // the tools of its last run, if it has listed any in that
	failed            // it could not be started
	listed            // the tools of this run
)

// entry is what is known of a child.
type entry struct {
	Capabilities json.RawMessage   `json:"capabilities,omitempty"`
	Instructions string            `json:"instructions,omitempty"`
	Tools        []json.RawMessage `json:"tools"`
	// For are the capabilities of the hosts that these tools were listed for: the
	// child may list other tools to other hosts.
	For []string `json:"for,omitempty"`
	// Late is true if the child did not list its tools in time and has not listed
	// them since.
	Late bool `json:"late,omitempty"`

	state  state
	began  time.Time // when the first caller began to wait for it
	quiet  bool      // it did not answer our last request in time
	asks   bool      // it has sent a request to a host of the stateless protocol
	err    error     // why it could not be started last
	warned string    // the last warning about that
}

// New makes a catalog of what is known from the last run.
func New(o Options) *Catalog {
	c := &Catalog{Options: o, own: map[string]bool{}, entries: map[string]*entry{}}
	for _, tool := range c.Own {
		c.own[jsonrpc.GetString(tool, "name")] = true
	}
	for i := range c.Children {
		c.entries[c.Children[i].Name] = c.read(&c.Children[i])
	}
	c.publishLocked() // nobody else has it yet
	return c
}

// Initialized records the answer of a child to initialize.
func (c *Catalog) Initialized(child *child.Spec, result json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[child.Name]
	e.err, e.warned = nil, ""
	e.Capabilities = slices.Clone(jsonrpc.Get(result, "capabilities"))
	e.Instructions = jsonrpc.GetString(result, "instructions")
	switch e.state {
	case unknown:
		c.enterLocked(e, initialized)
	case failed:
		c.enterLocked(e, stale)
	}
	c.publishLocked()
}

// Update records a child's tools for hosts with these capabilities, and reports
// whether they have changed. It returns the tools as the catalog keeps them.
func (c *Catalog) Update(child *child.Spec, can string, tools []json.RawMessage) (
	kept []json.RawMessage, changed bool, err error) {
	for i, t := range tools {
		var b bytes.Buffer // as the next run reads it
		if json.Compact(&b, t) != nil {
			return nil, false, fmt.Errorf("child %s lists a tool that is not valid JSON: %s", child.Name,
				jsonrpc.Clip(t))
		}
		tools[i] = b.Bytes()
	}
	c.mu.Lock()
	e := c.entries[child.Name]
	changed = !sameTools(e.Tools, tools)
	fresh := e.state != listed || !slices.Contains(e.For, can)
	e.Late, e.err = false, nil
	if changed {
		e.Tools, e.For = tools, nil
	}
	if !slices.Contains(e.For, can) {
		e.For = append(slices.Clone(e.For), can)
	}
	c.enterLocked(e, listed)
	c.publishLocked()
	now := *e
	c.mu.Unlock()
	if changed || fresh {
		c.write(child, &now)
	}
	return now.Tools, changed, nil
}

// Failed records that a child could not be started, and logs that once.
func (c *Catalog) Failed(child *child.Spec, err error) {
	c.mu.Lock()
	e := c.entries[child.Name]
	said := e.warned == err.Error()
	e.warned = err.Error()
	c.mu.Unlock()
	if !said {
		c.Log.Warn(err.Error())
	}
	c.Note(child, err)
}

// Note records why a child cannot be started now.
func (c *Catalog) Note(child *child.Spec, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[child.Name]
	e.err = err
	if e.state < failed {
		c.enterLocked(e, failed)
	}
	c.publishLocked()
}

func (c *Catalog) enterLocked(e *entry, s state) {
	e.state = s
	c.changed.Wake()
}

// publishLocked has the lists of hosts made from what is known now, if that is another
// thing than before.
func (c *Catalog) publishLocked() {
	k := &snapshot{tools: map[string][]json.RawMessage{}}
	_, k.missing = c.missingLocked()
	same := c.now.Load() != nil && c.now.Load().missing == k.missing
	for name, e := range c.entries {
		k.tools[name] = e.Tools
		same = same && sameTools(c.now.Load().tools[name], e.Tools)
	}
	if !same {
		c.now.Store(k)
	}
}

// Missing returns the children whose tools are missing, and why.
func (c *Catalog) Missing() (names []string, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missingLocked()
}

func (c *Catalog) missingLocked() (names []string, why string) {
	var all []string
	for i := range c.Children {
		if e := c.entries[c.Children[i].Name]; e.err != nil && e.state != listed {
			names, all = append(names, c.Children[i].Name), append(all, e.err.Error())
		}
	}
	return names, strings.Join(all, "; ")
}

// NoteAsks records that a child has sent a request to a host of the stateless protocol.
func (c *Catalog) NoteAsks(child *child.Spec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries[child.Name].asks = true
}

// Asks reports whether a child is known to do that.
func (c *Catalog) Asks(child *child.Spec) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[child.Name].asks
}

// Retry reports whether a child that could not be started is to be started again.
// A call of an unknown tool then waits for it.
func (c *Catalog) Retry(child *child.Spec) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[child.Name]
	if e.state != failed {
		return false
	}
	c.enterLocked(e, stale)
	e.began = time.Time{}
	return true
}

// Known reports whether a child's tools for hosts with these capabilities are
// known, and whether the child has listed any in this run.
func (c *Catalog) Known(child *child.Spec, can string) (known, live bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[child.Name]
	return child.Builtin || slices.Contains(e.For, can), e.state == listed
}

// hasTools reports whether the child's tools are known, from this run or the last one.
func (e *entry) hasTools(child *child.Spec) bool { return child.Builtin || len(e.For) > 0 }

// Status returns the number of a child's tools, whether these are those of its last run,
// and why it could not be started last.
func (c *Catalog) Status(child *child.Spec) (tools int, cached bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[child.Name]
	return len(e.Tools), e.hasTools(child) && e.state != listed, e.err
}

// anyCapabilities are those of a child that has not told its own: it may have them.
var anyCapabilities = json.RawMessage(`{"prompts":{"listChanged":true},"resources":{"subscribe":true,` +
	`"listChanged":true},"logging":{},"completions":{}}`)

// Capabilities returns the merged capabilities of bmcp and of the children, and what these
// say of themselves.
func (c *Catalog) Capabilities(own json.RawMessage) (all json.RawMessage, instructions []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all = own
	for i := range c.Children {
		e := c.entries[c.Children[i].Name]
		can := e.Capabilities
		if can == nil && !c.Children[i].Builtin && e.state == unknown {
			can = anyCapabilities // a host asks for what is declared now, or never
		}
		for _, name := range []string{"prompts", "resources", "logging", "completions"} {
			v := jsonrpc.Get(can, name)
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
		if e.Instructions != "" {
			instructions = append(instructions, e.Instructions)
		}
	}
	return all, instructions
}

// Has reports whether a child has a capability, such as prompts.
func (c *Catalog) Has(child *child.Spec, capability ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return jsonrpc.Get(c.entries[child.Name].Capabilities, capability...) != nil
}

// Having returns the children with a capability.
func (c *Catalog) Having(capability ...string) (some []*child.Spec) {
	for i := range c.Children {
		if child := &c.Children[i]; c.Has(child, capability...) {
			some = append(some, child)
		}
	}
	return some
}
