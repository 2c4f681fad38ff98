package proxy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/extension"
	"btools/lib/extension/hub"
	"btools/lib/extension/upstream"
	"btools/lib/fleet"
	"btools/lib/fleet/supply"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/settings"
	"btools/lib/virtual"
	"btools/lib/wait"
)

// Hub is a port for browsers that join by the extension: at /register they do so, and below /session/INSTANCE each is
// what a Proxy with Sessions is at its root. Set its fields before Start, and Close it.
type Hub struct {
	Join *hub.Hub // where browsers join
	// Front serves the port: the caller sets its Guard and its Limit. Registrations have
	// the pairing code, and a guard of their own.
	Front front.Front
	// AllTabs shows clients the tabs of the user, too: all clients of a browser
	// have the same tabs then.
	AllTabs bool
	// Group is the name of the groups of tabs that clients open.
	Group string
	// Settings are those of the sessions of each browser. MakeDir, if not nil, returns the directory for their
	// downloads.
	Settings settings.Settings
	MakeDir  func(context.Context) (string, error)
	Log      *slog.Logger

	mu      sync.Mutex
	joined  map[string]*Joined // by the instance's ID
	order   int                // of the last one
	holds   holds
	closed  bool
	running sync.WaitGroup
}

// allTabs is the name of the session that has all tabs.
const allTabs = "all"

// Joined is a browser that has joined, by one connection.
type Joined struct {
	*hub.Link
	Sessions *fleet.Fleet

	upstream *upstream.Browser
	order    int
	opened   *wait.Starter[*virtual.Browser] // the browser for sessions
	*seat
}

// Start connects the port with the place where browsers join.
func (h *Hub) Start() {
	h.joined, h.holds.named = map[string]*Joined{}, map[string]*named{}
	h.Join.Joined = h.add
	h.Front.Log = h.Log
	h.Front.Routes = []front.Route{
		{Path: "/register", Guard: h.registrar, Answer: func(w *front.Response, r *http.Request) error {
			return h.Join.ServeRegister(w, r)
		}},
		{Path: "/health", Answer: h.health},
		{Path: "/healthz", Answer: h.health},
		{Answer: h.answer},
	}
}

// add takes over a browser that has just joined. A new connection of one that is there is the same browser to its
// holder.
func (h *Hub) add(l *hub.Link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.order++
	j := &Joined{Link: l, upstream: upstream.New(l, h.Group, h.Log), order: h.order}
	j.upstream.AllTabs = h.AllTabs
	j.opened = supply.OpenOnce(context.Background(), openBound, hub.ErrTimeout, j.open)
	j.Sessions = &fleet.Fleet{Chrome: j.chrome, Defaults: fleet.Wanted{Settings: h.Settings},
		MakeDir: h.MakeDir, Downloads: h.MakeDir != nil, Base: fleet.Prefix + l.Instance.ID,
		Log: h.Log, Noun: "session", Policy: fleet.Policy(h.Settings)}
	if h.AllTabs {
		j.Sessions.Default, j.Sessions.Root = allTabs, allTabs
	}
	if old := h.joined[l.Instance.ID]; old != nil && old.Instance == l.Instance {
		j.seat = old.seat
	} else {
		if old != nil {
			h.leaveLocked(old)
		}
		j.seat = h.enterLocked(l.Instance.Launch != "")
	}
	h.joined[l.Instance.ID] = j
	if j.lease == nil {
		j.in.Put(j.number) // a request may wait for it
	}
	h.running.Go(func() {
		<-l.Done()
		h.mu.Lock()
		if h.joined[l.Instance.ID] == j {
			h.leaveLocked(j)
		}
		h.mu.Unlock()
		j.close()
	})
}

// openBound bounds the first questions to a browser.
const openBound = 15 * time.Second

// open opens the browser for sessions.
func (j *Joined) open(ctx context.Context) (*virtual.Browser, error) {
	if err := j.upstream.Open(ctx); err != nil {
		return nil, err
	}
	return virtual.OpenOn(ctx, virtual.BySockets(j.upstream), j.Sessions.Log)
}

// chrome returns the browser for sessions.
func (j *Joined) chrome(ctx context.Context, _ *fleet.Entry) (*virtual.Browser, fleet.Use, error) {
	b, err := j.opened.Get(ctx)
	return b, fleet.Use{Ended: func(error) {}}, err
}

// close ends the browser after its link has ended. Its clients learn why from
// the connections of the upstream.
func (j *Joined) close() {
	b := j.opened.Close(hub.ErrDisconnected)
	j.upstream.Wait()
	if b != nil {
		b.Close()
	}
	j.Sessions.Close()
}

// is reports whether a name is the browser's ID or its port.
func (j *Joined) is(name string) bool { return isCalled(j.Instance.ID, j.Instance.Port, name) }

// List returns the browsers that have joined, the longest connected first.
func (h *Hub) List() []*Joined {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listLocked()
}

func (h *Hub) listLocked() (all []*Joined) {
	for _, j := range h.joined {
		if j.Err() == nil {
			all = append(all, j)
		}
	}
	slices.SortFunc(all, func(a, b *Joined) int { return cmp.Compare(a.order, b.order) })
	return all
}

// Find returns a browser by its ID, its port or its holder's name for it, the longest connected with ""; nil: there is
// none.
func (h *Hub) Find(name string) *Joined {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.findLocked(name)
}

func (h *Hub) findLocked(name string) *Joined {
	for _, j := range h.listLocked() {
		if n := h.holds.named[name]; name == "" || j.is(name) || n != nil && n.seat == j.seat {
			return j
		}
	}
	return nil
}

// health answers whether the hub runs.
func (h *Hub) health(w *front.Response, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"status":"ok","instances":%d}`+"\n", len(h.List()))
	return nil
}

// answer answers a request to a browser, the first one if the path names none.
func (h *Hub) answer(w *front.Response, r *http.Request) error {
	name, rest := "", r.URL.Path
	if below, ok := strings.CutPrefix(r.URL.Path, fleet.Prefix); ok {
		name, rest, _ = strings.Cut(below, "/")
		rest = "/" + rest
	}
	h.mu.Lock()
	j := h.findLocked(name)
	if below, ok := strings.CutPrefix(rest, fleet.Prefix); ok && h.holds.named[name] != nil {
		session, _, _ := strings.Cut(below, "/")
		h.holds.named[name].used[session] = true
	}
	h.mu.Unlock()
	if j == nil {
		return absent(name)
	}
	r.URL.Path, r.URL.RawPath = fleet.Prefix+j.Instance.ID+rest, ""
	return j.Sessions.Answer(w, r)
}

// absent returns the error for a browser that is not there.
func absent(name string) error {
	if name == "" {
		e := control.Errorf(control.Unavailable, "no browser has joined")
		e.Hint = "open the browser that has the extension, and look at the extension's button"
		return front.Unavailable(e)
	}
	e := control.Errorf(guard.NotFound, "no browser %.64q is connected", name)
	e.Hint = "bproxy list shows those that are"
	return e
}

// registrar returns the guard of a registration. Its sender has the pairing code; a web
// page is refused whatever it has.
func (h *Hub) registrar(r *http.Request) *guard.Guard {
	g := &guard.Guard{Origins: []string{extension.Origin}, NoPages: true}
	if h.Join.IsOpenFor(r) {
		g.Origins = r.Header.Values("Origin")
	}
	return g
}

// Serve serves a port until the context ends. Browsers are told why their connections end.
func (h *Hub) Serve(ctx context.Context, l net.Listener) error {
	return h.Front.Serve(ctx, func(*http.Server) { h.Close() }, l)
}

// Close ends all browsers' connections, and returns when nothing is left.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.holds.free.Fail(errClosed)
	h.holds.launched.Fail(errClosed)
	h.mu.Unlock()
	h.Join.Close()
	h.running.Wait()
}
