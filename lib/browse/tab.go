package browse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"btools/lib/cdp"
	"btools/lib/jsonrpc"
)

// Tab is a page of the browser. Its fields are guarded by the browser's lock.
type Tab struct {
	b      *Browser
	main   *target
	parts  []*target // frames of other sites
	number int
	begun  chan struct{}   // closed when its renderer has answered
	hidden bool            // an agent does not see it: see hidden.go
	paused func(cdp.Event) // handles the events of the Fetch domain; must not wait

	url, title      string
	loader          string     // of the document
	documents       []document // the latest ones, this one last
	parsed, loaded  bool
	parsings        int                   // documents that were parsed, counted
	navigations     int                   // of the main frame, counted
	address         string                // of the document, by its navigations
	routes          int                   // addresses that its scripts have given it, counted
	starting        map[string]navigation // by frame
	downloads       int                   // that have begun, counted
	files           []string              // the names of the latest of them
	downloading     map[string]time.Time  // when those that run have begun
	dialog          *Dialog
	chooser         *Chooser
	unserved        bool     // the page has asked for a file in a way that nobody can serve
	picking         *picking // a person is to choose an element
	crashed, closed bool
	dragged         json.RawMessage // what the page would drag
	mouse           point           // where tools by coordinates have left it
	buttons         int             // that they have pressed
	at              time.Time       // when it was opened

	console    []Message
	sinceNav   int // how many of them are older than the document
	errorsTold int // how many of them NewErrors has looked at
	traffic    traffic

	last           []string // the snapshot that was given last
	lastNavigation int      // and the document that it was of
	media          string   // that is emulated
	features       map[string]string
}

func newTab(b *Browser, main *target, info targetInfo) *Tab {
	t := &Tab{b: b, main: main, url: info.URL, title: info.Title, starting: map[string]navigation{}, at: time.Now(),
		features: map[string]string{}, begun: make(chan struct{}),
		downloading: map[string]time.Time{}}
	t.traffic.byID = map[string]*Request{}
	return t
}

// document is one that a tab has had.
type document struct {
	loader string
	rival  string // of the one that the page before it had begun to load as well; "": none
	status Status // once it has been left
}

// maxDocuments is how many documents are remembered: one that is waited for may have
// been replaced by others when that is noticed.
const maxDocuments = 20

// committed notes that the main frame has another document.
func (t *Tab) committed(loader, url string) {
	rival := t.arrives(t.main.id, loader)
	t.url, t.address, t.crashed = url, url, false
	if t.loader == loader { // it was noticed by its life already
		return
	}
	if last := len(t.documents) - 1; last >= 0 {
		t.documents[last].status = t.statusLocked()
	}
	t.loader, t.parsed, t.loaded, t.chooser = loader, false, false, nil
	if t.documents = append(t.documents, document{loader: loader, rival: rival}); len(t.documents) > maxDocuments {
		t.documents = slices.Delete(t.documents, 0, maxDocuments/2)
	}
	t.navigations++
	t.sinceNav = len(t.console)
	t.traffic.begin(loader)
}

// navigation is one that has begun.
type navigation struct {
	at      time.Time
	started bool   // by the browser; else the page has only asked for it, and may not get it
	loader  string // of its document, once it is started
	before  string // of the one that was under way when it began
}

// requests notes that a frame has asked for a navigation.
func (t *Tab) requests(frame string) {
	n := t.starting[frame]
	n.at = time.Now()
	t.starting[frame] = n
}

// begins notes that a frame has begun a navigation.
func (t *Tab) begins(frame, loader string) {
	n := t.starting[frame]
	if n.loader == loader {
		n.loader = n.before
	}
	t.starting[frame] = navigation{time.Now(), true, loader, n.loader}
}

// arrives notes that a frame has another document: what had begun before that is over,
// but not what the page before it has begun since, whose document is the rival.
func (t *Tab) arrives(frame, loader string) (rival string) {
	if n := t.starting[frame]; n.before != "" && n.before == loader {
		return n.loader
	}
	delete(t.starting, frame)
	return ""
}

// isOvertaken reports whether a document was replaced by one that the page before it
// has begun to load.
func (t *Tab) isOvertaken(loader string) bool {
	i := slices.IndexFunc(t.documents, func(d document) bool { return d.loader == loader })
	return i >= 0 && i+1 < len(t.documents) && t.documents[i+1].loader == t.documents[i].rival
}

// isLeaving reports whether the tab is about to have another document.
func (t *Tab) isLeaving() bool { return t.starting[t.main.id].started }

// gone is why nothing can be done with the tab, nil if it can.
func (t *Tab) gone() error {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	switch {
	case t.closed:
		return errClosed
	case t.crashed:
		return errCrashed
	}
	return nil
}

// call sends a command to a target of the tab and waits for its answer, or until a
// dialog opens, which may hold the answer back: errDialog.
func (t *Tab) call(ctx context.Context, session, method string, params, result any) error {
	answer := make(chan error, 1)
	t.b.conn.Begin(session, method, params, func(raw json.RawMessage, err error) {
		if err == nil && result != nil {
			err = json.Unmarshal(raw, result)
		}
		answer <- err
	})
	for {
		t.b.mu.Lock()
		changed, dialog, crashed, closed := t.b.changed, t.dialog != nil, t.crashed, t.closed
		t.b.mu.Unlock()
		select {
		case err := <-answer:
			return err
		default:
		}
		switch {
		case closed:
			return errClosed
		case crashed:
			return errCrashed
		case dialog:
			return errDialog
		}
		select {
		case err := <-answer:
			return err
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// errBusy is the error of a page whose own script does not end.
var errBusy = errors.New("the page does not answer: a script of it runs without end, or it is too large. It was " +
	"stopped; browser_navigate loads another page")

// answers reports whether a page answers soon: none of its scripts runs without end.
func (t *Tab) answers(session string) bool {
	answered := make(chan struct{})
	t.b.conn.Begin(session, "Runtime.evaluate", map[string]string{"expression": "0"},
		func(json.RawMessage, error) { close(answered) })
	select {
	case <-answered:
		return true
	case <-time.After(answerPatience):
		return false
	}
}

// answerPatience is how long a page without a script that runs may take to answer.
const answerPatience = time.Second

// bounded bounds a call that needs the page's own thread. When the time is over, the
// script that the page runs is stopped.
func (t *Tab) bounded(ctx context.Context, session string, most time.Duration, call func(context.Context) error) error {
	inner, cancel := context.WithTimeoutCause(ctx, most, errBusy)
	defer cancel()
	err := call(inner)
	if !errors.Is(err, errBusy) {
		return err
	}
	if t.answers(session) { // to stop a script would stop the next one
		return fmt.Errorf("the page did not answer within %v", most)
	}
	t.b.conn.Begin(session, "Runtime.terminateExecution", nil, nil)
	return err
}

// exception is a script's error.
type exception struct {
	Text      string
	Exception struct {
		Description string
		Value       json.RawMessage
	}
}

func (e *exception) Error() string {
	switch {
	case e.Exception.Description != "":
		return e.Exception.Description
	case e.Exception.Value != nil:
		return e.Text + " " + string(e.Exception.Value)
	}
	return e.Text
}

// remote is a value of a page.
type remote struct {
	Type, Subtype, ObjectID, Description, ClassName string
	Value                                           json.RawMessage
	UnserializableValue                             string
}

// evaluated is the answer to Runtime.evaluate and Runtime.callFunctionOn.
type evaluated struct {
	Result           remote
	ExceptionDetails *exception
}

func (e *evaluated) err() error {
	if e.ExceptionDetails != nil {
		return e.ExceptionDetails
	}
	return nil
}

// isLost reports whether an error says that the document that was to answer has
// gone.
func isLost(err error) bool {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Message {
	case "Cannot find context with specified id", "Execution context was destroyed.",
		"Inspected target navigated or closed", "Cannot find default execution context",
		"No frame with given id found", "No frame for given id found":
		return true
	}
	return false
}

// State is what results say of a tab.
type State struct {
	URL, Title       string
	Status           Status
	Errors, Warnings int // of the console, since the document was loaded
}

// State returns the tab's state. A page that does not answer has the title that the
// browser has last seen, which may be that of the document before.
func (t *Tab) State(ctx context.Context) State {
	var now struct{ Title, URL string }
	err := errDialog
	if t.gone() == nil && !t.HasDialog() {
		short, cancel := context.WithTimeoutCause(ctx, stateTimeout, errBusy)
		err = t.run(short, t.mainFrame(), "page", nil, &now)
		cancel()
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if err == nil {
		t.title, t.url = now.Title, now.URL
	}
	s := State{URL: t.url, Title: t.title, Status: t.statusLocked()}
	for _, m := range t.console[t.sinceNav:] {
		switch m.Level {
		case "error":
			s.Errors++
		case "warning":
			s.Warnings++
		}
	}
	return s
}

// HasDialog reports whether a dialog is open.
func (t *Tab) HasDialog() bool {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return t.dialog != nil
}

// HandleDialog accepts or dismisses the dialog that is open.
func (t *Tab) HandleDialog(ctx context.Context, accept bool, prompt *string) error {
	t.b.mu.Lock()
	d, mark := t.dialog, t.markLocked()
	t.b.mu.Unlock()
	if d == nil {
		return errors.New("no dialog is open")
	}
	params := map[string]any{"accept": accept}
	if d.Type == "prompt" && accept {
		params["promptText"] = d.DefaultPrompt
		if prompt != nil {
			params["promptText"] = *prompt
		}
	}
	if err := t.b.conn.Call(ctx, d.session, "Page.handleJavaScriptDialog", params, nil); err != nil {
		return fmt.Errorf("cannot handle the dialog: %w", err)
	}
	t.b.mu.Lock()
	if t.dialog == d {
		t.dialog = nil
	}
	t.b.mu.Unlock()
	return t.settle(ctx, mark)
}

// noTab is the error of an index that no tab has.
func (b *Browser) noTab(index int) error {
	if n := b.Count(); n > 0 {
		return fmt.Errorf("there is no tab %d: there are 0 to %d", index, n-1)
	}
	return fmt.Errorf("there is no tab %d: none is open", index)
}
