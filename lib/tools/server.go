// Package tools is an MCP server with tools for browsing, for one session of an
// agent: what the tools are called, what they take and how their results read, as
// @playwright/mcp has it where it has the tool. What they do is in browse.
package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"btools/lib/browse"
	"btools/lib/browse/firefox"
	"btools/lib/jsonrpc"
	"btools/lib/logins"
	"btools/lib/results"
	"btools/lib/schema"
	"btools/lib/secrets"
	"btools/lib/spell"
	"btools/lib/wait"
)

// Options configure a server.
type Options struct {
	Endpoint string // the WebSocket URL of the browser
	HTTPURL  string // of the same endpoint
	BiDi     string // the WebSocket URL of a Firefox, in the place of both
	Release  string
	Dir      string   // the directory whose files an agent may read and write, if its host names no roots
	Only     []string // the names of the tools that are listed; nil: those that are by default
	Callable []string // the names of all tools; nil: those that are listed
	NoImages bool     // none is sent
	// SnapshotFiles has the snapshots that nobody has asked for saved in files.
	SnapshotFiles bool
	// Guest says that the browser is another program's: tabs that were opened here close at the end, and it is told of
	// them.
	Guest func(tab string, open bool)
	Own   bool // the session is that of one agent, whom its host names
	// Arguments are those that its host has added to the tools, and takes out of calls.
	Arguments []string
	AllFiles  bool // an agent reads, and pages show, any file, not only those in its directories
	// ListPageTools lists the tools of the page that is open with the others.
	ListPageTools bool
	PageNames     *PageNames // of the tools that it lists; nil: those of this session alone

	Second time.Duration // that bounds are counted in; 0: that of a second

	// Secrets are typed by their names, which are in the place of their values in all that an agent is told.
	Secrets *secrets.Set

	// ListStates lists the named logins, and says why one cannot be read.
	ListStates func(ctx context.Context) (all []logins.Info, bad []string, err error)
	// SaveState saves the session's own under a name, with create only if there is none,
	// and returns what could not be read.
	SaveState func(ctx context.Context, name string, create bool) (saved logins.Info, lost []string, err error)
	// Emptied ends the session, whose last tab was closed. Nil: it goes on.
	Emptied func()
	// LoadState reads a named login.
	LoadState func(ctx context.Context, name string) (*logins.State, error)
	// Clients is how many clients the session has, with us.
	Clients func(ctx context.Context) int

	Asks *Asks // what people are asked; nil: by this server alone
	// View returns the key of the session on the page of bproxy view and, with start, the address of that page, which
	// is served then. Nil: it is not known.
	View func(ctx context.Context, start bool) (key, address string, err error)
	// Stateless says that the host repeats a request that asks it something: it does not wait meanwhile.
	Stateless bool
}

// Server serves one session.
type Server struct {
	Options
	out *jsonrpc.Writer

	turn  chan struct{} // has one element: the right to use the page
	left  browse.Moment // of the page as the agent knows it by the last call; nil: it knows none
	named namedTools    // by the results until now; who uses the page has it
	told  atomic.Pointer[toldTools]
	aside chan struct{} // has as many as there are hidden pages
	dial  chan struct{} // has one while the browser is connected to
	life  context.Context

	// Who uses the page has these.
	shown    []shown // the latest last
	picture  lastPicture
	toldPage []string // what results say of the page, after the name of the document

	files

	mu      sync.Mutex
	browser browse.Driver // nil: not connected
	pages   listedTools
	calls   map[string]context.CancelFunc
	awaited map[string]bool // downloads that were waited for, by GUID
	// canElicit is how the host can ask a person; nil: it cannot. elicited gets its answers, by the ID of the request.
	canElicit json.RawMessage
	elicited  map[string]chan<- *jsonrpc.Message
	work      sync.WaitGroup
}

// maxWaiting is how many bytes of answers wait for a host that does not read.
const maxWaiting = 64 << 20

// Serve serves a host until the end of its messages, or of the context.
func Serve(ctx context.Context, in io.Reader, out io.Writer, o Options) error {
	s := &Server{Options: o, out: jsonrpc.NewWriter(out, maxWaiting, nil), turn: make(chan struct{}, 1),
		aside: make(chan struct{}, maxAside), dial: make(chan struct{}, 1),
		calls: map[string]context.CancelFunc{}, files: files{asked: map[string]*roots{}}, awaited: map[string]bool{},
		elicited: map[string]chan<- *jsonrpc.Message{}}
	if s.Asks == nil {
		s.Asks = &Asks{}
		defer s.Asks.Close()
	}
	s.files.s = s
	s.pages.fresh = o.PageNames
	s.turn <- struct{}{}
	ctx, end := context.WithCancel(ctx)
	s.life = ctx
	defer s.close()
	defer end()
	lines := jsonrpc.NewReader(in)
	for {
		line, err := lines.Line()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		m, err := jsonrpc.Parse(line)
		if err != nil {
			s.out.Write(jsonrpc.Failure(nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "not a request: %v", err)), false)
			continue
		}
		s.handle(ctx, m)
	}
}

func (s *Server) close() {
	s.work.Wait()
	s.mu.Lock()
	b := s.browser
	s.browser = nil
	s.mu.Unlock()
	if b != nil {
		if s.Guest != nil {
			b.CloseOpened()
		}
		b.Close()
	}
	<-s.out.Close()
}

func (s *Server) handle(ctx context.Context, m *jsonrpc.Message) {
	switch {
	case m.IsResponse():
		id := jsonrpc.GetString(m.ID)
		s.mu.Lock()
		answer := s.elicited[id]
		delete(s.elicited, id)
		s.mu.Unlock()
		if answer != nil {
			answer <- m
			return
		}
		s.listed(id, m)
	case m.IsNotification():
		switch m.Method {
		case "notifications/cancelled":
			s.mu.Lock()
			cancel := s.calls[string(jsonrpc.Get(m.Params, "requestId"))]
			s.mu.Unlock()
			if cancel != nil {
				cancel()
			}
		case "notifications/roots/list_changed":
			s.mu.Lock()
			s.roots = nil
			s.mu.Unlock()
		}
	case m.Method == "initialize":
		s.mu.Lock()
		s.canList = jsonrpc.Get(m.Params, "capabilities", "roots") != nil
		s.canElicit = slices.Clone(jsonrpc.Get(m.Params, "capabilities", "elicitation"))
		s.mu.Unlock()
		s.answer(m.ID, map[string]any{"protocolVersion": jsonrpc.GetString(m.Params, "protocolVersion"),
			"capabilities": map[string]any{"tools": map[string]bool{"listChanged": s.ListPageTools}},
			"serverInfo":   map[string]string{"name": "builtin", "version": s.Release}})
	case m.Method == "ping":
		s.answer(m.ID, struct{}{})
	case m.Method == "tools/list":
		s.work.Go(func() { s.answer(m.ID, map[string]any{"tools": s.list(ctx)}) })
	case m.Method == "tools/call":
		s.call(ctx, m)
	default:
		s.out.Write(jsonrpc.Failure(m.ID, jsonrpc.Errorf(jsonrpc.MethodNotFound, "there is no method %q", m.Method)),
			false)
	}
}

func (s *Server) answer(id json.RawMessage, result any) {
	marshal := func() ([]byte, error) { return json.Marshal(result) }
	if r, ok := result.(json.Marshaler); ok {
		marshal = r.MarshalJSON // Marshal would read all of it again
	}
	raw, err := marshal()
	if err != nil {
		raw, _ = failed(err).MarshalJSON()
	}
	s.out.Write(jsonrpc.Response(id, s.Secrets.MaskJSON(raw)), false)
}

// SessionStats is a tool that is not of this table, but chosen with those that are.
const SessionStats = "browser_session_stats"

// groups are the tools that are listed only if they are chosen, as @playwright/mcp has
// them with --caps.
var groups = []string{"storage", "network", "vision", "testing"}

// Groups are the words by which several tools are chosen.
func Groups() []string { return append([]string{"default", "core", "all"}, groups...) }

// GroupOf is the group of a tool that is listed only if it is chosen; "": it is none.
func GroupOf(name string) string {
	all := table()
	i := slices.IndexFunc(all, func(t tool) bool { return t.Name == name })
	if i < 0 {
		return ""
	}
	return all[i].Group
}

// isIn reports whether a word chooses a tool.
func isIn(t *tool, word string) bool {
	switch word {
	case "all", t.Name:
		return true
	case "core":
		return t.Group == "" && !t.Extra
	case "default":
		return t.Group == ""
	}
	return word == t.Group && t.Group != "" || "browser_"+word == t.Name
}

// Names are the names of the tools, of a group of them, or those that are given,
// separated by commas: default,storage or browser_click,browser_navigate.
func Names(selection string) (names []string, err error) {
	for _, word := range strings.Split(selection, ",") {
		word = strings.TrimSpace(word)
		n := len(names)
		for _, t := range table() {
			if isIn(&t, word) {
				names = append(names, t.Name)
			}
		}
		if word == "all" || word == "default" || word == SessionStats || "browser_"+word == SessionStats {
			names = append(names, SessionStats)
		}
		if len(names) == n {
			known := append([]string{SessionStats, "default"}, groups...)
			for _, t := range table() {
				known = append(known, t.Name)
			}
			if near := spell.Nearest(word, known); near != "" {
				return nil, fmt.Errorf("there is no tool %q: did you mean %s?", word, near)
			}
			return nil, fmt.Errorf("there is no tool %q: there are default, core, %s, all and the names that "+
				"tools/list shows", word, strings.Join(groups, ", "))
		}
	}
	return names, nil
}

func (s *Server) has(name string) bool {
	return isListed(s.Only, name) || slices.Contains(s.Callable, name)
}

// isListed reports whether a tool is among those with these names; nil: those that are listed by default.
func isListed(only []string, name string) bool {
	return only == nil && GroupOf(name) == "" || slices.Contains(only, name)
}

// Unlisted returns the names of tools that may be called and are not listed.
func Unlisted(only, callable []string) (names []string) {
	return slices.DeleteFunc(append([]string{}, callable...), func(name string) bool { return isListed(only, name) })
}

func (s *Server) list(ctx context.Context) []json.RawMessage {
	all := List(s.Only)
	if s.ListPageTools {
		pages, _ := s.listPage(ctx) // what it cannot tell now is told by a notification
		all = append(all, pages...)
	}
	return all
}

// List are the tools with these names as tools/list has them; nil: those that are listed
// by default.
func List(only []string) (all []json.RawMessage) {
	return listed(only, false)
}

// Apps are those that a host with MCP Apps has besides.
func Apps(only []string) (all []json.RawMessage) { return listed(only, true) }

func listed(only []string, apps bool) (all []json.RawMessage) {
	for _, t := range prepared() {
		if isListed(only, t.Name) && (t.UI != nil) == apps {
			all = append(all, t.Listed)
		}
	}
	return all
}

// Bounds of a call from when it has its turn, whatever the page does: they are more than
// what a page can make it wait, and less than hosts do.
const (
	maxWait     = 24 * time.Second // for which it waits because an agent wants it to
	runTimeout  = 26 * time.Second // until it has done what it does
	viewTimeout = 2 * time.Second  // then, until it has told of the page
)

// patience is how long an agent wants to wait, in milliseconds: maxWait at most, and by
// default.
func (s *Server) patience(ms *float64) time.Duration {
	most := s.of(maxWait)
	if ms != nil {
		most = min(most, time.Duration(*ms*float64(time.Millisecond)))
	}
	return most
}

// of is a bound in the server's seconds.
func (s *Server) of(bound time.Duration) time.Duration {
	return time.Duration(float64(bound) * cmp.Or(s.Second, time.Second).Seconds())
}

// call runs a tool. Calls take turns, in the order in which they came.
func (s *Server) call(ctx context.Context, m *jsonrpc.Message) {
	name := jsonrpc.GetString(m.Params, "name")
	t := s.listedTool(name)
	if t == nil && s.has(name) {
		t = find(name)
	}
	if t == nil {
		s.out.Write(jsonrpc.Failure(m.ID, jsonrpc.Errorf(jsonrpc.InvalidParams, "there is no tool %q", name)), false)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	id := string(m.ID)
	s.mu.Lock()
	s.calls[id] = cancel
	told, before := s.told.Load(), s.turn
	after := make(chan struct{}, 1)
	if !t.Free {
		s.turn = after
	}
	s.mu.Unlock()
	s.work.Go(func() {
		defer cancel()
		if !t.Free {
			<-before
			defer func() { after <- struct{}{} }()
		}
		result := s.do(ctx, t, m.Params, told)
		s.mu.Lock()
		delete(s.calls, id)
		s.mu.Unlock()
		s.answer(m.ID, result)
	})
}

// do runs a tool for an agent that was told of these tools of pages, with the parameters of a call, and returns its
// result.
func (s *Server) do(ctx context.Context, t *tool, params json.RawMessage, told *toldTools) *mcp.CallToolResult {
	if err := context.Cause(ctx); err != nil {
		return failed(err)
	}
	args, err := accept(t, jsonrpc.Get(params, "arguments"), s.Arguments)
	if err != nil {
		return failed(err)
	}
	if err := s.checkSecrets(t.Name, args); err != nil {
		return failed(err)
	}
	r := &reply{access: access{server: s}, output: output{secrets: s.Secrets}, told: told}
	r.form, _ = results.FormOf(params)
	r.asTask = jsonrpc.Get(params, "_meta", MetaAsTask) != nil
	most := s.of(cmp.Or(t.Do.most, runTimeout))
	late := fmt.Errorf("%s did not end within %v", t.Name, most)
	ctx, cancel := context.WithTimeoutCause(ctx, most+s.of(viewTimeout), late)
	defer cancel()
	run, cancel := context.WithTimeoutCause(ctx, most, late)
	defer cancel()
	if s.BiDi != "" && !t.Do.any {
		return failed(fmt.Errorf("%s needs a browser based on Chromium, and this one is Firefox, which has %s", t.Name,
			strings.Join(onFirefox(), ", ")))
	}
	if t.Effect != reads {
		run = browse.Knowing(run, r.strayed)
	}
	if s.Secrets != nil {
		run = browse.Resolving(run, s.Secrets.Resolve)
	}
	err = t.Do.run(run, r, args)
	if errors.Is(err, late) && !r.answers() {
		err = fmt.Errorf("%w: the browser does not answer", late)
	}
	return r.result(ctx, err)
}

// CheckArguments returns what is wrong with the arguments of a call, beside which those that choose a browser may
// stand; nil for a tool that is not in the table.
func CheckArguments(name string, args json.RawMessage, choosing []string) error {
	t := find(name)
	if t == nil {
		return nil
	}
	_, err := accept(t, args, choosing)
	return err
}

// accept returns the arguments of a tool as they are meant. Of an argument by which tools choose a browser it says why
// it is not there.
func accept(t *tool, args json.RawMessage, choosing []string) (json.RawMessage, error) {
	args, err := t.Arguments.Accept(args, choosing...)
	e, ok := errors.AsType[*schema.UnknownError](err)
	if !ok {
		return args, err
	}
	has := func(name string) bool { return slices.Contains(choosing, name) }
	switch e.Member {
	case "browser_pool", "browser_instance":
		e.Mode = " without pools"
	case "instanceId":
		e.Mode = " without --extension"
	case "session_id", "state":
		if has("browser_pool") {
			e.Mode = " with pools"
		} else if has("instanceId") {
			e.Mode = " with --extension"
		}
	}
	return args, err
}

// answers reports whether the browser that a call used answers.
func (r *access) answers() bool {
	return r.browser != nil && r.browser.Answers()
}

// openBound is how long a Firefox may take to make a session: one that is just starting on a busy machine takes longer
// than a call waits.
const openBound = time.Minute

// connect returns the browser. It connects at the first call that needs it, and again when the connection has ended.
func (s *Server) connect(ctx context.Context) (b browse.Driver, err error) {
	select {
	case s.dial <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	before := s.browser
	s.mu.Unlock()
	if before != nil && !wait.Closed(before.Gone()) {
		<-s.dial
		return before, nil
	}
	opened := make(chan struct{})
	s.work.Go(func() {
		defer close(opened)
		defer func() { <-s.dial }()
		if b, err = s.open(ctx, before); err != nil {
			return
		}
		if !s.AllFiles {
			b.GuardFiles(s.refusesFile)
		}
		s.mu.Lock()
		s.browser = b
		s.mu.Unlock()
	})
	select {
	case <-opened:
		return b, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// open connects to the browser; before is its earlier connection, nil if there was none. A call that ends meanwhile
// leaves the connection to a Firefox to the next one: a session that is made and not used would keep the browser from
// everybody.
func (s *Server) open(ctx context.Context, before browse.Driver) (browse.Driver, error) {
	if s.BiDi != "" {
		ctx, cancel := context.WithTimeout(s.life, openBound)
		defer cancel()
		was, _ := before.(*firefox.Browser)
		return firefox.Open(ctx, s.BiDi, s.Second, was)
	}
	b, err := browse.Open(ctx, s.Endpoint, s.Second)
	if err != nil {
		return nil, err
	}
	if was, _ := before.(*browse.Browser); s.Guest != nil {
		b.TellOpened(was, s.Guest)
	}
	if s.ListPageTools {
		s.work.Go(func() { s.watchTools(b) })
	}
	return b, nil
}

// chromium is connect for a tool that only a browser of Chromium has.
func (s *Server) chromium(ctx context.Context) (*browse.Browser, error) {
	b, err := s.connect(ctx)
	c, _ := b.(*browse.Browser)
	return c, err
}
