// Package source gives an agent browsers: one behind a proxy, those of a pool or that have joined a hub, or the
// browsers that children launch. It shares them among hosts, which it knows as Owners, and hibernates and ends sessions
// that they do not use. It is a client of the control API of bproxy, its hub and bpool, and knows neither MCP nor the
// children.
//
// A source has one lock, that of its book. Nothing waits while it is held, and no other lock is taken but that of a
// service, which is about its connections. A grant has another one, which orders the requests on its connection.
package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/agent/instances"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/coordinator/tasks"
	"btools/lib/exit"
	"btools/lib/launch/options"
	"btools/lib/record"
)

// Browser is a browser, or a virtual one, and its endpoint.
type Browser struct {
	Pool, Instance string // "" without pools
	Session        string // of a virtual browser; "": it is a whole one
	ID             string
	Lease          string // of a pool's instance; "": there is none
	HTTPURL, WSURL string // stable; "": the child launches the browser itself
	BiDi           string // the WebSocket URL of a Firefox that runs; "": it is none
	Port           int
	Type           string
	Headless       bool
	Profile        string        // of a browser that a child launches; "": a temporary one
	Windows        bool          // its child runs on Windows' Node.js, from WSL
	Isolated       bool          // each lease has a browser of its own
	Virtual        bool          // a session in a browser that leases share
	Hibernate      time.Duration // until its lease is hibernated when no call uses it; 0: never
	CallTimeout    time.Duration // of a tool's call; 0: no bound
	// The child is pinged at this interval and has this long to answer; 0: never.
	HealthInterval, HealthTimeout time.Duration
}

// IsBelow reports whether the endpoint is below the root of a port that other
// browsers share.
func (b *Browser) IsBelow() bool {
	u, err := url.Parse(b.HTTPURL)
	return err == nil && strings.Trim(u.Path, "/") != ""
}

// Lease is a browser for one call.
type Lease struct {
	Browser
	Died    <-chan struct{} // closed when the browser has ended; nil: unknown
	Release func()
	several bool // the next call may get another browser
	fresh   bool // each call gets a new browser
	// replaced tells why the previous result was from another browser; "": the browser was launched anew.
	replaced string
	restores bool        // the browser gets the sessions of the previous one back
	joined   bool        // it has joined by its extension, and is not launched
	notices  *notices    // nil: none arrive
	note     *hibernated // nil: it never is
	// look asks bproxy or bpool how the session is; it returns nil if they do not say. nil: it has no session.
	look func(context.Context) *api.Hibernation
	// Lapse returns a channel that is closed when somebody has ended the lease; nil: nobody can.
	Lapse func() <-chan struct{}
	// kept means that the session of an earlier lease of the same host is back.
	kept    bool
	granted *grant // nil: it is not of a pool
}

// Source gives calls their browsers, for all owners: a kind, and the provider that is asked for browsers.
type Source struct {
	*Kind
	provider
	Type     string         // of a browser that only children launch
	States   control.Caller // the program that has the named logins; nil: they are files of this user
	Launched *instances.Set // browsers that agents launch, which join the hub; nil: they launch none
	// Guest is called when a tab is opened or closed here in a browser that another program launches and stops; nil:
	// the browser is none.
	Guest func(tab string, open bool)

	book
	sessions Sharing
	pool     *bpool // nil: browsers are not leased
	stops    bool   // a browser without tabs
	ids      int    // session_ids that are in use, under the lock of the book
	// Limits of the session_ids of one host, and of all hosts.
	maxIDsOfHost, maxIDs int
	emptyings            atomic.Int64 // how often a session was ended whose last tab was closed
	stopping             sync.WaitGroup
}

// provider asks a program for browsers: bproxy, a hub or bpool. A call may name one of several browsers, an instance,
// for its session.
type provider interface {
	// target returns the address of the browser, whether it runs or not.
	target(ctx context.Context) (Browser, error)
	// Targets is that of Browsers.
	Targets(ctx context.Context) ([]Browser, error)
	// up returns the browser if nothing has to be waited for, else nil.
	up(instance, session string) *Lease
	// acquire returns the browser, and launches it or waits for it.
	acquire(ctx context.Context, instance, session string) (*Lease, error)
	// idOf returns the ID of an instance for a Browser. The error says that it has not joined.
	idOf(ctx context.Context, instance string) (string, error)
	// status returns the record of the browser and its port; nil: there is none. The error says what is wrong.
	status(ctx context.Context) (*record.Record, error)
	// control launches, stops or restarts the browser.
	control(ctx context.Context, method string, o options.Options) (*record.Record, error)
	// list returns the sessions; none if the program does not answer.
	list(ctx context.Context) []sessionStatus
	newSession(ctx context.Context, name, state string) error
	// hibernate hibernates a session whose clients have just gone. It reports whether the session needs no pages
	// any more; it does if others are connected to it.
	hibernate(ctx context.Context, name string) bool
	// end ends a session, if there is one.
	end(instance, name string)
	// SaveState saves the logins of a browser's session.
	SaveState(ctx context.Context, b Browser, r api.StateRequest) (api.States, error)
	// stopUnused stops the browser, which no call uses, or which is empty. It returns when it was used last.
	stopUnused(empty bool) time.Time
	close()
}

func (s *Source) init(k *Kind, p provider, how Sharing) {
	s.Kind, s.provider, s.sessions, s.maxIDsOfHost, s.maxIDs = k, p, how, maxIDsOfHost, maxIDs
	s.table.most, s.table.keep = how.MaxSessions, placeRest
	s.table.set(s, rules{end: how.Idle})
}

// placeRest is how long a virtual browser keeps a place that others wait for without a call (--max-sessions): then it
// is hibernated, and its next call waits for a place in its turn.
const placeRest = 5 * time.Second

// Of returns the browsers for an owner, until the context ends. An owner that is shared is several hosts, which know
// nothing of each other.
func (s *Source) Of(ctx context.Context, o Owner, shared bool) Browsers {
	return &ownerUse{Source: s, owner: o, ctx: ctx, shared: shared, all: map[sessionKey]*ownerSession{},
		states: map[sessionKey]string{}}
}

// Close stops the programs and browsers that the source runs, and waits for them.
func (s *Source) Close() {
	s.book.close()
	s.provider.close()
	s.stopping.Wait()
}

// Clients returns the number of clients of a browser's session; 0: it is not known.
func (s *Source) Clients(ctx context.Context, b Browser) int {
	if !s.HasSessions() {
		return 0
	}
	if at := s.session(ctx, b.Instance, cmp.Or(b.Session, hostSession)); at != nil {
		return at.Clients
	}
	return 0
}

// session returns the status of a session; nil: there is none.
func (s *Source) session(ctx context.Context, instance, name string) *sessionStatus {
	for _, at := range s.list(ctx) {
		if at.Name == name && (instance == "" || instance == at.instance) {
			return &at
		}
	}
	return nil
}

// sessionStatus is a session as bproxy or a hub describes it.
type sessionStatus struct {
	api.Session `json:"session"`
	instance    string // the joined browser that owns it
}

// Owner uses the browsers of a source: a host, whose children drive them.
type Owner interface {
	Name() string // unique
	// Busy reports whether a child of such browsers is answering something.
	Busy(match func(*Browser) bool) bool
	// StopChildren stops the children of such browsers, and returns at once. The next calls start others; with
	// forget, the children are not known any more. Stopped waits until they have ended.
	StopChildren(match func(*Browser) bool, forget bool) (stopped func())
}

// Browsers are the browsers that an owner uses, or keeps between its calls.
type Browsers interface {
	// Target returns the browser that a child can be started for before it is called. Targets returns all of them;
	// none: there is only that one.
	Target(ctx context.Context) (Browser, error)
	Targets(ctx context.Context) ([]Browser, error)
	// Early reports whether the browser does not run yet, but its endpoint is known.
	Early() bool
	// Queue returns where a task waits for a browser.
	Queue(w BrowserRef) tasks.Queue
	// Waiting returns a function that counts the calls before one that waits for a browser; nil: none waits.
	Waiting(w BrowserRef) func() (ahead int, waits bool)
	// Take leases a running browser for one call.
	Take(ctx context.Context, w BrowserRef) (*Lease, error)
	// TryTake is Take without waiting; it returns nil if it would have to wait.
	TryTake(w BrowserRef) *Lease
	// Note returns what the reader of a result has to know of its browser. It is told once.
	Note(ctx context.Context, at *Lease) Note
	// Status describes the browsers of a pool; with "", all browsers.
	Status(ctx context.Context, pool string) (Status, error)
	// Control launches, stops or restarts a browser.
	Control(ctx context.Context, do Action, w BrowserRef, o options.Options) error
	// Figures returns the figures of the owner's browsers.
	Figures(ctx context.Context) []Figure
	// Away hibernates the browsers that no call uses, as the owner is gone. It reports whether calls use others.
	Away() (used bool)
	// Leave stops new leases. Once the owner's context has ended, the function that it returns ends the owner's
	// sessions, releases what it keeps and waits for work in progress. Call it before and again after the children
	// stop.
	Leave() (release func())
}

// Action is something that is done with a whole browser.
type Action string

const (
	Launch  Action = "launch"
	Stop    Action = "stop"
	Restart Action = "restart"
)

// errNotOurs means that a source does not launch its browsers one by one.
var errNotOurs = errors.New("these browsers are not launched and stopped by their hosts")

// Status describes the browsers of a source.
type Status struct {
	Running  bool
	Port     *int            // of the one browser
	Browser  json.RawMessage // type, path, version, and its instance
	LastExit *string
	Pools    json.RawMessage // as bpool status has it
	Sessions []VirtualStatus // virtual browsers of the owner
	Notes    []string        // what is wrong
}

// BrowserRef names the browser of a call.
type BrowserRef struct{ Pool, Instance, Session, State string }

// ErrEnded is the error of requests of an owner that has ended.
var ErrEnded = errors.New("the session has ended")

var ErrBrowserDied = errors.New("the browser ended during this call: the next call gets a new one")

// Explain adds the hint to an error of a browser source.
func Explain(err error) error {
	var e *exit.Error
	if errors.As(err, &e) && e.Hint != "" {
		return fmt.Errorf("%w (%s)", err, e.Hint)
	}
	return err
}
