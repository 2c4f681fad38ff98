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
	"btools/lib/logins"
	"btools/lib/mcp"
	"btools/lib/mcp/catalog"
	"btools/lib/mcp/child"
	"btools/lib/results"
	"btools/lib/secrets"
	"btools/lib/tools"
)

// Options configure a server.
type Options struct {
	Children []child.Spec
	Source   *source.Source
	Release  string // of bmcp
	CacheDir string // of the children's lists; "": none is kept
	// Eager starts all children when a host begins, one for each browser.
	Eager bool
	// NoBulk omits browser_execute_bulk.
	NoBulk bool
	// NoImages has builtin send no images.
	NoImages bool
	// SnapshotFiles has builtin save the snapshots that nobody has asked for in files.
	SnapshotFiles bool
	// Secrets are typed by builtin, and in no message to a host.
	Secrets *secrets.Set
	// AllFiles has agents read, and the pages of builtin show, any file.
	AllFiles bool
	Limits   Limits
	Large    Large
	// Detect lists the installed browsers.
	Detect func(context.Context) ([]json.RawMessage, error)
	// States are the named logins of the user, for browsers that are not those of
	// somebody else's bpool; nil: there is no place for them.
	States *logins.Store
	// Tools are the names of the built-in child's tools that are listed; nil: those that it lists by default. Callable
	// are all that hosts may call; nil: those that are listed. Dir is the directory whose files they use if the host
	// names no roots; "": none.
	Tools, Callable []string
	Dir             string

	// ListPageTools lists the tools of a host's current page with the others.
	ListPageTools bool

	// View returns the key of a session on the page of bproxy view and, with start, the address of that page, which is
	// served then; nil: there is no such page.
	View func(ctx context.Context, session string, start bool) (key, address string, err error)

	// Start starts children but the built-in one; nil: as processes. Tests have them in memory.
	Start child.Starter

	Stderr io.Writer
	Log    *slog.Logger
}

// Server is the state that all hosts share.
type Server struct {
	Options
	archive  *results.Archive
	own      map[string]*ownTool // by name
	ownTools []json.RawMessage
	tasks    *tasks.Shared[*taskCall]
	us       json.RawMessage // what bmcp is, as hosts and children are told

	catalog *catalog.Catalog

	mu    sync.Mutex
	hosts map[*Host]bool

	releasing sync.WaitGroup // browsers that calls have used

	cleaning     sync.WaitGroup // of the blobs
	stopCleaning context.CancelFunc
}

// New makes a server.
func New(o Options) *Server {
	o.Limits = o.Limits.orDefault()
	s := &Server{Options: o, hosts: map[*Host]bool{}}
	s.us = json.RawMessage(`{"name":"bmcp","title":"` + title + `","version":` + strconv.Quote(s.Release) + `}`)
	if s.Start == nil {
		programs := &child.Programs{Env: vsCodePort, Stop: s.Limits.Child.Stop, Stderr: s.Stderr, Log: s.Log}
		if s.CacheDir != "" {
			programs.NpxDir = filepath.Join(s.CacheDir, "npm")
		}
		s.Start = programs.Start
	}
	s.Large.MaxInline = cmp.Or(s.Large.MaxInline, defaultMaxInline)
	s.archive = &results.Archive{Texts: results.New(results.Limits{Entries: s.Large.Entries}),
		Blobs: &blobs.Store{Dir: s.Large.BlobDir}}
	s.tasks = tasks.NewShared[*taskCall](tasks.Limits{Queued: maxQueuedTasks, Kept: maxKeptTasks, Bytes: maxTaskBytes,
		TTL: taskTTL})
	s.Children = slices.Clone(s.Children)
	s.makeOwn()
	s.catalog = catalog.New(catalog.Options{Children: s.Children, Builtin: tools.List(s.Tools),
		Unlisted: tools.List(tools.Unlisted(s.Tools, s.Callable)), Apps: tools.Apps(s.Tools), Own: s.ownTools,
		StatusTool: statusTool, OldNames: oldNames, Decorate: s.decorate, Dir: s.CacheDir, Limits: s.Limits.Catalog,
		Log: s.Log})
	for i := range s.Children {
		child := &s.Children[i]
		if err := child.Check(); err != nil {
			s.catalog.Failed(child, fmt.Errorf("cannot start child %s: %w", child.Name, err))
		}
	}
	s.keepClean()
	return s
}

// Close stops everything.
func (s *Server) Close() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.hosts))
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, h := range all {
		wg.Go(h.Close)
	}
	wg.Wait()
	s.releasing.Wait()
	s.Source.Close()
	s.tasks.Close()
	s.stopCleaning()
	s.cleaning.Wait()
}

// capabilities returns the merged capabilities of bmcp, which are these and those for
// blobs and apps, and of its children, and what the children say of themselves.
func (s *Server) capabilities(own json.RawMessage, apps bool) (all json.RawMessage, instructions []string) {
	if apps {
		own = jsonrpc.Set(own, "extensions", jsonrpc.Set(jsonrpc.Get(own, "extensions"), mcp.AppsExtension,
			json.RawMessage("{}")))
	}
	if s.keeps() || apps {
		own = jsonrpc.Set(own, "resources", json.RawMessage("{}"))
	}
	return s.catalog.Capabilities(own)
}
