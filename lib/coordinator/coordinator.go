// Package coordinator is an MCP server in front of others, its children. It starts
// a child when it is needed, once for each browser; merges the tools of all
// children into one list; and relays requests and notifications both ways,
// unchanged where possible.
package coordinator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/agent/source"
	"btools/lib/blobs"
	"btools/lib/coordinator/tasks"
	"btools/lib/jsonrpc"
	"btools/lib/results"
	"btools/lib/run"
	"btools/lib/states"
	"btools/lib/wait"
)

// Options configure a coordinator.
type Options struct {
	Children []Child
	Source   source.Source
	Release  string // of bmcp
	CacheDir string // of the children's lists; "": none is kept
	// Eager starts all children when a session begins, one for each browser.
	Eager bool
	// NoBulk omits browser_execute_bulk.
	NoBulk bool
	// NoImages has builtin send no images.
	NoImages bool
	// AllFiles has agents read, and the pages of builtin show, any file.
	AllFiles bool
	Limits   Limits
	Large    Large
	// Detect lists the installed browsers.
	Detect func(context.Context) ([]json.RawMessage, error)
	// States are the named logins of the user, for browsers that are not those of
	// somebody else's bpool; nil: there is no place for them.
	States *states.Store
	// Tools are the names of the built-in child's tools; nil: those that it lists by default. Dir is the directory
	// whose files they use if the host names no roots; "": none.
	Tools []string
	Dir   string

	// Start starts children; nil: as processes. Tests have them in memory.
	Start Starter

	Stderr io.Writer
	Log    *slog.Logger
}

// Coordinator is the state that all sessions share.
type Coordinator struct {
	Options
	npm      npm
	wide     chan struct{} // the children with wide pipes
	archive  *results.Archive
	own      map[string]*ownTool // by name
	ownTools []json.RawMessage
	tasks    *tasks.Shared[*taskCall]
	us       json.RawMessage // what bmcp is, as hosts and children are told

	mu       sync.Mutex
	listings map[string]*childCatalog // by the child's name
	sessions map[*Session]bool
	version  atomic.Int64 // of the tools in them

	releasing sync.WaitGroup // browsers that calls have used

	cleaning     sync.WaitGroup // of the blobs
	stopCleaning context.CancelFunc
}

// childCatalog is what is known of a child: from its last run until it has
// answered in this one.
type childCatalog struct {
	Capabilities json.RawMessage   `json:"capabilities,omitempty"`
	Instructions string            `json:"instructions,omitempty"`
	Tools        []json.RawMessage `json:"tools"`
	// For are the capabilities of the hosts that these tools were listed for: the
	// child may list other tools to other hosts.
	For []string `json:"for,omitempty"`
	// Late is true if the child did not list its tools in time and has not listed
	// them since.
	Late bool `json:"late,omitempty"`

	known       bool          // from this run or the last one
	live        bool          // from this run
	initialized chan struct{} // closed when its capabilities are known
	toolsKnown  chan struct{} // closed when its tools are known, or it cannot be started
	toolsFresh  chan struct{} // the same, but not closed by the tools of the last run
	began       time.Time     // when the first caller began to wait for it
	quiet       bool          // it did not answer our last request in time
	asks        bool          // it has sent a request to a host of the stateless protocol
	err         error         // why it could not be started last
	warned      string        // the last warning about that
}

// New makes a coordinator.
func New(o Options) *Coordinator {
	o.Limits = o.Limits.orDefault()
	c := &Coordinator{Options: o, listings: map[string]*childCatalog{}, sessions: map[*Session]bool{}}
	c.us = json.RawMessage(`{"name":"bmcp","title":"` + title + `","version":` + strconv.Quote(c.Release) + `}`)
	c.wide = make(chan struct{}, maxWide)
	if c.Start == nil {
		c.Start = c.execute
	}
	c.Large.MaxInline = cmp.Or(c.Large.MaxInline, DefaultMaxInline)
	c.archive = &results.Archive{Texts: results.New(results.Limits{Entries: c.Large.Entries}),
		Blobs: &blobs.Store{Dir: c.Large.BlobDir}}
	c.tasks = tasks.NewShared[*taskCall](tasks.Limits{Queued: maxQueuedTasks, Kept: maxKeptTasks, Bytes: maxTaskBytes,
		TTL: taskTTL})
	c.npm.log, c.npm.fetched = c.Log, map[string]*fetched{}
	if c.CacheDir != "" {
		c.npm.dir = filepath.Join(c.CacheDir, "npm")
	}
	c.Children = slices.Clone(c.Children)
	for i := range c.Children {
		child := &c.Children[i]
		child.drives = child.Builtin || run.HasPlaceholder(child.Argv) || child.endpointFlag() != ""
		l := c.readCache(child)
		l.initialized, l.toolsKnown, l.toolsFresh = make(chan struct{}), make(chan struct{}), make(chan struct{})
		if l.known {
			close(l.initialized)
			close(l.toolsKnown)
		}
		c.listings[c.Children[i].Name] = l
		if err := c.Children[i].isThere(); err != nil {
			c.failed(&c.Children[i], fmt.Errorf("cannot start child %s: %w", c.Children[i].Name, err))
		}
	}
	c.makeOwn()
	c.keepClean()
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
	c.releasing.Wait()
	c.Source.Close()
	c.tasks.Close()
	c.stopCleaning()
	c.cleaning.Wait()
}

// initialized records the answer of a child to initialize.
func (c *Coordinator) initialized(child *Child, result json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.listings[child.Name]
	l.err, l.warned = nil, ""
	l.Capabilities = slices.Clone(jsonrpc.Get(result, "capabilities"))
	l.Instructions = jsonrpc.GetString(result, "instructions")
	closeOnce(l.initialized)
}

// updateTools records a child's tools for hosts with these capabilities, and
// reports whether they have changed. It returns the tools as the catalog keeps
// them.
func (c *Coordinator) updateTools(child *Child, can string, tools []json.RawMessage) (
	kept []json.RawMessage, changed bool, err error) {
	for i, t := range tools {
		var b bytes.Buffer // as the cache has it
		if json.Compact(&b, t) != nil {
			return nil, false, fmt.Errorf("child %s lists a tool that is not valid JSON: %s", child.Name,
				jsonrpc.Clip(t))
		}
		tools[i] = b.Bytes()
	}
	c.mu.Lock()
	l := c.listings[child.Name]
	changed = !sameTools(l.Tools, tools)
	fresh := !l.live || !slices.Contains(l.For, can)
	l.known, l.live, l.Late, l.err = true, true, false, nil
	if changed {
		l.Tools, l.For = tools, nil
		c.version.Add(1)
	}
	if !slices.Contains(l.For, can) {
		l.For = append(slices.Clone(l.For), can)
	}
	closeOnce(l.toolsKnown)
	closeOnce(l.toolsFresh)
	now := *l
	c.mu.Unlock()
	if changed || fresh {
		c.writeCache(child, &now)
	}
	return now.Tools, changed, nil
}

// failed records that a child could not be started, and logs that once.
func (c *Coordinator) failed(child *Child, err error) {
	c.mu.Lock()
	l := c.listings[child.Name]
	told := l.warned == err.Error()
	l.warned = err.Error()
	c.mu.Unlock()
	if !told {
		c.Log.Warn(err.Error())
	}
	c.note(child, err)
}

// note records why a child cannot be started now.
func (c *Coordinator) note(child *Child, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.listings[child.Name]
	l.err = err
	c.version.Add(1) // the status' description has it
	closeOnce(l.initialized)
	closeOnce(l.toolsKnown)
	closeOnce(l.toolsFresh)
}

// missing returns the children whose tools are missing, and why.
func (c *Coordinator) missing() (names []string, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for i := range c.Children {
		if l := c.listings[c.Children[i].Name]; l.err != nil && !l.live {
			names, all = append(names, c.Children[i].Name), append(all, l.err.Error())
		}
	}
	return names, strings.Join(all, "; ")
}

// await waits until each child has reached the state of, or the context ends. A
// child that does not get there is waited for only once, for at most this long:
// the time runs from when the first caller began to wait.
func (c *Coordinator) await(ctx context.Context, most time.Duration, of func(*childCatalog) chan struct{}) {
	for i := range c.Children {
		child := &c.Children[i]
		c.mu.Lock()
		l := c.listings[child.Name]
		if l.began.IsZero() {
			l.began = time.Now()
		}
		reached, left := of(l), time.Until(l.began.Add(min(most, l.patienceLocked(c.Limits))))
		c.mu.Unlock()
		select {
		case <-reached:
			continue
		default:
		}
		timer := time.NewTimer(left)
		select {
		case <-reached:
		case <-ctx.Done():
		case <-timer.C:
			if most == c.Limits.List {
				c.late(child)
			}
		}
		timer.Stop()
	}
}

func (l *childCatalog) patienceLocked(limits Limits) time.Duration {
	if l.Late || l.quiet {
		return limits.Late
	}
	return limits.List
}

// patience returns how long to wait for a child's answer.
func (c *Coordinator) patience(child *Child) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listings[child.Name].patienceLocked(c.Limits)
}

// answers records whether a child has answered in time.
func (c *Coordinator) answers(child *Child, inTime bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listings[child.Name].quiet = !inTime
}

// noteAsks records that a child has sent a request to a host of the stateless protocol.
func (c *Coordinator) noteAsks(child *Child) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listings[child.Name].asks = true
}

// asks reports whether a child is known to do that.
func (c *Coordinator) asks(child *Child) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listings[child.Name].asks
}

// late records, also for the next run, that a child has not listed its tools in
// time.
func (c *Coordinator) late(child *Child) {
	c.mu.Lock()
	l := c.listings[child.Name]
	news := !l.Late && !l.known
	if news {
		l.Late = true
	}
	now := *l
	c.mu.Unlock()
	if news {
		c.writeCache(child, &now)
	}
}

// tellAwaited logs which children have not listed their tools yet.
func (c *Coordinator) tellAwaited() {
	var names []string
	c.mu.Lock()
	for i := range c.Children {
		if name := c.Children[i].Name; !wait.Closed(c.listings[name].toolsKnown) {
			names = append(names, name)
		}
	}
	c.mu.Unlock()
	if len(names) > 0 {
		c.Log.Info(fmt.Sprintf("the first list of tools waits for %s, for at most %v", strings.Join(names, ", "),
			c.Limits.List))
	}
}

// retry reports whether a child that could not be started is to be started again.
// A call of an unknown tool then waits for it.
func (c *Coordinator) retry(child *Child) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.listings[child.Name]
	if l.err == nil || l.live || !wait.Closed(l.toolsFresh) {
		return false
	}
	l.toolsFresh, l.began = make(chan struct{}), time.Time{}
	return true
}

// known reports whether a child's tools for hosts with these capabilities are
// known, and whether the child has listed any in this run.
func (c *Coordinator) known(child *Child, can string) (known, live bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.listings[child.Name]
	return l.known && (child.Builtin || slices.Contains(l.For, can)), l.live
}

// anyCapabilities are those of a child that has not told its own: it may have them.
var anyCapabilities = json.RawMessage(`{"prompts":{"listChanged":true},"resources":{"subscribe":true,` +
	`"listChanged":true},"logging":{},"completions":{}}`)

// capabilities returns the merged capabilities of bmcp and of the children.
func (c *Coordinator) capabilities(own json.RawMessage) (all json.RawMessage, instructions []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all = own
	if c.keeps() {
		all = jsonrpc.Set(all, "resources", json.RawMessage("{}"))
	}
	for i := range c.Children {
		l := c.listings[c.Children[i].Name]
		can := l.Capabilities
		if can == nil && !c.Children[i].Builtin && !wait.Closed(l.initialized) {
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
		if l.Instructions != "" {
			instructions = append(instructions, l.Instructions)
		}
	}
	return all, instructions
}

// having returns the children with a capability.
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
