package virtual

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"btools/lib/cdp/wire"
	"btools/lib/websocket"
)

// clientSet are the clients of a session, and the persons who look at it. The browser's lock guards all.
type clientSet struct {
	s       *Session
	all     map[*Client]bool
	seen    atomic.Int32 // number of persons
	in, out atomic.Int64 // bytes from and to clients that have disconnected
}

// Connect opens a connection to Chrome for a client: to the browser, or to the
// named target. Serve or Close the client.
func (s *Session) Connect(ctx context.Context, target string) (*Client, error) {
	return s.clients.connect(ctx, target, nil)
}

// connect opens a connection for a client, or for the person p.
func (c *clientSet) connect(ctx context.Context, target string, p *Person) (*Client, error) {
	if err := c.admit(p); err != nil {
		return nil, err
	}
	if target != "" && !c.s.Has(ctx, target) {
		return nil, errNoTarget
	}
	up, err := c.s.browser.upstream.Dial(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the browser: %w", err)
	}
	k := &Client{
		session: c.s, person: p, page: target, up: up, calls: newCalls(up),
	}
	k.turns.of, k.delivery.k = k, k
	k.sessions = cdpSessions{k: k, roots: map[string]*root{}, attached: map[string]*attachment{},
		requests: map[string][]*attachRequest{}, discover: map[string]filter{}}
	k.downloads = downloadEvents{k: k, wanted: map[string]bool{}}
	k.overrides = overrides{k: k, focusing: map[string]bool{}, metrics: map[string]json.RawMessage{}}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	if target == "" {
		k.sessions.root = newRoot("")
		k.sessions.roots[""] = k.sessions.root
	}
	return k, nil
}

// admit returns an error if no more clients, or persons, may connect.
func (c *clientSet) admit(p *Person) error {
	c.s.browser.mu.Lock()
	defer c.s.browser.mu.Unlock()
	persons := c.personsLocked()
	switch {
	case c.s.life.isOver():
		return c.s.Err()
	case p != nil && persons >= maxPersons:
		return errPersons
	case p == nil && len(c.all)-persons >= maxClients:
		return fmt.Errorf("the session already has %d clients, the maximum", maxClients)
	}
	return nil
}

// attach serves a person's WebSocket until it or the session ends, and returns the reason.
func (c *clientSet) attach(ctx context.Context, conn *websocket.Conn, p Person) error {
	k, err := c.connect(ctx, "", &p)
	if err != nil {
		conn.Close(websocket.GoingAway, err.Error())
		return err
	}
	c.seen.Add(1)
	defer c.seen.Add(-1)
	defer c.s.lock.lose(k)
	return k.Serve(conn)
}

// personsLocked returns how many persons look at the session.
func (c *clientSet) personsLocked() (n int) {
	for k := range c.all {
		if k.person != nil {
			n++
		}
	}
	return n
}

// each calls a function with each client, all at once, and returns when all calls have.
func (c *clientSet) each(do func(*Client)) {
	var all sync.WaitGroup
	for _, k := range c.every(false) {
		all.Go(func() { do(k) })
	}
	all.Wait()
}

// ErrMoves is why the clients of a session are disconnected that goes on elsewhere.
var ErrMoves = errors.New("the session moves to another host: connect again")

// Disconnect closes the connections of all clients, which may connect again.
func (s *Session) Disconnect(why error) { s.clients.each(func(k *Client) { k.disconnect(why) }) }

// every returns the clients, or the persons who look at the session.
func (c *clientSet) every(persons bool) (all []*Client) {
	c.s.browser.mu.Lock()
	defer c.s.browser.mu.Unlock()
	for k := range c.all {
		if persons == (k.person != nil) {
			all = append(all, k)
		}
	}
	return all
}

// tellControl tells persons who has control.
func (c *clientSet) tellControl() {
	c.tellPersons("Btools.control", func(k *Client) any { return c.s.lock.holding(k) })
}

// tellPersons sends an event to each person.
func (c *clientSet) tellPersons(method string, params func(*Client) any) {
	c.s.browser.mu.Lock()
	defer c.s.browser.mu.Unlock()
	for k := range c.all {
		if k.person != nil {
			k.toClient.Put(wire.Event("", method, params(k)))
		}
	}
}

// notifyLocked sends an event to the clients that discover targets of this type.
func (c *clientSet) notifyLocked(t *target, method string, params any) {
	for k := range c.all {
		for session, wanted := range k.sessions.discover {
			if wanted.matches(t.typ) {
				k.toClient.Put(wire.Event(session, method, params))
			}
		}
	}
}

// notifyChangeLocked notifies clients of a target whose info, as they see it, has changed.
func (c *clientSet) notifyChangeLocked(t *target) {
	info := string(t.visibleInfo())
	if info == t.lastShown {
		return
	}
	t.lastShown = info
	c.notifyLocked(t, "Target.targetInfoChanged", map[string]json.RawMessage{"targetInfo": json.RawMessage(info)})
}

// blockLocked adds the blockers of a new target: the clients that want to set
// it up, and that will see it directly or through its tab.
func (c *clientSet) blockLocked(t *target) {
	if (t.typ == "page" || c.s.emulates.isWorkerLocked(t)) && !c.s.life.isOver() && !t.prepared {
		t.pause.blockers[blocker{}] = true // see prepareLocked
	}
	if c.s.lock.hides.Load() { // it is set up when the person is not private any more
		return
	}
	for k := range c.all {
		for _, r := range k.sessions.roots {
			if r.wait && r.attaches(t) {
				t.pause.blockers[blocker{k, r}] = true
			} else if r.wait && t.typ == "page" && r.auto.matches("tab") {
				t.pause.blockers[blocker{client: k}] = true
			}
		}
	}
}

// autoAttachLocked attaches the clients with auto-attach to a target.
func (c *clientSet) autoAttachLocked(t *target) {
	for k := range c.all {
		for _, r := range k.sessions.roots {
			if r.attaches(t) {
				k.sessions.autoAttachLocked(r, t, func() {})
			}
		}
	}
}

func (c *clientSet) notifyDownloadLocked(method string, params json.RawMessage) {
	for k := range c.all {
		for session, wants := range k.downloads.wanted {
			if wants {
				k.downloads.putLocked(wire.Event(session, method, params))
			}
		}
	}
}
