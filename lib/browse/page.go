package browse

import (
	"context"
	"encoding/json"
	"time"

	"btools/lib/emulate"
)

// Driver is a browser that tools drive: Browser is one of Chromium, firefox.Browser a Firefox.
type Driver interface {
	Gone() <-chan struct{} // closed when the connection has ended
	Answers() bool         // the browser itself answers soon
	CloseOpened()          // of the tabs, those that were opened here
	Close()
	GuardFiles(refuses func(ctx context.Context, address string) error)

	Current(ctx context.Context) (Page, error)
	New(ctx context.Context) (Page, error)
	Tabs(ctx context.Context) []TabState
	Count() int
	Select(ctx context.Context, index int) error
	CloseTab(ctx context.Context, index int) error
	Labels() []string
	Label(index int, label string) error

	Emulate(ctx context.Context, change json.RawMessage) (emulate.Emulation, error)
	Left() Moment // of the current tab now; nil: there is none
}

// Page is a tab as tools use it. What a method does, and returns, is said at that of Tab.
type Page interface {
	Document() string
	State(ctx context.Context) State
	Seen() State
	Address(ctx context.Context) string
	IsLoaded(ctx context.Context, state string) (bool, error)
	Before() Moment
	CatchUp()

	Place(ctx context.Context) (Page, error)
	Replace(ctx context.Context) (Page, error)
	Navigate(ctx context.Context, address string) (opened string, err error)
	Go(ctx context.Context, forward bool) error
	Reload(ctx context.Context) error

	Dialog() string
	HandleDialog(ctx context.Context, accept bool, prompt *string) error
	Modals() []string

	Snapshot(ctx context.Context, o SnapshotOptions) (string, error)
	Holding(ctx context.Context, text string) ([]string, error)
	AwaitText(ctx context.Context, text string, wanted bool, most time.Duration) error
	Screenshot(ctx context.Context, o ScreenshotOptions) (Screenshot, error)
	Evaluate(ctx context.Context, function string, target Target) (value string, seen bool, err error)
	Holds(ctx context.Context, function string) (bool, error)

	Click(ctx context.Context, target Target, o ClickOptions) (what string, err error)
	Hover(ctx context.Context, target Target) (what string, err error)
	Scroll(ctx context.Context, o ScrollOptions) (Scrolled, error)
	Type(ctx context.Context, target Target, text string, slowly, submit bool) (what string, err error)
	Press(ctx context.Context, combination string) error
	Choose(ctx context.Context, target Target, values []string) (what string, labels []string, err error)
	Check(ctx context.Context, target Target, on bool) (what string, err error)
}

// Moment is a page at a time, such as before a call: what comes after it is taken as caused by the call.
type Moment interface {
	Is(of Driver) bool        // the tab is one of this connection
	Since() Changes           // until now
	Sent() []string           // requests that scripts of the page have sent since
	Strayed(now Page) error   // why what an agent knew of the page does not hold for the current one; nil: it does
	Answers(now Page) bool    // a dialog that is open is the one that was open then, if there was one
	Rest(ctx context.Context) // waits until what an action has caused since has come to rest
}

// Changes are what has happened since a moment.
type Changes struct {
	Known    bool     // Events are all that an agent has to be told
	Events   []string // to the tab, and what it has opened
	Vanished []string // the addresses of the tabs that have closed, and not by a tool
	Files    []string // the names of the downloads that the page has begun
	Opens    bool     // tabs have been opened
	Tabs     int      // the Number of the latest tab then
}
