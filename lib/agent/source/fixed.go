package source

import (
	"context"
	"errors"
	"time"

	"btools/lib/control/api"
	"btools/lib/launch/options"
	"btools/lib/record"
)

// fixed is a browser that no program is asked for: clients connect to it themselves, or launch it.
type fixed struct {
	browser Browser
	asks    func(context.Context) error // whether the browser is there; nil: clients launch it
	note    string                      // what a person must know of one that clients launch
	notOurs error                       // that it is not launched and stopped here
}

func (f *fixed) target(context.Context) (Browser, error)    { return f.browser, nil }
func (f *fixed) Targets(context.Context) ([]Browser, error) { return nil, nil }

func (f *fixed) up(string, string) *Lease {
	if f.asks != nil { // it is known when the browser has been asked
		return nil
	}
	return &Lease{Browser: f.browser, Release: func() {}}
}

func (f *fixed) acquire(ctx context.Context, _, _ string) (*Lease, error) {
	if f.asks != nil {
		if err := f.asks(ctx); err != nil {
			return nil, err
		}
	}
	return &Lease{Browser: f.browser, Release: func() {}}, nil
}

func (f *fixed) status(ctx context.Context) (*record.Record, error) {
	if f.asks == nil {
		return nil, errors.New(f.note)
	}
	r := record.New()
	if err := f.asks(ctx); err != nil {
		return nil, err
	}
	r.MustSet("status", api.ProxyStatus{State: "ready"})
	return r, nil
}

func (f *fixed) control(context.Context, string, options.Options) (*record.Record, error) {
	return nil, f.notOurs
}

// errNoLogins means that the logins of a browser cannot be told from those of others.
var errNoLogins = errors.New("this browser is not a session of its own: only the login of a session can be saved")

func (f *fixed) SaveState(context.Context, Browser, api.StateRequest) (api.States, error) {
	return api.States{}, errNoLogins
}

func (f *fixed) idOf(context.Context, string) (string, error)     { return "", nil }
func (f *fixed) list(context.Context) []sessionStatus             { return nil }
func (f *fixed) newSession(context.Context, string, string) error { return f.notOurs }
func (f *fixed) hibernate(context.Context, string) bool           { return true }
func (f *fixed) end(string, string)                               {}
func (f *fixed) stopUnused(bool) time.Time                        { return time.Now() }
func (f *fixed) close()                                           {}

// ChildLaunched leaves the launch of the browser to the children, as DevTools
// cannot reach it. A person must know the note.
func ChildLaunched(browser string, headless bool, note string) *Source {
	s := &Source{Type: browser}
	s.init(ByChild, &fixed{browser: Browser{Type: browser, Headless: headless}, note: note, notOurs: errNotOurs},
		Sharing{})
	return s
}
