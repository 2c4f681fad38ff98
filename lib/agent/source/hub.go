package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/agent/instances"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/extension/keep"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/wait"
)

// Joined says how a browser that joins by its extension is used in the place of
// one that is launched.
type Joined struct {
	Hubs *keep.Keeper
	// As is the name by which the hub knows the browser that bmcp holds: its
	// address stays the same, whichever browser that is.
	As string
	// Launched are the browsers that agents launch. They join the hub, and are used if no other has.
	Launched *instances.Set
}

// hubPatience is how long a call waits for a browser to join: hosts give up after
// a minute or less.
const hubPatience = 20 * time.Second

// hub holds one browser at a time of those that have joined a hub.
type hub struct {
	fixed // for what no hub is asked
	Joined
	src  *Source
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	// Under the lock of the book:
	running bool         // follow runs
	at      client.Proxy // the last one; its HTTPURL is "" before
	cur     *Lease       // nil: there is no browser
	id      string       // that the hub knows it by
	record  *record.Record
	count   int    // browsers so far
	left    string // why the last one left
	// named are the browsers that calls have named, by ID. choosing is full while one is
	// claimed.
	named    map[string]*namedBrowser
	choosing chan struct{}
	// offers are the browsers that an agent has launched, the last one first. Nobody
	// else claims them.
	offers  []string
	again   context.CancelFunc // ends the claim that waits; nil: none does
	err     error              // why follow has ended
	changed wait.Broadcast
}

// OfHub is a source of one browser at a time, which has joined by its extension. Each host, and each
// session_id, has tabs of its own in it.
func OfHub(how Joined, idle time.Duration) *Source {
	h := &hub{Joined: how, src: &Source{Launched: how.Launched}, named: map[string]*namedBrowser{},
		choosing: make(chan struct{}, 1), fixed: fixed{notOurs: errNotOurs}}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.src.init(Hub, h, Sharing{Settings: settings.Settings{SessionIdle: idle}})
	how.Launched.Joined, how.Launched.Left = h.offer, h.withdraw
	return h.src
}

// offer has a browser used that an agent has launched, unless there is one.
func (h *hub) offer(id string) {
	h.reoffer(func() { h.offers = append([]string{id}, h.offers...) })
}

// withdraw ends the offer of a browser that has ended.
func (h *hub) withdraw(id string) {
	h.reoffer(func() { h.offers = slices.DeleteFunc(h.offers, func(o string) bool { return o == id }) })
}

func (h *hub) reoffer(change func()) {
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	if change(); h.again != nil {
		h.again()
	}
}

// claim waits for a browser, the last one that an agent has launched if there is one.
func (h *hub) claim(c *control.Client) (*record.Record, string, error) {
	ctx, again := context.WithCancel(h.ctx)
	defer again()
	params := api.HoldRequest{As: h.As, By: h.As}
	h.src.mu.Lock()
	if len(h.offers) > 0 {
		params.Instance = h.offers[0]
	}
	h.again = again
	h.src.mu.Unlock()
	r, id, err := claim(ctx, c, params)
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	h.again = nil
	return r, id, err
}

// claim returns the record of the browser that it has claimed, and its ID.
func claim(ctx context.Context, c *control.Client, params api.HoldRequest) (*record.Record, string, error) {
	var i record.Instance
	r, err := api.Hold.Ask(ctx, c, params)
	if err == nil {
		_, err = r.Get("instance", &i)
	}
	return r, i.ID, err
}

// leaseLocked is a browser that was claimed. One that comes back has another ID: it has lost its pages. One that a call
// has named is the same for the calls that name none.
func (h *hub) leaseLocked(as, id string, died chan struct{}) *Lease {
	b := h.browserAt(as)
	if n := h.named[id]; n != nil && !wait.Closed(n.at.Died) {
		b.ID = n.at.ID
	} else {
		h.count++
		b.ID = fmt.Sprintf("%s/%d", id, h.count)
	}
	return &Lease{Browser: b, Died: died, Release: func() {}, joined: true}
}

// change changes what is known under the lock, and wakes those that wait.
func (h *hub) change(f func()) {
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	f()
	h.changed.Wake()
}

// follow holds one browser after the other.
func (h *hub) follow() {
	for {
		err := h.followOne()
		if h.ctx.Err() != nil {
			err = context.Cause(h.ctx)
		}
		if err != nil {
			h.change(func() { h.running, h.err = false, err })
			return
		}
	}
}

// hubPause is the time until the next try after a hub has ended.
const hubPause = 200 * time.Millisecond

// followOne holds a browser until it has left. Only an error that will come again
// is returned.
func (h *hub) followOne() error {
	at, release, err := h.Hubs.Use(h.ctx)
	if err != nil {
		return err
	}
	defer release()
	c, err := at.Dial(h.ctx)
	if err == nil {
		defer c.Close() // which ends the claim
		h.change(func() { h.at = at })
		r, id, failed := h.claim(c)
		if err = failed; err == nil {
			h.hold(c, r, id)
			return nil
		}
	}
	if errors.As(err, new(*control.Error)) {
		return err
	}
	select { // the hub has ended, or another browser is to be claimed
	case <-time.After(hubPause):
	case <-h.ctx.Done():
	}
	return nil
}

// hold makes a browser the current one until it has left.
func (h *hub) hold(c *control.Client, r *record.Record, id string) {
	died := make(chan struct{})
	h.change(func() {
		h.cur, h.record, h.id = h.leaseLocked(h.As, id, died), r, id
		h.cur.ended = h.left
	})
	left, err := api.Watch.Ask(h.ctx, c, api.WatchRequest{Of: api.Of{Instance: id}})
	if err != nil {
		left.Ended = "its hub has ended"
	}
	h.change(func() { h.cur, h.record, h.id, h.left = nil, nil, "", left.Ended })
	close(died)
}

func (h *hub) browserAt(as string) Browser {
	at := h.at.HTTPURL + "/session/" + as
	return Browser{HTTPURL: at, WSURL: "ws" + strings.TrimPrefix(at, "http") + "/devtools/browser"}
}

// await waits until done returns true, which it calls with the lock, or no browser
// can join.
func (h *hub) await(ctx context.Context, done func() bool) error {
	for started := false; ; {
		h.src.mu.Lock()
		if done() {
			h.src.mu.Unlock()
			return nil
		}
		if !h.running && started {
			defer h.src.mu.Unlock()
			return h.err
		}
		if !h.running && h.ctx.Err() == nil {
			h.running, started = true, true
			h.work.Go(h.follow)
		}
		changed := h.changed.Next()
		h.src.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.ctx.Done():
			return ErrEnded
		}
	}
}

func (h *hub) acquire(ctx context.Context, instance, session string) (at *Lease, err error) {
	if instance != "" {
		return h.choose(ctx, instance, session)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, hubPatience, errNotJoined)
	defer cancel()
	err = h.await(ctx, func() bool { at = h.cur; return at != nil })
	if errors.Is(err, errNotJoined) {
		h.src.mu.Lock()
		defer h.src.mu.Unlock()
		err = h.missingLocked()
	}
	return at, err
}

// errNotJoined means that no browser has joined in time.
var errNotJoined = errors.New("no browser has joined in time")

// missingLocked says that there is no browser, and what to do about it.
func (h *hub) missingLocked() error {
	what := "No browser has joined by its extension"
	if h.left != "" {
		what = fmt.Sprintf("The browser has left (%s), and none has joined since", h.left)
	}
	code := ""
	if h.at.PairingFile != "" {
		code = ", which is in " + h.at.PairingFile
	}
	return errors.New(what + `. Ask the user to open the browser that has the btools extension, and to look at the ` +
		`extension's button. If no browser has it yet: "bproxy extension DIR" writes it to a directory, which is ` +
		`loaded unpacked at chrome://extensions; a click on its button asks for the pairing code` + code +
		`. Without a person, browser_instance launches a browser.`)
}

func (h *hub) target(ctx context.Context) (b Browser, err error) {
	err = h.await(ctx, func() bool {
		b = h.browserAt(h.As)
		return h.at.HTTPURL != ""
	})
	return b, err
}

func (h *hub) status(context.Context) (*record.Record, error) {
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	var missing error
	if h.cur == nil {
		missing = h.missingLocked()
	}
	if h.at.HTTPURL == "" {
		return nil, missing
	}
	r, now := record.New(), api.ProxyStatus{State: "stopped", LastExit: h.left}
	if h.record != nil {
		r, now.State = h.record.Clone(), "ready"
	}
	r.MustSet("proxy", record.Proxy{Port: h.at.Port, HTTPURL: h.at.HTTPURL})
	r.MustSet("status", now)
	return r, missing
}

func (h *hub) newSession(context.Context, string, string) error { return errUsersLogins }

// list returns the sessions of the browser that calls use which name none first. Each has the ID of its browser.
func (h *hub) list(ctx context.Context) (all []sessionStatus) {
	var others []sessionStatus
	ctx, cancel := context.WithTimeout(ctx, endBound)
	defer cancel()
	for _, s := range sessionsAt(ctx, h.last(), api.Of{All: true}) {
		_, below, _ := strings.Cut(s.HTTPURL, "/session/")
		s.instance, _, _ = strings.Cut(below, "/")
		if h.instanceOf(s.instance) == "" {
			all = append(all, s)
		} else {
			others = append(others, s)
		}
	}
	return append(all, others...)
}

// last returns the last hub, which may have ended.
func (h *hub) last() client.Proxy {
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	return h.at
}

func (h *hub) close() {
	h.Launched.Close()
	h.src.mu.Lock()
	h.stop()
	h.src.mu.Unlock()
	h.work.Wait()
	h.Hubs.Close()
}
