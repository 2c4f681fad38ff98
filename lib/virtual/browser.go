// Package virtual shows one Chrome as many browsers. A Session has browser contexts of its own. Its clients, which
// speak plain CDP, see these contexts and nothing else of the browser.
//
// Three kinds of connections lead to Chrome. The watcher, one per browser, is the only one with auto-attach. It pauses
// new targets until their clients have set them up. The connection of a session owns its contexts and the state that
// Chrome keeps per connection (permissions, downloads): all of it ends with the connection, however that ends. The
// connection of a client carries its own traffic, which is relayed unchanged, with the ids of the client. The table of
// lib/virtual/policy says which commands pass.
//
// The isolation is against accidents and curious clients. It does not stop a page that breaks out of its renderer,
// because Chrome's other processes are shared.
package virtual

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
	"btools/lib/wait"
	"btools/lib/websocket"
)

// Browser is one Chrome that sessions share.
type Browser struct {
	upstream       Upstream
	log            *slog.Logger
	stall          time.Duration
	commit         time.Duration    // see defaultCommit
	unfinished     websocket.Budget // of the messages that clients are sending
	watcher        *link
	opening        sync.Mutex      // held while more of them are opened
	version        json.RawMessage // the answer to Browser.getVersion
	defaultContext string
	// tabsAreMarked says that tabs have embedderData; a tab without it belongs
	// to Chrome's own user interface. chrome-headless-shell has none.
	tabsAreMarked bool
	startSlots    chan struct{}                  // holds one element for each session that starts
	lastActivity  atomic.Int64                   // when Chrome last sent anything, in Unix nanoseconds
	own           atomic.Pointer[netip.AddrPort] // its debugging port; nil: it has none that is known
	here          sync.Once                      // guards isHere, which says that it listens on this machine
	isHere        bool

	mu       sync.Mutex // also guards sessions and clients; nothing waits while holding it
	targets  map[string]*target
	contexts map[string]*Session
	sessions map[*Session]bool
	disowned map[string]bool // IDs of pages that are not their clients'
	later    []postponed     // see hidden.go
	more     []*link         // watchers beside the first: see pause.go
	gone     []*target       // the latest that were destroyed, for downloads that they began
	created  int             // number of targets so far
	over     bool
	used     time.Time // when a session that has ended was used last

	work sync.WaitGroup // of sessions; none is added after over
}

// target is a target of a session.
type target struct {
	id          string
	seq         int // in the order of their creation
	typ         string
	context     string
	session     *Session
	own         string          // the session's own CDP session with it; "": there is none
	info        json.RawMessage // Chrome's latest
	lastShown   string          // the info that clients were sent last
	opens       string          // the URL for /json/new, which Chrome's headless shell does not tell at once
	attachments int             // of clients
	used        atomic.Int64    // when a client last used it, in Unix nanoseconds

	pause     *pause         // nil: it runs
	watched   bool           // the watcher has attached to it, which may be after it is known
	unblocked wait.Broadcast // a blocker is gone
	prepared  bool           // the session has set it up
	ready     chan struct{}  // of a page: closed when it is prepared

	restoring *Tab          // what it is to show as soon as its server answers; nil: it has shown it
	reloader  string        // the script that completes that; "": none
	scrolled  chan struct{} // closed when it is scrolled as it was, or will not be; nil: it was not scrolled

	tracked string // the origin whose databases Chrome reports
	here    here   // its sessionStorage, of a session that is kept
	scroll  scroll // its scroll positions, as they were known last

	needsFocus bool          // it gets the focus with its first document
	closing    bool          // it is being closed to keep the limit of tabs
	gone       chan struct{} // closed when Chrome has destroyed it
	throttled  bool          // it is hidden, because the session is not used
	frozen     bool          // by a client
	crashed    bool          // its renderer is gone, or is crashing on command

	dialogs map[told]json.RawMessage // the event of the JavaScript dialog that is open, by who was told of it
	leaves  bool                     // it was to go elsewhere while one was open
	private bool                     // it was there while a person was private
}

// Open connects to the Chrome whose browser WebSocket has this URL. All clients share one
// WebSocket: only so can they be given the CDP sessions of watchers, see pause.go.
func Open(ctx context.Context, wsURL string, log *slog.Logger) (*Browser, error) {
	p, err := dialPort(ctx, wsURL)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the browser: %w", err)
	}
	b, err := OpenOn(ctx, p, log)
	if err != nil {
		p.Close()
	}
	return b, err
}

// OpenOn connects to a browser.
func OpenOn(ctx context.Context, up Upstream, log *slog.Logger) (*Browser, error) {
	b := &Browser{
		upstream: up, log: log, stall: defaultStall, commit: defaultCommit,
		unfinished: websocket.Budget{Max: maxUnfinished}, startSlots: make(chan struct{}, maxStarting),
		targets: map[string]*target{}, disowned: map[string]bool{}, contexts: map[string]*Session{},
		sessions: map[*Session]bool{},
	}
	b.Refuse(up.Addr())
	w, err := b.dial(ctx, func(method, session string, params json.RawMessage) {
		b.event(nil, method, session, params)
	})
	if err != nil {
		return nil, err
	}
	b.watcher = w
	if err := b.watch(ctx); err != nil {
		w.close()
		return nil, err
	}
	w.work.Go(func() {
		<-w.done
		b.end()
		if p, ok := up.(*port); ok {
			p.Close()
		}
	})
	return b, nil
}

// watch subscribes the watcher to all targets.
func (b *Browser) watch(ctx context.Context) error {
	version, err := b.watcher.Call(ctx, "", "Browser.getVersion", nil)
	if err != nil {
		return fmt.Errorf("cannot ask the browser for its version: %w", err)
	}
	b.version = version
	product := jsonrpc.GetString(version, "product")
	b.tabsAreMarked = !strings.HasPrefix(product, "HeadlessChrome/")
	contexts, err := b.watcher.Call(ctx, "", "Target.getBrowserContexts", nil)
	if err != nil {
		return fmt.Errorf("cannot ask the browser for its contexts: %w", err)
	}
	b.defaultContext = jsonrpc.GetString(contexts, "defaultBrowserContextId")
	for _, c := range []struct {
		method string
		params map[string]any
	}{
		{"Target.setDiscoverTargets", map[string]any{"discover": true, "filter": []map[string]any{{}}}},
		{"Target.setAutoAttach", autoAttach},
	} {
		if _, err := b.watcher.Call(ctx, "", c.method, c.params); err != nil {
			return fmt.Errorf("cannot watch the browser's targets: %s: %w", c.method, err)
		}
	}
	return nil
}

// maxStarting is how many sessions start at the same time. Each opens a window, which takes Chrome's main thread some
// 50 ms: with 50 at once on two busy processors, Chrome did not answer for seconds.
const maxStarting = 4

// dial opens a link to the browser.
func (b *Browser) dial(ctx context.Context, tell eventHandler) (*link, error) {
	return dialLink(ctx, b.upstream, tell, b.noteActivity)
}

// noteActivity notes that Chrome has sent a message.
func (b *Browser) noteActivity() { b.lastActivity.Store(time.Now().UnixNano()) }

// LastActivity returns when Chrome last sent anything to a session or its clients. A Chrome that sends messages is
// busy, not hung, even if it is slow to answer something else.
func (b *Browser) LastActivity() time.Time { return time.Unix(0, b.lastActivity.Load()) }

// Done returns a channel that is closed when the browser, or the connection to it, has ended.
func (b *Browser) Done() <-chan struct{} { return b.watcher.done }

// Close ends all sessions and leaves the browser running.
func (b *Browser) Close() { b.watcher.close() }

// Refuse makes sessions refuse to open the address of Chrome's own debugging port, a
// host:port: a page there controls the whole browser. A page may go there by itself.
func (b *Browser) Refuse(addr string) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return
	}
	own, err := netip.ParseAddrPort(addr)
	if err != nil { // it has a name, and all names are refused
		n, _ := strconv.ParseUint(port, 10, 16)
		own = netip.AddrPortFrom(netip.IPv6Loopback(), uint16(n))
	}
	b.own.Store(&own)
}

// CheckURL returns an error if sessions may not open an address.
func (b *Browser) CheckURL(url string) error {
	if own := b.own.Load(); own != nil && policy.LeadsTo(url, own.Addr(), own.Port()) {
		return fmt.Errorf("cannot open the browser's own debugging port (%d) in a shared browser", own.Port())
	}
	return policy.URL(url)
}

// checkAddress refuses a command that opens the browser's own debugging port.
func (b *Browser) checkAddress(c policy.Command) *policy.Error {
	if own := b.own.Load(); own == nil || !policy.LeadsTo(policy.Address(c), own.Addr(), own.Port()) {
		return nil
	}
	return jsonrpc.Errorf(policy.ServerError, "%v", b.CheckURL(policy.Address(c)))
}

// Version returns Chrome's answer to Browser.getVersion.
func (b *Browser) Version() json.RawMessage { return b.version }

// Addr returns the host:port of Chrome's endpoint; "": there is none.
func (b *Browser) Addr() string { return b.upstream.Addr() }

// end ends all sessions after the browser has ended.
func (b *Browser) end() {
	b.mu.Lock()
	b.over = true
	for s := range b.sessions {
		s.stopLocked(b.watcher.why)
	}
	more := b.more
	b.mu.Unlock()
	b.work.Wait()
	for _, l := range more {
		l.close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.sessions)
	clear(b.contexts)
	clear(b.targets)
}

// errEnded returns the error for a connection to the browser that has failed.
// It has the reason that the browser gave, if any.
func errEnded(err error) error {
	var closed *websocket.CloseError
	switch {
	case !errors.As(err, &closed) || closed.Reason == "":
		return ErrBrowserEnded
	case closed.Code == websocket.PolicyViolation, closed.Code == websocket.TooBig: // it was one client's fault
		return errors.New(closed.Reason)
	}
	return fmt.Errorf("%w: %s", ErrBrowserEnded, closed.Reason)
}

// Why sessions end.
var (
	ErrBrowserEnded = errors.New("the browser has ended")
	ErrEnded        = errors.New("the session has ended")
	ErrClosed       = errors.New("a client has closed the session's browser")
)

// sync returns when all events that Chrome has sent so far have been handled.
func (b *Browser) sync(ctx context.Context) error {
	_, err := b.watcher.Call(ctx, "", "Browser.getVersion", nil)
	return err
}

// event handles an event of a watcher; nil: of the first one.
func (b *Browser) event(from *link, method, session string, params json.RawMessage) {
	if session != "" {
		return // of a target that it has paused
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if from == nil {
		from = b.watcher
	}
	if !b.postponeLocked(from, method, params) {
		b.eventLocked(from, method, params)
	}
}

func (b *Browser) eventLocked(from *link, method string, params json.RawMessage) {
	switch method {
	case "Target.targetCreated", "Target.targetInfoChanged":
		b.updateTargetLocked(jsonrpc.Get(params, "targetInfo"))
	case "Target.targetDestroyed":
		b.targetDestroyedLocked(jsonrpc.GetString(params, "targetId"))
	case "Target.targetCrashed":
		if t := b.targets[jsonrpc.GetString(params, "targetId")]; t != nil {
			t.crashed = true
			t.session.clients.notifyLocked(t, "Target.targetCrashed", params)
		}
	case "Target.attachedToTarget":
		b.targetAttachedLocked(from, params)
	case "Target.detachedFromTarget":
		if t := b.targets[jsonrpc.GetString(params, "targetId")]; t != nil {
			t.heldEndedLocked(jsonrpc.GetString(params, "sessionId"))
		}
	}
}

// updateTargetLocked stores the current info of a target. It returns the target, nil if no session sees it.
func (b *Browser) updateTargetLocked(info json.RawMessage) *target {
	id := jsonrpc.GetString(info, "targetId")
	if t := b.targets[id]; t != nil {
		navigated := string(jsonrpc.Get(info, "url")) != string(jsonrpc.Get(t.info, "url"))
		t.info = info
		if navigated {
			t.crashed, t.leaves = false, false // it has a document again
			t.session.login.visitedLocked(t)
			t.session.emulates.claimAllLocked(t)
		}
		t.session.pages.focusLocked(t)
		t.session.clients.notifyChangeLocked(t)
		return t
	}
	s := b.ownerLocked(info)
	if s == nil {
		return nil
	}
	b.created++
	t := &target{
		id: id, seq: b.created, typ: jsonrpc.GetString(info, "type"),
		context: jsonrpc.GetString(info, "browserContextId"),
		session: s, info: info, gone: make(chan struct{}),
	}
	b.targets[id] = t
	s.pages.addLocked(t)
	return t
}

// ownerLocked returns the session that sees a target; nil: none does.
func (b *Browser) ownerLocked(info json.RawMessage) *Session {
	typ := jsonrpc.GetString(info, "type")
	ofItsOwn := typ == "tab" && b.tabsAreMarked && jsonrpc.Get(info, "embedderData") == nil
	if !visibleTypes[typ] || ofItsOwn || b.disowned[jsonrpc.GetString(info, "targetId")] {
		return nil
	}
	return b.contexts[jsonrpc.GetString(info, "browserContextId")]
}

// forgetContextLocked forgets a disposed context once its last target is gone.
func (b *Browser) forgetContextLocked(context string) {
	for _, t := range b.targets {
		if t.context == context {
			return
		}
	}
	delete(b.contexts, context)
}

func (b *Browser) targetDestroyedLocked(id string) {
	delete(b.disowned, id)
	if t := b.targets[id]; t != nil {
		b.removeLocked(t)
	}
}

// removeLocked removes a target from its session.
func (b *Browser) removeLocked(t *target) {
	delete(b.targets, t.id)
	close(t.gone)
	if b.gone = append(b.gone, t); len(b.gone) > maxGone {
		b.gone = slices.Delete(b.gone, 0, 1)
	}
	t.session.pages.removeLocked(t)
}

// maxGone is how many destroyed targets are remembered. The tab of a download
// closes when that begins, and another connection reports it.
const maxGone = 64

// starterLocked returns the target whose main frame this is, or was until just now; nil: none is known.
func (b *Browser) starterLocked(frame string) *target {
	if t := b.targets[frame]; t != nil {
		return t
	}
	for _, t := range slices.Backward(b.gone) {
		if t.id == frame {
			return t
		}
	}
	return nil
}
