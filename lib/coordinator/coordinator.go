// Package coordinator is an MCP server in front of others, its children. It starts
// a child when it is needed, once for each browser; merges the tools of all
// children into one list; and relays requests and notifications both ways,
// unchanged where possible.
package coordinator

import (
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
	"sync"

	"btools/lib/agent/source"
	"btools/lib/blobs"
	"btools/lib/coordinator/tasks"
	"btools/lib/jsonrpc"
	"btools/lib/results"
	"btools/lib/run"
	"btools/lib/states"
	"btools/lib/tools"
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

	catalog *Catalog

	mu       sync.Mutex
	sessions map[*Session]bool

	releasing sync.WaitGroup // browsers that calls have used

	cleaning     sync.WaitGroup // of the blobs
	stopCleaning context.CancelFunc
}

// New makes a coordinator.
func New(o Options) *Coordinator {
	o.Limits = o.Limits.orDefault()
	c := &Coordinator{Options: o, sessions: map[*Session]bool{}}
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
	}
	c.makeOwn()
	c.catalog = NewCatalog(CatalogOptions{Children: c.Children, Builtin: tools.List(c.Tools), Own: c.ownTools,
		StatusTool: statusTool, OldNames: oldNames, Decorate: c.decorate, Dir: c.CacheDir, Limits: c.Limits.Catalog,
		Log: c.Log})
	for i := range c.Children {
		child := &c.Children[i]
		if err := child.isThere(); err != nil {
			c.catalog.Failed(child, fmt.Errorf("cannot start child %s: %w", child.Name, err))
		}
	}
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

// capabilities returns the merged capabilities of bmcp, which are these and those for
// blobs, and of its children, and what the children say of themselves.
func (c *Coordinator) capabilities(own json.RawMessage) (all json.RawMessage, instructions []string) {
	if c.keeps() {
		own = jsonrpc.Set(own, "resources", json.RawMessage("{}"))
	}
	return c.catalog.Capabilities(own)
}
