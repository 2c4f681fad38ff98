// Package endpoint serves a hub and the browsers that have joined it on one
// port: POST /register for the extension, and below /session/INSTANCE, for each
// browser, what the port of a bproxy with sessions has at its root.
package endpoint

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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

// Server serves a hub. Set its fields before use; Close it at the end.
type Server struct {
	Hub *hub.Hub
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
	joined  map[string]*joined // by the instance's ID
	owned   owned
	closed  bool
	running sync.WaitGroup
}

// allTabs is the name of the session that has all tabs.
const allTabs = "all"

// joined is a browser that has joined, by one connection.
type joined struct {
	link     *hub.Link
	upstream *upstream.Browser
	sessions *fleet.Fleet

	opened *wait.Starter[*virtual.Browser] // the browser for sessions
}

// Start connects the server with its hub.
func (s *Server) Start() {
	s.joined = map[string]*joined{}
	s.Hub.Joined = s.add
	s.Front.Log = s.Log
	s.Front.Routes = []front.Route{
		{Path: "/register", Guard: s.registrar, Answer: func(w *front.Response, r *http.Request) error {
			return s.Hub.ServeRegister(w, r)
		}},
		{Path: "/health", Answer: s.health},
		{Path: "/healthz", Answer: s.health},
		{Answer: s.answer},
	}
}

// add takes over a browser that has just joined.
func (s *Server) add(l *hub.Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	j := &joined{link: l, upstream: upstream.New(l, s.Group, s.Log)}
	j.upstream.AllTabs = s.AllTabs
	j.opened = supply.OpenOnce(context.Background(), openBound, hub.ErrTimeout, j.open)
	j.sessions = &fleet.Fleet{Chrome: j.chrome, Defaults: fleet.Wanted{Settings: s.Settings},
		MakeDir: s.MakeDir, Downloads: s.MakeDir != nil, Base: fleet.Prefix + l.Instance.ID,
		Log: s.Log, Noun: "session", Policy: fleet.Policy(s.Settings)}
	if s.AllTabs {
		j.sessions.Default, j.sessions.Root = allTabs, allTabs
	}
	s.joined[l.Instance.ID] = j
	s.running.Go(func() {
		<-l.Done()
		j.close()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.joined[l.Instance.ID] == j {
			delete(s.joined, l.Instance.ID)
		}
	})
}

// openBound bounds the first questions to a browser.
const openBound = 15 * time.Second

// open opens the browser for sessions.
func (j *joined) open(ctx context.Context) (*virtual.Browser, error) {
	if err := j.upstream.Open(ctx); err != nil {
		return nil, err
	}
	return virtual.OpenOn(ctx, virtual.BySockets(j.upstream), j.sessions.Log)
}

// chrome returns the browser for sessions.
func (j *joined) chrome(ctx context.Context, _ *fleet.Entry) (*virtual.Browser, fleet.Use, error) {
	b, err := j.opened.Get(ctx)
	return b, fleet.Use{Ended: func(error) {}}, err
}

// close ends the browser after its link has ended. Its clients learn why from
// the connections of the upstream.
func (j *joined) close() {
	b := j.opened.Close(hub.ErrDisconnected)
	j.upstream.Wait()
	if b != nil {
		b.Close()
	}
	j.sessions.Close()
}

// find returns a browser by its ID or port, the first connected one if name is
// "".
func (s *Server) find(name string) *joined {
	l := s.Hub.Find(name)
	if l == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined[l.Instance.ID]
}

// Sessions returns the sessions of a browser, by its ID or port; nil: it is not
// connected.
func (s *Server) Sessions(name string) *fleet.Fleet {
	if j := s.find(name); j != nil {
		return j.sessions
	}
	return nil
}

// health answers whether the hub runs.
func (s *Server) health(w *front.Response, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"status":"ok","instances":%d}`+"\n", len(s.Hub.List()))
	return nil
}

// answer answers a request to a browser, the first one if the path names none.
func (s *Server) answer(w *front.Response, r *http.Request) error {
	name, rest := "", r.URL.Path
	if below, ok := strings.CutPrefix(r.URL.Path, fleet.Prefix); ok {
		name, rest, _ = strings.Cut(below, "/")
		rest = "/" + rest
	}
	j := s.find(name)
	if j == nil {
		return absent(name)
	}
	if s.Hub.IsClaim(name) {
		s.own(name, rest)
	}
	r.URL.Path, r.URL.RawPath = fleet.Prefix+j.link.Instance.ID+rest, ""
	return j.sessions.Answer(w, r)
}

// absent returns the error for a browser that is not there.
func absent(name string) error {
	if name == "" {
		e := control.Errorf(control.Unavailable, "no browser has joined")
		e.Hint = "open the browser that has the extension, and look at the extension's button"
		return front.Unavailable(e)
	}
	e := control.Errorf(guard.NotFound, "no browser %q is connected", clip(name))
	e.Hint = "bproxy list shows those that are"
	return e
}

func clip(s string) string { return s[:min(len(s), 64)] }

// registrar returns the guard of a registration. Its sender has the pairing code; a web
// page is refused whatever it has.
func (s *Server) registrar(r *http.Request) *guard.Guard {
	g := &guard.Guard{Origins: []string{extension.Origin}, NoPages: true}
	if s.Hub.IsOpenFor(r) {
		g.Origins = r.Header.Values("Origin")
	}
	return g
}

// Serve serves a port until the context ends. Browsers are told why their connections end.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return s.Front.Serve(ctx, func(*http.Server) { s.Close() }, l)
}

// Close ends all browsers' connections, and returns when nothing is left.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Hub.Close()
	s.running.Wait()
}
