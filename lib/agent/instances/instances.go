// Package instances launches browsers that join a hub by the extension, for an
// agent, and stops them. It lists all browsers that have joined, and the profiles
// of the user's own browsers. What agents do with a browser is not its business.
package instances

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"btools/lib/client"
	"btools/lib/control/api"
	"btools/lib/extension/keep"
	"btools/lib/record"
)

// Modes of a launch.
const (
	Chromium = "chromium" // Chromium with a new profile
	Testing  = "testing"  // Chrome for Testing with a new profile, in a window
	Chrome   = "chrome"   // the user's browser with the user's profile
)

// maxLaunched is how many browsers may be running: an agent that forgets to close
// them is not to fill the machine.
const maxLaunched = 16

// Set is the browsers that one program has launched. Set its fields, and Close it.
type Set struct {
	// Hubs finds the hub, or starts one. It is used as long as a browser is running.
	Hubs *keep.Keeper
	// Detect lists the installed browsers, the best first.
	Detect func(context.Context) ([]json.RawMessage, error)
	// Dir is the directory below which extensions may be; "": none is loaded.
	Dir    string
	Home   string // of the user
	Getenv func(string) string
	Stderr io.Writer // gets the messages of browsers, and must not block
	// Joined is called for each browser that was launched and has joined, and Left
	// when it has ended; nil: nobody is told. They must not wait.
	Joined, Left func(id string)

	mu       sync.Mutex
	launched map[string]*launched // by the ID at the hub
	starting map[*Request]context.CancelCauseFunc
	closed   bool
	work     sync.WaitGroup
}

// launched is a browser that is running. Its fields do not change.
type launched struct {
	Mode     string `json:"mode"`
	Headless bool   `json:"headless"`
	Profile  string `json:"profile,omitempty"`

	joined record.Joined
	ended  <-chan struct{}
	stop   func() // returns when it has ended

	release func() // lets go of the hub
}

// Instance is a browser that has joined the hub.
type Instance struct {
	ID           string      `json:"instanceId"`
	Port         int         `json:"port"` // of the extension's connection
	UserAgent    string      `json:"userAgent"`
	WindowID     int         `json:"windowId"`
	ConnectedAt  record.Time `json:"connectedAt"`
	LastActivity record.Time `json:"lastActivity"`
	Tabs         int         `json:"tabs"`    // that programs may use
	Claimed      bool        `json:"claimed"` // a program holds it
	HTTPURL      string      `json:"httpUrl"`
	WSURL        string      `json:"wsUrl"`
	// Launched is true if it can be closed; then it has the members of launched.
	Launched bool `json:"launched"`
	*launched
}

// Request says what to launch.
type Request struct {
	Mode           string   `json:"mode"` // "": Chromium
	Headless       *bool    `json:"headless"`
	Profile        string   `json:"profile"`
	URL            string   `json:"url"` // which the caller opens
	Extensions     []string `json:"extensions"`
	CloseOtherTabs bool     `json:"closeOtherTabs"`
}

// listBound is how long the hub may take to list its browsers.
const listBound = 10 * time.Second

// List lists the browsers that have joined the hub.
func (s *Set) List(ctx context.Context) ([]Instance, error) {
	hub, release, err := s.Hubs.Use(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, listBound, fmt.Errorf("no answer within %v", listBound))
	defer cancel()
	records, err := api.List.Ask(ctx, hub, api.Of{})
	if err != nil {
		return nil, fmt.Errorf("cannot list the browsers of the hub: %w", err)
	}
	all := []Instance{}
	for _, r := range records {
		var j record.Joined
		if ok, err := r.Get("joined", &j); ok && err == nil {
			all = append(all, s.instance(j))
		}
	}
	return all, nil
}

func (s *Set) instance(j record.Joined) Instance {
	i := Instance{ID: j.ID, Port: j.Port, UserAgent: j.UserAgent, WindowID: j.WindowID, ConnectedAt: j.ConnectedAt,
		LastActivity: j.LastActivity, Tabs: j.Tabs, Claimed: j.Claimed, HTTPURL: j.HTTPURL, WSURL: j.WSURL}
	s.mu.Lock()
	defer s.mu.Unlock()
	i.launched = s.launched[j.ID]
	i.Launched = i.launched != nil
	return i
}

// check returns what is wrong with a request.
func (r *Request) check() error {
	r.Mode = cmp.Or(r.Mode, Chromium)
	switch {
	case !slices.Contains([]string{Chromium, Testing, Chrome}, r.Mode):
		return fmt.Errorf("mode is %s, %s or %s, not %q", Chromium, Testing, Chrome, r.Mode)
	case r.Profile != "" && r.Mode != Chrome:
		return errors.New("Profile option is only valid with chrome mode.")
	case r.Headless != nil && r.Mode != Chromium:
		return errors.New("Headless option is only valid with chromium mode.")
	case len(r.Extensions) > 0 && r.Mode == Chrome:
		return errors.New("extensions are loaded in the modes chromium and testing only: in the mode chrome the " +
			"browser has those of its profile")
	}
	return checkURL(r.URL)
}

// New launches a browser and returns it when its extension has joined the hub.
func (s *Set) New(ctx context.Context, r Request) (Instance, error) {
	if err := r.check(); err != nil {
		return Instance{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := s.begin(&r, cancel); err != nil {
		return Instance{}, err
	}
	defer s.work.Done()
	l, err := s.start(ctx, r)
	s.mu.Lock()
	delete(s.starting, &r)
	closed := s.closed
	if err == nil && !closed {
		s.launched[l.joined.ID] = l
	}
	s.mu.Unlock()
	if err != nil {
		return Instance{}, err
	}
	if closed {
		l.stop()
		l.release()
		return Instance{}, errClosed
	}
	s.keep(l)
	return s.instance(l.joined), nil
}

// start launches a browser.
func (s *Set) start(ctx context.Context, r Request) (l *launched, err error) {
	hub, release, err := s.Hubs.Use(ctx)
	if err != nil {
		return nil, err
	}
	if r.Mode == Chrome {
		l, err = s.openProfile(ctx, hub, r)
	} else {
		l, err = s.launch(ctx, hub, r)
	}
	if err != nil {
		release()
		return nil, err
	}
	l.release = release
	return l, nil
}

var errClosed = errors.New("bmcp is stopping")

// begin notes that a launch begins, which Close cancels.
func (s *Set) begin(r *Request, cancel context.CancelCauseFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errClosed
	case len(s.launched)+len(s.starting) >= maxLaunched:
		return fmt.Errorf("%d browsers are running, as many as there may be: close one first", maxLaunched)
	}
	if s.starting == nil {
		s.starting, s.launched = map[*Request]context.CancelCauseFunc{}, map[string]*launched{}
	}
	s.starting[r] = cancel
	s.work.Add(1)
	return nil
}

// keep keeps a browser until it has ended.
func (s *Set) keep(l *launched) {
	if s.Joined != nil {
		s.Joined(l.joined.ID)
	}
	s.work.Go(func() {
		<-l.ended
		if s.Left != nil {
			s.Left(l.joined.ID)
		}
		l.release()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.launched[l.joined.ID] == l {
			delete(s.launched, l.joined.ID)
		}
	})
}

// End stops a browser and returns when it has ended.
func (s *Set) End(ctx context.Context, id string) error {
	if id == "" {
		return errors.New("instanceId is missing: the action list shows the IDs")
	}
	s.mu.Lock()
	l := s.launched[id]
	s.mu.Unlock()
	if l != nil {
		hub, release, err := s.Hubs.Use(ctx)
		l.stop()
		if err == nil {
			awaitLeft(ctx, hub, id)
			release()
		}
		return nil
	}
	all, err := s.List(ctx)
	if err == nil && slices.ContainsFunc(all, func(i Instance) bool { return i.ID == id }) {
		return fmt.Errorf("%s was not launched here: only its user closes it", id)
	}
	return fmt.Errorf("no browser %q is running", id)
}

// leftBound is how long the hub may take to notice that a browser has ended.
const leftBound = 5 * time.Second

// awaitLeft waits until the hub lists a browser no more, which has ended.
func awaitLeft(ctx context.Context, hub client.Proxy, id string) {
	ctx, cancel := context.WithTimeout(ctx, leftBound)
	defer cancel()
	api.Watch.Ask(ctx, hub, api.WatchRequest{Of: api.Of{Instance: id}})
}

// Close stops all browsers and returns when they have ended.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	for _, cancel := range s.starting {
		cancel(errClosed)
	}
	var all []*launched
	for _, l := range s.launched {
		all = append(all, l)
	}
	s.mu.Unlock()
	var stopping sync.WaitGroup
	for _, l := range all {
		stopping.Go(l.stop)
	}
	stopping.Wait()
	s.work.Wait()
}
