package coordinator

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"btools/lib/proc"
)

// Browser is where a child finds its browser.
type Browser struct {
	Pool, Instance string // "" without pools
	Session        string // that is a virtual browser; "": it is a whole one
	ID             string
	HTTPURL, WSURL string // that stay; "": the child is to start one itself
	Port           int
	Type           string
	Headless       bool
	Profile        string        // that one which a child launches is to use; "": a temporary one
	Windows        bool          // its child runs on Windows' Node.js, from WSL
	Isolated       bool          // each lease has a browser of its own
	Virtual        bool          // which is a part of one that leases share
	CallTimeout    time.Duration // of a tool's call; 0: no bound
	// The child is pinged at this interval, and has this time to answer; 0: it
	// is not.
	HealthInterval, HealthTimeout time.Duration
}

// isBelow reports whether the browser has its endpoint below a port's root,
// where others are.
func (b *Browser) isBelow() bool {
	u, err := url.Parse(b.HTTPURL)
	return err == nil && strings.Trim(u.Path, "/") != ""
}

// place is a browser for one call.
type place struct {
	Browser
	died    <-chan struct{} // closed when this browser is no more; nil: not known
	release func()
	many    bool     // the next call may well be on another one
	fresh   bool     // it is a new browser each time
	why     string   // the browser before it has ended, "" if that is not known
	news    *news    // of its lease; nil: none come
	virtual *virtual // that it is of; nil: it is a whole one
	// again reports whether a lease is still ours, what its browser's death
	// closes now, and which browser that is.
	again func(context.Context) (died <-chan struct{}, id string, ours bool)
}

// Browsers are where calls find their browsers: those of Single, Pooled, Served
// or Left. Nothing else knows which of these they are.
type Browsers interface {
	// of is what a session has of them.
	of(s *Session) claims
	// any is where a child can be started before it is called, every all such
	// places.
	any(ctx context.Context) (Browser, error)
	every(ctx context.Context) ([]Browser, error)
	// early reports whether the browser is not up, but any is where it will be.
	early() bool
	// parted is the one browser, if it is shown in parts; else nil.
	parted() *single
	// arguments are those that choose a browser, of tools that need one.
	arguments() arguments
	// tools are those that our own list has for them, instructions what agents
	// have to know. Drives says whether there are children that drive them.
	tools(c *Coordinator) []ownTool
	instructions(drives bool) string
	// describe fills in what coordinator_status says of them.
	describe(ctx context.Context, s *Session, st *status)
	close()
}

// arguments are those of a tool's call that choose its browser.
type arguments int

const (
	noArguments arguments = iota
	poolArguments
	sessionArguments
)

// claims are the browsers that a session uses, or keeps between its calls.
type claims interface {
	// take returns a browser that is up, for one call.
	take(ctx context.Context, w which) (*place, error)
	// ready is take where nothing has to be waited for, else nil.
	ready(w which) *place
	// lost is what has become of a browser that was kept, once; "": nothing.
	lost() string
	// leave lets no browser be taken any more, and returns those to be released.
	leave() (held []*place)
}

// watch returns a channel that is closed when a process has ended. It is
// watched in a goroutine of the group until the context ends.
func watch(ctx context.Context, group *sync.WaitGroup, pid int) <-chan struct{} {
	id, err := proc.Of(pid)
	died := make(chan struct{})
	if err != nil {
		close(died)
		return died
	}
	group.Go(func() {
		if id.Wait(ctx) == nil {
			close(died)
		}
	})
	return died
}

// Left leaves the browser to the children, as one that DevTools can't reach.
func Left(browser string, headless bool) Browsers {
	return noBrowser{Browser{Type: browser, Headless: headless}}
}

// LeftNote says what a person must know of a browser that is left to children.
func LeftNote(browser string) string {
	return fmt.Sprintf("Playwright drives only a %[1]s of its own, not one that bfind lists; "+
		"\"npx playwright install %[1]s\" installs it", browser)
}

type noBrowser struct{ Browser }

func (n noBrowser) of(*Session) claims                       { return n }
func (n noBrowser) any(context.Context) (Browser, error)     { return n.Browser, nil }
func (n noBrowser) every(context.Context) ([]Browser, error) { return []Browser{n.Browser}, nil }
func (n noBrowser) early() bool                              { return false }
func (n noBrowser) parted() *single                          { return nil }
func (n noBrowser) arguments() arguments                     { return noArguments }
func (n noBrowser) tools(*Coordinator) []ownTool             { return nil }
func (n noBrowser) close()                                   {}

func (n noBrowser) instructions(drives bool) string {
	if !drives {
		return ""
	}
	return fmt.Sprintf(leftInstructions, n.Type)
}

func (n noBrowser) describe(_ context.Context, _ *Session, st *status) {
	st.Notes = append(st.Notes, LeftNote(n.Type))
}

func (n noBrowser) ready(which) *place { return &place{Browser: n.Browser, release: func() {}} }

func (n noBrowser) take(context.Context, which) (*place, error) { return n.ready(which{}), nil }
func (n noBrowser) lost() string                                { return "" }
func (n noBrowser) leave() []*place                             { return nil }
