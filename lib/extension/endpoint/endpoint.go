// Package endpoint serves a hub and the browsers that have joined it on one
// port: POST /register for the extension, and below /session/INSTANCE, for each
// browser, what the port of a bproxy with sessions has at its root.
package endpoint

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/extension"
	"btools/lib/extension/hub"
	"btools/lib/extension/upstream"
	"btools/lib/guard"
	book "btools/lib/sessions"
	"btools/lib/virtual"
	"btools/lib/virtual/sessions"
)

// Server serves a hub. Set its fields before use; Close it at the end.
type Server struct {
	Hub *hub.Hub
	// Guard checks every request but registrations, which have the pairing code.
	Guard guard.Guard
	// AllTabs shows clients the tabs of the user, too: all clients of a browser
	// have the same tabs then.
	AllTabs bool
	// Group is the name of the groups of tabs that clients open.
	Group string
	// Grace, Idle and Max bound the sessions of each browser, as in
	// sessions.Registry; so do Defaults and OpenDownloads.
	Grace, Idle   time.Duration
	Max           int
	Defaults      sessions.Settings
	OpenDownloads func(name string, s sessions.Settings, tell func(string, downloads.File)) (*downloads.Files, error)
	Log           *slog.Logger

	mu      sync.Mutex
	joined  map[string]*joined // by the instance's ID
	owned   owned
	closed  bool
	running sync.WaitGroup
}

// prefix begins the path of each browser.
const prefix = "/session/"

// allTabs is the name of the session that has all tabs.
const allTabs = "all"

// joined is a browser that has joined, by one connection.
type joined struct {
	link     *hub.Link
	upstream *upstream.Browser
	sessions *sessions.Registry

	opening sync.Mutex // held while the browser is opened
	browser *virtual.Browser
}

// Start connects the server with its hub.
func (s *Server) Start() {
	s.joined = map[string]*joined{}
	s.Hub.Joined = s.add
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
	j.sessions = &sessions.Registry{Chrome: j.chrome, Defaults: s.Defaults, OpenDownloads: s.OpenDownloads,
		Base: prefix + l.Instance.ID, Book: book.Book{Log: s.Log, Noun: "session",
			Policy: book.Policy{Grace: s.Grace, Idle: s.Idle, Max: s.Max}}}
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

// chrome returns the browser for sessions. It is opened for the first, and for
// the next one if that has failed.
func (j *joined) chrome(context.Context) (*virtual.Browser, func(), error) {
	j.opening.Lock()
	defer j.opening.Unlock()
	if j.browser != nil {
		return j.browser, func() {}, nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), openBound, hub.ErrTimeout)
	defer cancel()
	if err := j.upstream.Open(ctx); err != nil {
		return nil, nil, err
	}
	browser, err := virtual.OpenOn(ctx, virtual.BySockets(j.upstream), j.sessions.Log)
	if err != nil {
		return nil, nil, err
	}
	j.browser = browser
	return browser, func() {}, nil
}

// close ends the browser after its link has ended. Its clients learn why from
// the connections of the upstream.
func (j *joined) close() {
	j.opening.Lock() // the link has ended: nobody opens it any more
	defer j.opening.Unlock()
	j.upstream.Wait()
	if j.browser != nil {
		j.browser.Close()
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
func (s *Server) Sessions(name string) *sessions.Registry {
	if j := s.find(name); j != nil {
		return j.sessions
	}
	return nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/register" {
		s.register(w, r)
		return
	}
	if no := s.Guard.Check(r); no != nil {
		s.Log.Debug("refused", "client", r.RemoteAddr, "why", no.Error.Message)
		refuse(w, r, no)
		return
	}
	if r.URL.Path == "/health" || r.URL.Path == "/healthz" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status":"ok","instances":%d}`+"\n", len(s.Hub.List()))
		return
	}
	s.Guard.StripCredentials(r)
	name, rest := "", r.URL.Path
	if below, ok := strings.CutPrefix(r.URL.Path, prefix); ok {
		name, rest, _ = strings.Cut(below, "/")
		rest = "/" + rest
	}
	j := s.find(name)
	if j == nil {
		refuse(w, r, absent(name))
		return
	}
	if s.Hub.IsClaim(name) {
		s.own(name, rest)
	}
	if r.ContentLength != 0 { // the request is refused, and its body may never come
		http.NewResponseController(w).SetReadDeadline(time.Now())
	}
	r.URL.Path, r.URL.RawPath = prefix+j.link.Instance.ID+rest, ""
	j.sessions.ServeHTTP(w, r)
}

func absent(name string) *guard.Refusal {
	if name == "" {
		no := guard.Refuse(http.StatusServiceUnavailable, control.Unavailable, "no browser has joined")
		no.Error.Hint = "open the browser that has the extension, and look at the extension's button"
		return no
	}
	no := guard.Refuse(http.StatusNotFound, guard.NotFound, "no browser %q is connected", clip(name))
	no.Error.Hint = "bproxy list shows those that are"
	return no
}

func clip(s string) string { return s[:min(len(s), 64)] }

// register answers a registration. Its sender has the pairing code; a web page
// is refused whatever it has.
func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	own := guard.Guard{Origins: []string{extension.Origin}, NoPages: true}
	if s.Hub.IsOpenFor(r) {
		own.Origins = r.Header.Values("Origin")
	}
	if no := own.Check(r); no != nil {
		refuse(w, r, no)
		return
	}
	s.Hub.ServeRegister(w, r)
}

// refuse answers a request without reading its body, which may never come.
func refuse(w http.ResponseWriter, r *http.Request, no *guard.Refusal) {
	if r.ContentLength != 0 {
		http.NewResponseController(w).SetReadDeadline(time.Now())
	}
	no.WriteResponse(w)
}

// Close ends all browsers' connections, and returns when nothing is left.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Hub.Close()
	s.running.Wait()
}
