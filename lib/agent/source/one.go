package source

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/agent/source/uses"
	"btools/lib/control/api"
	"btools/lib/launch/options"
	"btools/lib/record"
)

// oneBrowser is a source of one browser, which owners share.
type oneBrowser struct {
	plain
	provider
	sessions Sharing
	uses     book
	// stopUnused stops the browser, which no call uses, or which is empty. It returns when it has been used last, as it
	// turns out.
	stopUnused func(empty bool) time.Time
	stopping   sync.WaitGroup

	ids int // session_ids that are in use, under the lock of the book
	// The session_ids that one host, and all hosts, may have at a time.
	maxIDsOfHost, maxIDs int
	emptyings            atomic.Int64 // how often a session was ended whose last tab was closed
}

// provider is what the browser is from: the bproxy that launches it, or the hub that it has joined. Calls may name
// another one that has joined, which is an instance, for a session of theirs.
type provider interface {
	// target is the address of the browser, whether it runs or not.
	target(ctx context.Context) (Browser, error)
	// up returns the browser if nothing has to be waited for, else nil.
	up(instance, session string) *Lease
	// acquire returns the browser, and launches it or waits for it.
	acquire(ctx context.Context, instance, session string) (*Lease, error)
	// idOf is an instance as a Browser has it. The error says that it has not joined.
	idOf(ctx context.Context, instance string) (string, error)
	// status is the record of the browser and its port; nil: there is none. The error says what is wrong.
	status(ctx context.Context) (*record.Record, error)
	control(ctx context.Context, method string, o options.Options) (*record.Record, error)
	list(ctx context.Context) []session
	newSession(ctx context.Context, name, state string) error
	// hibernate hibernates a session whose clients have just gone. It reports whether the session needs no pages
	// any more; it does if others are connected to it.
	hibernate(ctx context.Context, name string) bool
	// end ends a session, if there is one.
	end(instance, name string)
}

func (s *oneBrowser) init(p provider, how Sharing) {
	s.provider, s.sessions, s.maxIDsOfHost, s.maxIDs = p, how, maxIDsOfHost, maxIDs
	s.uses.table.Max, s.uses.table.Rest = how.MaxSessions, placeRest
	s.uses.table.Set(s, uses.Rules{End: how.Idle})
}

// placeRest is how long a virtual browser keeps a place that others wait for without a
// call (--max-sessions): then it is hibernated, and its next call waits for a place in its
// turn.
const placeRest = 5 * time.Second

func (s *oneBrowser) Of(ctx context.Context, o Owner, shared bool) Browsers {
	return &parts{use: use{book: &s.uses, owner: o, ctx: ctx}, oneBrowser: s, shared: shared, all: map[partKey]*part{},
		states: map[partKey]string{}}
}

func (s *oneBrowser) Kind() Kind { return s.sessions.Kind }

func (s *oneBrowser) Clients(ctx context.Context, b Browser) int {
	if s.Kind() == SharedProfile {
		return 0
	}
	if at := s.session(ctx, b.Instance, cmp.Or(b.Session, hostSession)); at != nil {
		return at.Clients
	}
	return 0
}

// session is what is known of a session; nil: there is none.
func (s *oneBrowser) session(ctx context.Context, instance, name string) *session {
	for _, at := range s.list(ctx) {
		if at.Name == name && (instance == "" || instance == at.instance) {
			return &at
		}
	}
	return nil
}

// session is the description of a session by bproxy or a hub.
type session struct {
	api.Session `json:"session"`
	instance    string // the joined browser that owns it
}
