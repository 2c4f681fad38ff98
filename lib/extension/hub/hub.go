// Package hub is where browsers join by the extension: each registers, gets an
// ID and a port, says hello on a WebSocket there, and then answers calls. What
// the calls mean, and the browser as a CDP endpoint, are the business of
// lib/extension/upstream.
package hub

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/extension"
	"btools/lib/guard"
	"btools/lib/history"
	"btools/lib/lazy"
	"btools/lib/record"
	"btools/lib/wait"
)

// Hub is a hub. Set its fields before use, and Close it.
type Hub struct {
	// Code is the pairing code, which the extensions know, too.
	Code extension.Code
	// Open says that extensions without it may join, too.
	Open bool
	// First and Last are the ports for instances, Host their loopback address.
	Host        string
	First, Last int
	// Version is what the hub says of itself.
	Version string
	// Joined, if not nil, is called for each connection of an instance, before
	// anything is read from it after the hello. It must not wait.
	Joined func(*Link)
	Log    *slog.Logger

	events history.Log[Event]
	limits limits // zero: the usual ones

	mu        sync.Mutex
	instances map[string]*Instance
	ports     map[int]bool
	last      int64 // milliseconds of the latest ID
	closed    bool
	changed   wait.Broadcast // of the instances, at a join or an end
	work      sync.WaitGroup
}

// limits are the times of the protocol.
type limits struct {
	hello   time.Duration // until an instance must have said hello
	call    time.Duration // for the answer to a call
	ping    time.Duration // between pings
	silence time.Duration // without an answer to a ping, until the instance counts as gone
}

var usual = limits{hello: 10 * time.Second, call: 30 * time.Second, ping: 20 * time.Second, silence: 45 * time.Second}

// Event is something that happened to an instance.
type Event struct {
	Number   int64       `json:"number"` // counts the hub's events from 1
	Time     record.Time `json:"time"`
	Event    string      `json:"event"` // "connected" or "disconnected"
	Instance string      `json:"instance"`
	Why      string      `json:"why,omitempty"` // it has disconnected
}

// Events returns the events after the given number, as history.Log.After does.
func (h *Hub) Events(ctx context.Context, after int64) ([]Event, error) {
	return h.events.After(ctx, after)
}

// Info describes an instance.
type Info struct {
	ID           string      `json:"id"`
	Port         int         `json:"port"`
	UserAgent    string      `json:"user_agent"`
	WindowID     int         `json:"window_id"`
	ConnectedAt  record.Time `json:"connected_at"`
	LastActivity record.Time `json:"last_activity"` // the latest call or event
	Tabs         int         `json:"tabs"`          // that clients may use
	// Launch is the mark of the program that launched the browser; "": none.
	Launch string `json:"-"`
}

// Instance is a registered browser. Its fields do not change.
type Instance struct {
	ID        string
	Port      int
	UserAgent string
	WindowID  int
	Launch    string

	hub      *Hub
	run      string // of the browser, which marks it
	key      string // the path of its WebSocket
	listener net.Listener
	server   *http.Server
	deadline *time.Timer // for the hello

	// Under the hub's lock:
	link  *Link // nil: it has not said hello
	since time.Time
	over  bool
	gone  chan struct{} // closed when it is over
	why   error
}

// Done returns a channel that is closed when the instance is gone; Err says why.
func (i *Instance) Done() <-chan struct{} { return i.gone }

// Err returns why the instance is gone; it is set once Done is closed.
func (i *Instance) Err() error { return i.why }

// Errors of instances. ErrDisconnected fails all calls of an instance that is
// gone.
var (
	ErrDisconnected = errors.New("INSTANCE_DISCONNECTED")
	ErrTimeout      = errors.New("Timeout")
	errReplaced     = errors.New("another connection of the same browser has taken its place")
	errNoHello      = errors.New("it did not say hello in time")
	errStopping     = errors.New("bproxy is stopping")
)

// Codes of refusals.
const (
	NoPort    = "no_port"
	NotPaired = "not_paired"
)

// UnknownInstance is the code with which a WebSocket is closed that names an
// unknown instance.
const UnknownInstance = 4001

// registration is the body of POST /register. Only userAgent and windowId are
// needed beside the token in the header Authorization; the extension sends a
// proof instead of the token.
type registration struct {
	UserAgent  string `json:"userAgent"`
	WindowID   int    `json:"windowId"`
	InstanceID string `json:"instanceId"` // that it had before
	Run        string `json:"run"`        // marks the run of the browser
	Launch     string `json:"launch"`
	Challenge  string `json:"challenge"` // Unix milliseconds, a dot, a nonce
	Proof      string `json:"proof"`
}

// Place is the answer to a registration.
type Place struct {
	InstanceID   string `json:"instanceId"`
	Port         int    `json:"port"`
	WebSocketURL string `json:"websocketUrl"`
	Proof        string `json:"proof,omitempty"`
}

const (
	maxRegistration = 16 << 10 // bytes
	maxSkew         = 2 * time.Minute
)

// ServeRegister answers POST /register. The caller has checked that the request
// comes from this machine, and answers with the error.
func (h *Hub) ServeRegister(w http.ResponseWriter, r *http.Request) error {
	place, no := h.register(w, r)
	if no != nil {
		return no
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Cache-Control", "no-store")
	json.NewEncoder(w).Encode(place)
	return nil
}

func (h *Hub) register(w http.ResponseWriter, r *http.Request) (*Place, *guard.Refusal) {
	if r.Method != http.MethodPost {
		return nil, guard.Refuse(http.StatusMethodNotAllowed, control.BadRequest,
			"/register must be requested with POST")
	}
	var reg registration
	body := http.MaxBytesReader(w, r.Body, maxRegistration)
	if err := json.NewDecoder(body).Decode(&reg); err != nil {
		return nil, guard.Refuse(http.StatusBadRequest, control.BadRequest, "the body is not a registration: %v", err)
	}
	switch {
	case h.IsOpenFor(r) || h.knowsCode(r, reg):
	case h.Open:
		return nil, guard.Refuse(http.StatusForbidden, NotPaired, "without the pairing code only an extension joins: "+
			"the request needs one Origin, which begins with "+anyExtension)
	default:
		return nil, guard.Refuse(http.StatusForbidden, NotPaired, "the pairing code is not the one of this hub")
	}
	i, no := h.admit(reg)
	if no != nil {
		return nil, no
	}
	p := &Place{InstanceID: i.ID, Port: i.Port,
		WebSocketURL: "ws://" + net.JoinHostPort(h.Host, strconv.Itoa(i.Port)) + i.key}
	if reg.Challenge != "" {
		// With the address: else whoever relays the registration could change it.
		p.Proof = h.Code.Prove("hub " + reg.Challenge + " " + p.WebSocketURL)
	}
	return p, nil
}

// anyExtension begins the Origin of each extension of a browser based on Chromium.
const anyExtension = "chrome-extension://"

// IsOpenFor reports whether a request is an extension's that needs no code.
func (h *Hub) IsOpenFor(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	return h.Open && len(origins) == 1 && strings.HasPrefix(origins[0], anyExtension)
}

// knowsCode reports whether a request proves that it knows the pairing code, or
// has the code itself.
func (h *Hub) knowsCode(r *http.Request, reg registration) bool {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		code, _ := extension.ReadCode(token)
		return h.Code.Verify("", code.Prove(""))
	}
	ms, _, _ := strings.Cut(reg.Challenge, ".")
	at, err := strconv.ParseInt(ms, 10, 64)
	return err == nil && time.Since(time.UnixMilli(at)).Abs() < maxSkew &&
		h.Code.Verify("register "+reg.Challenge, reg.Proof)
}

// validID is the form of an instance's ID.
var validID = lazy.Regexp(`^inst_[0-9]{10,16}_[0-9a-z]{6}$`)

// admit gives a browser its instance: the one that it had, if that is free or
// its own, else a new one.
func (h *Hub) admit(reg registration) (*Instance, *guard.Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, guard.Refuse(http.StatusServiceUnavailable, control.TryAgain, "%v", errStopping)
	}
	id := ""
	if validID().MatchString(reg.InstanceID) {
		id = reg.InstanceID
		if old := h.instances[id]; old != nil && reg.Run != "" && old.run == reg.Run {
			if old.Launch == reg.Launch {
				return old, nil
			}
			h.dropLocked(old, errReplaced) // the browser has learnt who has launched it
		} else if old != nil { // a copy of the profile
			id = ""
		}
	}
	if id == "" {
		id = h.newIDLocked()
	}
	l, port, err := h.listenLocked()
	if err != nil {
		return nil, guard.Refuse(http.StatusServiceUnavailable, NoPort, "%v", err)
	}
	i := &Instance{ID: id, Port: port, UserAgent: reg.UserAgent, WindowID: reg.WindowID, Launch: reg.Launch,
		hub: h, run: reg.Run, key: "/" + rand.Text(), listener: l, gone: make(chan struct{})}
	if h.instances == nil {
		h.instances = map[string]*Instance{}
	}
	h.instances[id] = i
	i.deadline = time.AfterFunc(h.times().hello, func() { h.dropSilent(i) })
	i.server = &http.Server{Handler: http.HandlerFunc(i.serveWebSocket), ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(h.Log.Handler(), slog.LevelDebug)}
	h.work.Go(func() { i.server.Serve(l) })
	return i, nil
}

// newIDLocked returns an ID that no instance has.
func (h *Hub) newIDLocked() string {
	h.last = max(h.last+1, time.Now().UnixMilli())
	return fmt.Sprintf("inst_%d_%s", h.last, strings.ToLower(rand.Text()[:6]))
}

// listenLocked listens on the lowest free port.
func (h *Hub) listenLocked() (net.Listener, int, error) {
	if h.ports == nil {
		h.ports = map[int]bool{}
	}
	for port := h.First; port <= h.Last; port++ {
		if h.ports[port] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(h.Host, strconv.Itoa(port)))
		if err != nil {
			continue // another program has it
		}
		h.ports[port] = true
		return l, port, nil
	}
	return nil, 0, fmt.Errorf("all ports from %d to %d are in use", h.First, h.Last)
}

// dropSilent ends an instance that has not said hello.
func (h *Hub) dropSilent(i *Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !i.over && i.link == nil {
		h.dropLocked(i, errNoHello)
	}
}

// drop ends the instance of a connection that is over, unless another one has
// taken its place.
func (h *Hub) drop(l *Link, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := l.Instance; i.link == l && !i.over {
		h.dropLocked(i, why) // it must not be there any more for who comes again when its calls fail
	} else {
		l.stop(why)
	}
}

func (h *Hub) dropLocked(i *Instance, why error) {
	i.over, i.why = true, why
	i.deadline.Stop()
	delete(h.instances, i.ID)
	i.listener.Close() // the port is free before anybody learns that it is gone
	delete(h.ports, i.Port)
	if i.link != nil {
		i.link.stop(why)
		h.tellLocked("disconnected", i, why)
	}
	close(i.gone)
	h.changed.Wake()
	h.work.Go(func() { i.server.Close() })
}

func (h *Hub) tellLocked(event string, i *Instance, why error) {
	e := Event{Event: event, Instance: i.ID}
	args := []any{"instance", i.ID, "port", i.Port}
	if why != nil {
		e.Why = why.Error()
		args = append(args, "why", e.Why)
	}
	h.events.Add(func(number int64, at record.Time) Event {
		e.Number, e.Time = number, at
		return e
	})
	h.Log.Info("a browser has "+event, args...)
}

func (h *Hub) times() limits {
	if h.limits == (limits{}) {
		return usual
	}
	return h.limits
}

// connectedLocked returns the connected instances, the longest connected first.
func (h *Hub) connectedLocked() (all []*Instance) {
	for _, i := range h.instances {
		if i.link != nil {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b *Instance) int {
		if c := a.since.Compare(b.since); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

// Await returns the link of the first connected instance for which wanted is
// true, and waits for one until the context ends. wanted must not wait.
func (h *Hub) Await(ctx context.Context, wanted func(Info) bool) (*Link, error) {
	return h.await(ctx, func() (*Link, error) { return h.firstLocked(wanted), nil })
}

// firstLocked returns the link of the first connected instance for which wanted
// is true; nil: there is none.
func (h *Hub) firstLocked(wanted func(Info) bool) *Link {
	for _, i := range h.connectedLocked() {
		if wanted(i.link.infoLocked()) {
			return i.link
		}
	}
	return nil
}

// await calls find, with the lock, at each change of the instances, until it
// returns a link or an error, or the context ends.
func (h *Hub) await(ctx context.Context, find func() (*Link, error)) (*Link, error) {
	for {
		h.mu.Lock()
		var l *Link
		err := context.Cause(ctx)
		if h.closed {
			err = errStopping
		} else if err == nil {
			l, err = find()
		}
		changed := h.changed.Next()
		h.mu.Unlock()
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Close ends all instances and waits for them.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for _, i := range h.instances {
		h.dropLocked(i, errStopping)
	}
	h.changed.Wake()
	h.mu.Unlock()
	h.work.Wait()
}
