// Package shell is how a shell runs the tools of an agent, one command a call. A service in the background keeps the
// sessions between two calls: each is a host of MCP with a browser of its own, belongs to the program that makes the
// calls, and ends with it. How a tool's command line is read stands in toolline, where the browsers come from in the
// servers that the service is given.
package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/agent/toolline"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/results"
	"btools/lib/shell/relay"
	"btools/lib/wait"
)

const (
	// Idle is how long a session lasts that nobody calls, and Hibernate how long until its browser is freed.
	Idle      = 30 * time.Minute
	Hibernate = 5 * time.Minute
	// startTimeout is how long a server may take to be ready for a session. Browsers start later, with a call.
	startTimeout = 30 * time.Second
)

// Service keeps sessions. Set its fields before use.
type Service struct {
	Release string // of bmcp
	// Open opens a server for the sessions that start with these options of bmcp. There is one call at a time.
	Open func(options []string) (Server, error)
	// Run runs a command line of bmcp call with Call. An error means that nothing was done.
	Run func(ctx context.Context, r relay.Request) (*relay.Answer, error)
	// Stop is called, once, when no session is left.
	Stop func()
	// Memory is the file in which the services note their sessions.
	Memory string
	// Keep is the directory in which the browsers of sessions outlive the services.
	Keep string
	// Settle waits until the programs of a service that was killed have ended, which keep its sessions until then.
	Settle func(ctx context.Context, service proc.Identity)
	// Path is that of the control socket.
	Path string

	memory  memory
	opening sync.Mutex     // of servers: one is opened at a time
	work    sync.WaitGroup // sessions, until nothing of them is left

	mu       sync.Mutex
	sessions map[string]*session // by key
	servers  map[string]*server  // by their options
	stopping bool
}

// server is a Server that sessions share.
type server struct {
	open   func() (Server, error)
	users  int
	closed chan struct{} // nil while it is used; closed when nothing of it is left
}

// session is one that calls have.
type session struct {
	caller
	options []string
	given   bool   // the call that begins it has named some of them
	browser string // its name
	left    *noted // the session that it goes on with; nil: it is new
	began   time.Time

	ctx   context.Context
	end   context.CancelCauseFunc
	ready chan struct{} // closed when host, to and err are set
	gone  chan struct{} // closed when nothing of it is left
	host  *host
	to    string // the socket of the service that has the session
	err   error

	// Under the lock of the service:
	claimed bool     // no other service begins a session in its place
	notes   []string // for the first call
	calls   int      // that run
	used    time.Time
	by      proc.Ancestor // who made the latest call; no PID: unknown, or the session has a name
	timer   wait.Timer
	page    page
}

// Target says which session a call is for.
type Target struct {
	// Session is its name; "": it is that of the program that calls.
	Session string `json:"session,omitempty"`
	// Owner is the process with whose end it ends; nil: the program that calls, or nothing but being unused for a
	// session with a name.
	Owner *proc.Identity `json:"owner,omitempty"`
	// Options are those of bmcp with which it starts.
	Options []string `json:"options,omitempty"`
	// Given says that some are of the call itself, and not all of its environment: they must be those of the session.
	Given   bool   `json:"given,omitempty"`
	Release string `json:"release"`
	// Own is the socket of the service that has the surroundings of the call. Another one has no new session for it.
	Own string `json:"own,omitempty"`
}

// Request is the parameters of call.
type Request struct {
	Target
	Dir string `json:"dir,omitempty"` // whose files the call may use; "": none
	// DirBytes is Dir if that is not UTF-8, which JSON does not keep.
	DirBytes []byte `json:"dir_bytes,omitempty"`
	Tool     string `json:"tool,omitempty"`
	// Arguments are those of the tool; nil: Words are.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Words     []string        `json:"words,omitempty"`
	// Line is the tool and its arguments in the place of all these, as toolline reads them.
	Line string `json:"line,omitempty"`
	// Form is how much of the result is answered. Of a value, links are answered as what they lead to.
	Form results.Form `json:"form"`
}

// Answer is the answer to call.
type Answer struct {
	Moved
	Result json.RawMessage `json:"result,omitempty"` // as MCP has it
	Notes  []string        `json:"notes,omitempty"`  // for the person who calls
}

// Moved is in the place of an answer if another service has the session, or is to begin it.
type Moved struct {
	To string `json:"moved_to,omitempty"` // its socket
}

// take returns it, and makes room for the next answer.
func (m *Moved) take() (to string) {
	to, m.To = m.To, ""
	return to
}

// Tools is the answer to tools.
type Tools struct {
	Moved
	Tools []json.RawMessage `json:"tools"` // nil: there is no such session
	Refs  []string          `json:"refs,omitempty"`
}

// Session is a session as sessions lists it.
type Session struct {
	Name    string   `json:"name"`
	Owner   *Owner   `json:"owner"`         // null: the user
	URL     string   `json:"url,omitempty"` // of the tab that the latest result was of
	Title   string   `json:"title,omitempty"`
	Tabs    int      `json:"tab_count"`
	Calls   int      `json:"calls"` // that run
	Idle    float64  `json:"idle_seconds"`
	Options []string `json:"options,omitempty"`
	// KeptAt is as of when its browser is kept, of a session whose service was killed: the next call has it again. Nil:
	// its service runs.
	KeptAt *record.Time `json:"kept_at,omitempty"`
}

// Owner is the process with whose end a session ends.
type Owner struct {
	PID  int    `json:"pid"`
	Name string `json:"name,omitempty"`
}

// EndRequest is the parameters of end.
type EndRequest struct {
	Target
	All bool `json:"all,omitempty"`
}

// Ended is the answer to end: how many sessions have ended.
type Ended struct {
	Moved
	Sessions int `json:"sessions"`
}

// Methods returns what the service answers on its control socket.
func (s *Service) Methods() *control.Mux {
	s.sessions, s.servers = map[string]*session{}, map[string]*server{}
	s.memory = memory{path: s.Memory, keep: s.Keep, self: place{proc.Self(), s.Path}}
	time.AfterFunc(startTimeout, s.stopUnused) // who has started it may have been killed
	m := &control.Mux{Program: "bmcp call"}
	control.Handle(m, control.Method[Request, *Answer]("call"), func(ctx context.Context, r Request) (any, error) {
		return control.Later(func() (any, error) { return s.Call(ctx, r) }), nil
	})
	control.Handle(m, control.Method[relay.Request, *relay.Answer](relay.Method),
		func(ctx context.Context, r relay.Request) (any, error) {
			return control.Later(func() (any, error) { return s.Run(ctx, r) }), nil
		})
	control.Handle(m, control.Method[Target, *Tools]("tools"), func(ctx context.Context, t Target) (any, error) {
		return control.Later(func() (any, error) { return s.tools(ctx, t) }), nil
	})
	control.Handle(m, control.Method[struct{}, []Session]("sessions"),
		func(context.Context, struct{}) (any, error) { return s.list(), nil })
	control.Handle(m, control.Method[EndRequest, *Ended]("end"), func(ctx context.Context, r EndRequest) (any, error) {
		return control.Later(func() (any, error) { return s.endAsked(ctx, r) }), nil
	})
	return m
}

// errStopping answers a call that came when the service was about to end: the next one has another service.
var errStopping = control.Errorf(control.Stopping, "the service of bmcp call is stopping")

// Call runs a tool for the peer of the context.
func (s *Service) Call(ctx context.Context, r Request) (*Answer, error) {
	x, notes, to, err := s.begin(ctx, &r.Target)
	if err != nil || to != "" {
		return &Answer{Moved: Moved{to}}, err
	}
	defer s.done(x)
	select {
	case <-x.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if x.to != "" {
		return &Answer{Moved: Moved{x.to}}, nil
	}
	notes = append(notes, s.takeNotes(x)...)
	if x.err != nil {
		return nil, x.err
	}
	leave, err := x.host.enter(ctx, cmp.Or(string(r.DirBytes), r.Dir))
	if err != nil {
		return nil, err
	}
	defer leave()
	all, err := x.host.list(ctx)
	if err != nil {
		return nil, err
	}
	tool, arguments, err := r.read(all)
	if err != nil {
		return nil, x.host.explain(ctx, err)
	}
	result, err := x.host.to.call(ctx, "tools/call", r.Form.AddTo(json.RawMessage(`{"name":`+
		string(jsonrpc.Quote(tool.Name))+`,"arguments":`+string(arguments)+`}`)))
	if err == nil && r.Form.Value {
		result, err = x.host.withLinked(ctx, result)
	}
	if why := context.Cause(x.ctx); err != nil && why != nil {
		err = why
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	before := x.page.url
	x.page.see(result)
	moved := x.page.url != before
	s.mu.Unlock()
	if moved {
		s.note(x)
	}
	if !x.host.ours {
		result = r.Form.Cut(result)
	}
	return &Answer{Result: result, Notes: notes}, nil
}

// takeNotes returns what a session tells its first call.
func (s *Service) takeNotes(x *session) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	notes := x.notes
	x.notes = nil
	return notes
}

// claim notes a session, unless another service has it: then it returns the socket of that.
func (s *Service) claim(x *session) (to string, err error) {
	if was := s.memory.load()[x.key]; was.isLeft() {
		s.Settle(x.ctx, was.Process)
	}
	var differs error
	err = s.memory.change(x.ctx, func(all map[string]noted) {
		was, known := all[x.key]
		if known && was.runs() && was.Process != s.memory.self.Process {
			to = was.Control
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		x.browser = api.NameOf(x.called)
		if known && !was.runs() {
			kept := s.memory.kept(was)
			if !kept.IsZero() {
				if differs = x.resume(was, s.Path); differs != nil {
					return
				}
			}
			x.notes = append(x.notes, was.told(kept))
		}
		if other, known := all[x.like]; known {
			x.notes = append(x.notes, other.told(time.Time{})+"; --session NAME keeps one for several programs")
		}
		delete(all, x.like)
		x.claimed = true
		all[x.key] = x.notedLocked(s)
		if !x.named {
			all[x.byName()] = all[x.key]
		}
	})
	return to, cmp.Or(err, differs)
}

// notedLocked returns what is noted of a session.
func (x *session) notedLocked(s *Service) noted {
	return noted{place: s.memory.self, Page: x.page.url, Browser: x.browser, Options: x.options}
}

// note notes the page of a session, or how it has ended. What can't be written is not told later.
func (s *Service) note(x *session) {
	s.memory.change(context.Background(), func(all map[string]noted) {
		s.mu.Lock()
		defer s.mu.Unlock()
		why := context.Cause(x.ctx)
		if !x.named && x.claimed && why != nil {
			delete(all, x.byName())
		}
		switch {
		case !x.claimed:
		case why == nil:
			all[x.key] = x.notedLocked(s)
		case x.err != nil && x.left != nil:
			all[x.key] = *x.left // for the next call
			return
		case x.err != nil, errors.Is(why, errAsked), errors.Is(why, errStopped):
			delete(all, x.key)
		case errors.Is(why, errOwner) && !x.named:
			delete(all, x.key)
			if x.like != "" {
				all[x.like] = noted{Since: time.Now().UTC(),
					Why: fmt.Sprintf("it belonged to %s (pid %d), which has ended", title(x.owner), x.owner.PID)}
			}
		default:
			all[x.key] = noted{Why: why.Error(), Since: time.Now().UTC()}
		}
		if x.claimed && why != nil {
			s.memory.forget(noted{Browser: x.browser})
		}
	})
}

// read reads which tool is called, and its arguments.
func (r *Request) read(all *toolline.Tools) (tool toolline.Tool, arguments json.RawMessage, err error) {
	if r.Line != "" {
		return all.Line(r.Line)
	}
	if tool, err = all.Find(r.Tool); err != nil {
		return tool, nil, err
	}
	if r.Arguments != nil {
		arguments, err = tool.JSON(r.Arguments)
	} else {
		arguments, err = tool.Arguments(r.Words)
	}
	return tool, arguments, err
}

// begin begins a call on the session that a target names, which starts if there is none; or it returns the socket of
// the service that has the session, or is to begin it.
func (s *Service) begin(ctx context.Context, t *Target) (x *session, notes []string, to string, err error) {
	who := t.of(ctx)
	s.awaitEnd(ctx, &who)
	s.mu.Lock()
	defer s.mu.Unlock()
	for x = s.findLocked(&who); x != nil && x.ctx.Err() != nil; x = s.findLocked(&who) { // it is about to end
		s.mu.Unlock()
		select {
		case <-x.gone:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		s.mu.Lock()
		if err != nil {
			return nil, nil, "", err
		}
	}
	if x == nil && (t.Own != s.Path || who.named) {
		if to = s.memory.find(&who); to == "" && t.Own != s.Path {
			to = t.Own
		}
		if to != "" {
			return nil, nil, to, nil
		}
	}
	if t.Release != s.Release {
		if len(s.sessions) == 0 {
			s.stopLocked()
		} else {
			notes = append(notes, fmt.Sprintf("the service in the background is of version %s and goes on until its "+
				"sessions end: bmcp end --all ends them", s.Release))
		}
	}
	switch {
	case s.stopping:
		return nil, nil, "", errStopping
	case x == nil:
		x = &session{caller: who, options: t.Options, given: t.Given, began: time.Now(),
			ready: make(chan struct{}), gone: make(chan struct{})}
		x.ctx, x.end = context.WithCancelCause(context.Background())
		s.sessions[who.key] = x
		s.work.Go(func() { s.run(x) })
		if !who.owned && !who.named {
			x.notes = append(x.notes, fmt.Sprintf("cannot tell which program made this call: the session belongs "+
				"to the user, and ends after %v without a call: --session NAME and --bind-pid PID name another", Idle))
		}
	case t.Given && !slices.Equal(t.Options, x.options):
		return nil, nil, "", errOptions(x.options)
	default:
		if other, ok := x.besideLocked(&who, time.Now()); ok {
			return nil, nil, "", errBeside(other)
		}
		if x.calls > 0 && !x.named {
			notes = append(notes, noteOverlap)
		}
	}
	if by, ok := callerAmong(who.above); ok && !x.named {
		x.by = by
	}
	x.calls++
	x.timer.Stop()
	return x, notes, "", nil
}

// done ends a call.
func (s *Service) done(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.used = time.Now()
	if x.calls--; x.calls == 0 && x.ctx.Err() == nil {
		x.timer.Start(Idle, func() { s.endUnused(x) })
	}
}

func (s *Service) endUnused(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.calls == 0 && time.Since(x.used) >= Idle {
		x.end(errUnused)
	}
}

var (
	errUnused  = errors.New("the session was not used for " + Idle.String())
	errAsked   = errors.New("the session was ended")
	errOwner   = errors.New("the owner of the session has ended")
	errStopped = errors.New("the service of bmcp call was stopped")

	errNotReady = control.Errorf(control.TryAgain, "the server was not ready within %v", startTimeout)
)

// run starts a session, and ends it when its time has come.
func (s *Service) run(x *session) {
	x.to, x.err = s.claim(x)
	if x.to == "" && x.err == nil {
		s.serve(x)
	} else {
		close(x.ready)
		x.end(errStopped)
	}
	s.note(x)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, x.key)
	close(x.gone)
	if len(s.sessions) == 0 {
		s.stopLocked()
	}
}

// serve keeps a session in a server until its end.
func (s *Service) serve(x *session) {
	if x.owned {
		s.work.Go(func() {
			if x.owner.Wait(x.ctx) == nil {
				x.end(errOwner)
			}
		})
	}
	key := strings.Join(x.options, "\n")
	at := s.use(key, x.options)
	opened, err := at.open()
	if err == nil {
		x.host, err = newHost(opened, x.browser, x.end)
	}
	if err == nil {
		ctx, cancel := context.WithTimeoutCause(x.ctx, startTimeout, errNotReady)
		err = x.host.initialize(ctx, s.Release)
		cancel()
		if why := context.Cause(x.ctx); err != nil && why != nil {
			err = why
		}
	}
	x.err = err
	close(x.ready)
	if err == nil {
		<-x.ctx.Done()
	}
	s.mu.Lock()
	x.end(errStopped)
	x.timer.Stop()
	s.mu.Unlock()
	if x.host != nil {
		x.host.to.close()
	}
	s.leave(key, at, opened)
}

// stopUnused stops the service if it has no session.
func (s *Service) stopUnused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) == 0 {
		s.stopLocked()
	}
}

// stopLocked stops the service.
func (s *Service) stopLocked() {
	if !s.stopping {
		s.stopping = true
		s.Stop()
	}
}

// use returns the server for sessions with these options. One that is about to close is waited for, as it may have the
// profile.
func (s *Service) use(key string, options []string) *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		at := s.servers[key]
		if at == nil {
			at = &server{open: sync.OnceValues(func() (Server, error) {
				s.opening.Lock()
				defer s.opening.Unlock()
				return s.Open(options)
			})}
			s.servers[key] = at
		}
		if at.closed == nil {
			at.users++
			return at
		}
		s.mu.Unlock()
		<-at.closed
		s.mu.Lock()
	}
}

// leave ends a session's use of a server, which closes after its last one.
func (s *Service) leave(key string, at *server, opened Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.users--; at.users > 0 {
		return
	}
	at.closed = make(chan struct{})
	s.mu.Unlock()
	if opened != nil {
		opened.Close()
	}
	s.mu.Lock()
	delete(s.servers, key)
	close(at.closed)
}

// Quit takes no more calls: another service may take the place of this one.
func (s *Service) Quit() {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
}

// Close ends all sessions after Quit, and returns when nothing is left of them.
func (s *Service) Close() {
	s.mu.Lock()
	for _, x := range s.sessions {
		x.end(errStopped)
	}
	s.mu.Unlock()
	s.work.Wait()
}

// findLocked returns the session of a caller, which may name that of a program by what people call it; nil: it is not
// here.
func (s *Service) findLocked(who *caller) *session {
	x := s.sessions[who.key]
	for _, other := range s.sessions {
		if x == nil && who.named && !other.named && other.called == who.called {
			x = other
		}
	}
	return x
}

// known returns the session that a target names, nil if it is not here; then perhaps the socket of the service where it
// is, or of one that can tell.
func (s *Service) known(ctx context.Context, t *Target) (x *session, elsewhere Moved) {
	who := t.of(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x = s.findLocked(&who); x == nil {
		if elsewhere.To = s.memory.find(&who); elsewhere.To == "" && t.Own != s.Path {
			elsewhere.To = t.Own
		}
	}
	return x, elsewhere
}

// tools returns those of a session that is there.
func (s *Service) tools(ctx context.Context, t Target) (*Tools, error) {
	x, elsewhere := s.known(ctx, &t)
	if x == nil || !wait.Closed(x.ready) || x.err != nil || x.host == nil {
		return &Tools{Moved: elsewhere}, nil
	}
	all, err := x.host.list(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Tools{Tools: all.All, Refs: x.page.refs}, nil
}

// list lists the sessions, the oldest first.
func (s *Service) list() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := make([]*session, 0, len(s.sessions))
	for _, x := range s.sessions {
		began = append(began, x)
	}
	slices.SortFunc(began, func(a, b *session) int { return a.began.Compare(b.began) })
	all := make([]Session, 0, len(began))
	for _, x := range began {
		now := Session{Name: x.called, URL: x.page.url, Title: x.page.title, Tabs: x.page.tabs, Calls: x.calls,
			Options: shown(x.options)}
		if x.owned {
			now.Owner = &Owner{x.owner.PID, title(x.owner)}
		}
		if x.calls == 0 {
			now.Idle = time.Since(x.used).Seconds()
		}
		all = append(all, now)
	}
	return all
}

// endAsked ends the session that a target names, or all, and waits until nothing is left of them.
func (s *Service) endAsked(ctx context.Context, r EndRequest) (*Ended, error) {
	defer s.stopUnused()
	var ends []*session
	var left int
	var err error
	switch x, elsewhere := s.known(ctx, &r.Target); {
	case r.All:
		s.mu.Lock()
		for _, x := range s.sessions {
			ends = append(ends, x)
		}
		s.mu.Unlock()
		left, err = s.endLeft(ctx, nil)
	case x != nil:
		ends = append(ends, x)
	case elsewhere.To != "":
		return &Ended{Moved: elsewhere}, nil
	default:
		who := r.Target.of(ctx)
		if left, err = s.endLeft(ctx, &who); err == nil && left == 0 && r.Session != "" {
			err = control.Errorf(control.SessionNotFound, "there is no session named %s", r.Session)
		}
	}
	if err != nil {
		return nil, err
	}
	for _, x := range ends {
		x.end(errAsked)
	}
	for _, x := range ends {
		select {
		case <-x.gone:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return &Ended{Sessions: len(ends) + left}, nil
}
