package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// Joined configures a source of browsers that join by their extension.
type Joined struct {
	Hubs *keep.Keeper
	// As is the name of the default browser at the hub: its address is the same,
	// whichever browser that is.
	As string
	// Launched are the browsers that agents launch. They join the hub, and one is the default one if no other has
	// joined.
	Launched *instances.Set
}

// hubPatience is how long a call waits for a browser to join: hosts give up after
// a minute or less.
const hubPatience = 20 * time.Second

// hub holds a browser that has joined for the calls that name none, and others that calls name (instanceId), as long as
// some session has tabs in them.
type hub struct {
	fixed // for what no hub is asked
	service
	Joined
	src      *Source
	choosing chan struct{} // full while a named browser is claimed

	first wait.Starter[*claim] // of the default browser

	// Under the lock of the book:
	at     client.Proxy       // the last hub; its HTTPURL is "" before
	held   map[string]*claim  // by the ID that calls name; "": the default browser
	count  int                // browsers so far
	left   string             // why the last default browser left
	offers []string           // browsers that an agent has launched and nobody else claims, the last one first
	again  context.CancelFunc // ends the request for a default browser; nil: there is none
}

// claim is a browser that has joined and that is held.
type claim struct {
	id     string // that the hub knows it by
	at     *Lease
	record *record.Record
	used   map[string]bool // the names of the sessions of calls that name the browser
	free   func()          // ends the claim
}

// OfHub returns a source of browsers that have joined by their extension. Each host, and each session_id, has tabs of
// its own in them.
func OfHub(how Joined, idle time.Duration) *Source {
	h := &hub{Joined: how, src: &Source{Launched: how.Launched}, held: map[string]*claim{},
		choosing: make(chan struct{}, 1), fixed: fixed{notOurs: errNotOurs}}
	h.service.init(nil) // it has a connection for each claim
	h.first.Start = h.claimDefault
	h.first.Gone = func(c *claim) error {
		if wait.Closed(c.at.Died) {
			return errNotJoined
		}
		return nil
	}
	h.src.init(Hub, h, Sharing{Settings: settings.Settings{SessionIdle: idle}})
	how.Launched.Joined, how.Launched.Left = h.offer, h.withdraw
	return h.src
}

// offer makes a browser that an agent has launched the default one, unless there is one.
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

// change calls f with the lock.
func (h *hub) change(f func()) {
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	f()
}

// hubPause is the time until the next try after a hub has ended.
const hubPause = 200 * time.Millisecond

// claimDefault waits for a browser, the last one that an agent has launched if there is one, and holds it. The one
// after it is claimed as soon as it has left. Only an error that will come again is returned.
func (h *hub) claimDefault() (*claim, error) {
	for {
		at, release, err := h.Hubs.Use(h.ctx)
		if err != nil {
			return nil, err
		}
		ctx, again := context.WithCancel(h.ctx)
		params := api.HoldRequest{As: h.As, By: h.As}
		h.change(func() {
			if h.at, h.again = at, again; len(h.offers) > 0 {
				params.Instance = h.offers[0]
			}
		})
		c, err := h.hold(ctx, at, release, "", "", params)
		again()
		h.change(func() { h.again = nil })
		switch {
		case err == nil:
			h.do(func() {
				<-c.at.Died
				h.first.Get(h.ctx)
			})
			return c, nil
		case h.ctx.Err() != nil, errors.As(err, new(*control.Error)):
			return nil, err
		}
		select { // the hub has ended, or another browser is to be claimed
		case <-time.After(hubPause):
		case <-h.ctx.Done():
		}
	}
}

// hold claims a browser and returns the claim, which lasts until the browser has left or is freed. It releases the hub
// then. Calls name the browser by the key; "": it is the default one. A browser that comes back gets another ID, as it
// has lost its pages; the default one shares the ID of a named one.
func (h *hub) hold(ctx context.Context, at client.Proxy, release func(), key, session string,
	p api.HoldRequest) (*claim, error) {
	conn, err := at.Dial(ctx)
	if err != nil {
		release()
		return nil, err
	}
	var i record.Instance
	rec, err := api.Hold.Ask(ctx, conn, p)
	if err == nil {
		_, err = rec.Get("instance", &i)
	}
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	if err == nil && h.ctx.Err() != nil {
		err = ErrEnded
	}
	if err != nil {
		conn.Close()
		release()
		return nil, err
	}
	h.at = at
	b := h.browserAt(p.As)
	b.Instance = key
	if other := h.held[i.ID]; other != nil && !wait.Closed(other.at.Died) {
		b.ID = other.at.ID
	} else {
		h.count++
		b.ID = fmt.Sprintf("%s/%d", i.ID, h.count)
	}
	died := make(chan struct{})
	follow, free := context.WithCancel(h.ctx)
	c := &claim{id: i.ID, at: &Lease{Browser: b, Died: died, Release: func() {}, joined: true}, record: rec,
		used: map[string]bool{session: true}, free: free}
	if c.at.replaced = "the browser had left, and has joined again"; key == "" && h.left != "" {
		c.at.replaced = fmt.Sprintf("the browser had left (%s), and one has joined since", h.left)
	}
	h.held[key] = c
	h.work.Go(func() {
		left, err := api.Watch.Ask(follow, conn, api.WatchRequest{Of: api.Of{Instance: i.ID}})
		if err != nil {
			left.Ended = "its hub has ended"
		}
		conn.Close()
		release()
		h.change(func() {
			if h.held[key] == c {
				delete(h.held, key)
			}
			if key == "" {
				h.left = left.Ended
			}
		})
		close(died)
	})
	return c, nil
}

func (h *hub) browserAt(as string) Browser {
	at := h.at.HTTPURL + "/session/" + as
	return Browser{HTTPURL: at, WSURL: "ws" + strings.TrimPrefix(at, "http") + "/devtools/browser"}
}

func (h *hub) acquire(ctx context.Context, instance, session string) (*Lease, error) {
	if instance != "" {
		return h.choose(ctx, instance, session)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, hubPatience, errNotJoined)
	defer cancel()
	c, err := h.first.Get(ctx)
	switch {
	case errors.Is(err, errNotJoined):
		h.src.mu.Lock()
		defer h.src.mu.Unlock()
		return nil, h.missingLocked()
	case err != nil:
		return nil, err
	}
	return c.at, nil
}

// errNotJoined means that no browser has joined in time.
var errNotJoined = errors.New("no browser has joined in time")

// missingLocked returns the error that no browser has joined, with what to do about it.
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

func (h *hub) target(ctx context.Context) (Browser, error) {
	if h.last().HTTPURL == "" {
		at, release, err := h.Hubs.Use(ctx)
		if err != nil {
			return Browser{}, err
		}
		defer release()
		h.change(func() { h.at = at })
		h.do(func() { h.first.Get(h.ctx) }) // the first browser is claimed as soon as it has joined
	}
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	return h.browserAt(h.As), nil
}

func (h *hub) status(context.Context) (*record.Record, error) {
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	var missing error
	c := h.held[""]
	if c == nil {
		missing = h.missingLocked()
	}
	if h.at.HTTPURL == "" {
		return nil, missing
	}
	r, now := record.New(), api.ProxyStatus{State: "stopped", LastExit: h.left}
	if c != nil {
		r, now.State = c.record.Clone(), "ready"
	}
	r.MustSet("proxy", record.Proxy{Port: h.at.Port, HTTPURL: h.at.HTTPURL})
	r.MustSet("status", now)
	return r, missing
}

func (h *hub) newSession(context.Context, string, string) error { return errUsersLogins }

// errUsersLogins means that a browser has joined by its extension.
var errUsersLogins = errors.New("the logins of a browser that has joined by its extension are its user's, and " +
	"are not saved")

func (h *hub) SaveState(context.Context, Browser, api.StateRequest) (api.States, error) {
	return api.States{}, errUsersLogins
}

// list returns the sessions, those of the default browser first. Each has the ID of its browser.
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
	h.first.Refuse(ErrEnded)
	h.change(h.stop)
	h.first.Close(ErrEnded)
	h.service.close()
	h.Hubs.Close()
}
