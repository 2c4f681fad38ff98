// Package source is where the browsers of an agent come from: one behind a proxy, a pool, those that have joined
// a hub, or none, as children launch theirs. It shares them among hosts, which it knows as Owners, and hibernates
// and ends what they do not use. It knows neither MCP nor the children.
//
// A source has one lock, that of its book. Nothing waits, and no other lock is taken, while it is held. A grant has
// another one, which orders the requests on its connection.
package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"btools/lib/agent/instances"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/coordinator/tasks"
	"btools/lib/exit"
	"btools/lib/launch/options"
	"btools/lib/proc"
)

// Browser is a browser and its endpoint.
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
	Virtual        bool          // a part of a browser that leases share
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
	several bool        // the next call may get another browser
	fresh   bool        // each call gets a new browser
	ended   string      // why the previous browser ended; "": unknown
	guest   bool        // another program has launched it
	joined  bool        // it has joined by its extension, and is not launched
	notices *notices    // nil: none arrive
	note    *hibernated // nil: it never is
	// look returns how it is now, as bproxy or bpool says; nil: they do not. A nil function: it has no state to keep.
	look func(context.Context) *api.Hibernation
	// Lapse returns what is closed when somebody has ended the lease; nil: nobody can.
	Lapse func() <-chan struct{}
	// kept says that its session is that of an earlier lease of the same host.
	kept    bool
	granted *grant // nil: it is not of a pool
}

// Source is where the browsers of calls come from: Proxied, Pooled, Served, OfHub or
// ChildLaunched. Nothing else knows which of these it is.
type Source interface {
	// Of returns the source as one owner uses it, until the context ends. Shared says that the owner is
	// several hosts, which know nothing of each other.
	Of(ctx context.Context, o Owner, shared bool) Browsers
	Kind() Kind
	// Type is the type of a browser that only children launch, else "".
	Type() string
	// Clients is how many clients a browser's session has; 0: it is not known.
	Clients(ctx context.Context, b Browser) int
	// Guest returns what is told of the tabs that are open here, if another program launches and stops the browser;
	// nil: none does.
	Guest() func(tab string, open bool)
	// Emptied returns what ends a browser whose last tab was closed; nil: nothing does.
	Emptied(b Browser) func()
	// SaveState saves the logins of a browser's session, and returns what bproxy or
	// bpool answers.
	SaveState(ctx context.Context, b Browser, r api.StateRequest) (api.States, error)
	// States is the connection to the program that has the named logins; nil: they are
	// files of this user.
	States() control.Caller
	// Instances are the browsers that agents launch, which join the source's hub; nil: they launch none.
	Instances() *instances.Set
	Close()
}

// plain has the answers of a source where its kind has no others.
type plain struct{}

func (plain) Type() string                         { return "" }
func (plain) Clients(context.Context, Browser) int { return 0 }
func (plain) Guest() func(string, bool)            { return nil }
func (plain) Emptied(Browser) func()               { return nil }
func (plain) States() control.Caller               { return nil }
func (plain) Instances() *instances.Set            { return nil }
func (plain) Close()                               {}
func (plain) SaveState(context.Context, Browser, api.StateRequest) (api.States, error) {
	return api.States{}, errNoLogins
}

// Kind says where browsers come from, and how hosts share them.
type Kind int

const (
	// SharedProfile is one browser, which all hosts see as it is.
	SharedProfile Kind = iota
	// ProfileAndSessions shows the host the profile of the one browser; calls with a
	// session_id have virtual browsers beside it.
	ProfileAndSessions
	// SessionsOnly gives each host a virtual browser of its own, and others by
	// session_id.
	SessionsOnly
	Hub     // browsers that have joined, with tabs of each host's and session_id's own
	Pool    // leases of a bpool service
	ByChild // children launch them
)

// Arguments are the names of the arguments of a call that choose a browser of a kind, as RefIn reads them.
func (k Kind) Arguments() []string {
	switch k {
	case ProfileAndSessions, SessionsOnly:
		return []string{"session_id", "state"}
	case Hub:
		return []string{"session_id", "instanceId"}
	case Pool:
		return []string{"browser_pool", "browser_instance"}
	}
	return nil
}

// Owner is who uses the browsers of a source: a host, whose children drive them.
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
	// Target is the browser that a child can be started for before it is called,
	// Targets are all of them; nil: there is only that one.
	Target(ctx context.Context) (Browser, error)
	Targets(ctx context.Context) ([]Browser, error)
	// Early reports whether the browser is not running, but its endpoint is known
	// already.
	Early() bool
	// Queue is where a task waits that asks for a browser.
	Queue(w BrowserRef) tasks.Queue
	// Waiting returns what tells how many others a call that waits for a browser has before it; nil: none waits.
	Waiting(w BrowserRef) func() (ahead int, waits bool)
	// Take leases a running browser for one call.
	Take(ctx context.Context, w BrowserRef) (*Lease, error)
	// TryTake is take without waiting; it returns nil if something has to be
	// waited for.
	TryTake(w BrowserRef) *Lease
	// Note is what the reader of a result has to know of its browser. It is told once.
	Note(ctx context.Context, at *Lease) Note
	// Status describes the browsers of a pool; with "", all browsers.
	Status(ctx context.Context, pool string) (Status, error)
	// Control launches, stops or restarts a browser.
	Control(ctx context.Context, do Action, w BrowserRef, o options.Options) error
	// Figures are the figures of the owner's browsers.
	Figures(ctx context.Context) []Figure
	// Away hibernates what no call uses, as the owner is gone. It reports whether calls use others.
	Away() (used bool)
	// Leave stops new leases. Once the owner's context has ended, the function that it returns ends the owner's
	// sessions, releases what it keeps and waits for work in progress. Call it before and again after the children
	// stop.
	Leave() (release func())
}

// use is how one owner uses browsers: what the Browsers of all kinds have, and their answers where a kind has
// no other.
type use struct {
	*book
	owner Owner
	ctx   context.Context // of the owner

	work sync.WaitGroup // begun under the lock of the book, while it is open

	// Under that lock, too:
	closed bool
	seen   map[string]string // the IDs of the browsers that results were from, by SeenKey; an ID may be ""
	lost   map[string]loss   // what is not told yet, by SeenKey; by "" with the next result

	unkepts map[string]unkept // by SeenKey
}

func (u *use) Targets(context.Context) ([]Browser, error)                         { return nil, nil }
func (u *use) Early() bool                                                        { return false }
func (u *use) Waiting(BrowserRef) func() (ahead int, waits bool)                  { return nil }
func (u *use) TryTake(BrowserRef) *Lease                                          { return nil }
func (u *use) Control(context.Context, Action, BrowserRef, options.Options) error { return errNotOurs }
func (u *use) Figures(context.Context) []Figure                                   { return nil }
func (u *use) Away() (used bool)                                                  { return false }

// Action is what can be done with a browser as a whole.
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

// watch returns a channel that is closed when a process has ended. A goroutine of
// the group watches it until the context ends.
func watch(ctx context.Context, group *sync.WaitGroup, pid int) <-chan struct{} {
	id, err := proc.Of(pid)
	died := make(chan struct{})
	if err != nil {
		close(died)
		return died
	}
	group.Go(func() {
		if id.Wait(ctx) == nil {
			close(died)
		}
	})
	return died
}

// ChildLaunched leaves the launch of the browser to the children, as DevTools
// cannot reach it. A person must know the note.
func ChildLaunched(browser string, headless bool, note string) Source {
	return byChild{browser: Browser{Type: browser, Headless: headless}, note: note}
}

type byChild struct {
	plain
	browser Browser
	note    string
}

func (n byChild) Kind() Kind   { return ByChild }
func (n byChild) Type() string { return n.browser.Type }
func (n byChild) Of(_ context.Context, o Owner, _ bool) Browsers {
	return &ownByChild{use{book: &book{}, owner: o}, n.browser, n.note}
}

// ownByChild is the browser that an owner's children launch.
type ownByChild struct {
	use
	browser Browser
	note    string
}

func (n *ownByChild) Target(context.Context) (Browser, error) { return n.browser, nil }
func (n *ownByChild) Queue(BrowserRef) tasks.Queue            { return tasks.Queue{Key: n.owner.Name(), Slots: 1} }
func (n *ownByChild) Leave() (release func())                 { return func() {} }
func (n *ownByChild) TryTake(BrowserRef) *Lease {
	return &Lease{Browser: n.browser, Release: func() {}}
}
func (n *ownByChild) Take(context.Context, BrowserRef) (*Lease, error) {
	return n.TryTake(BrowserRef{}), nil
}
func (n *ownByChild) Status(context.Context, string) (Status, error) {
	return Status{Notes: []string{n.note}}, nil
}

// BrowserRef is the browser that a call asks for.
type BrowserRef struct{ Pool, Instance, Session, State string }

// ErrEnded answers what is asked of an owner that has ended.
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
