package browse

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"btools/lib/cdp"
	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
)

// Tab is a page of the browser. What is done with it is said by its parts, whose fields are guarded by the browser's
// lock.
type Tab struct {
	*link
	*records
	*frames
	*effects
	*input
	*elements
	*pageTools
	*picker
	*pictures

	number int
	hidden bool            // an agent does not see it: see hidden.go
	paused func(cdp.Event) // handles the events of the Fetch domain; must not wait
	at     time.Time       // when it was opened
}

// link is the way to a tab: its targets, and whether they can be asked.
type link struct {
	b     *Browser
	main  *target
	parts []*target // frames of other sites
	history
	begun           bool    // its renderer has answered
	dialog          *Dialog // nil: none is open
	crashed, closed bool
	closing         bool // it is to be closed: a dialog must not prevent that
}

// history is which documents a tab shows, has Shown and is about to show.
type history struct {
	url, title     string
	unreachable    string     // the address in whose place the browser shows a page of an error; "": none
	loader         string     // of the document
	documents      []document // the latest ones, this one last
	parsed, loaded bool
	parsings       int                   // documents that were parsed, counted
	navigations    int                   // of the main frame, counted
	starting       map[string]navigation // by frame
}

var _ Page = (*Tab)(nil)

func newTab(b *Browser, main *target, info targetInfo) *Tab {
	l := &link{b: b, main: main, history: history{url: info.URL, title: info.Title, starting: map[string]navigation{}}}
	r := &records{link: l, traffic: traffic{byID: map[string]*Request{}}}
	f := &frames{link: l}
	e := &effects{frames: f, records: r, downloading: map[string]time.Time{}}
	i := &input{effects: e}
	el := newElements(i)
	return &Tab{link: l, records: r, frames: f, effects: e, input: i, elements: el, pageTools: &pageTools{effects: e},
		picker: &picker{elements: el}, pictures: &pictures{elements: el, media: map[string]string{}}, at: time.Now()}
}

// Browser is the browser whose tab it is.
func (t *Tab) Browser() *Browser { return t.b }

// document is a document that a tab has Shown.
type document struct {
	loader string
	rival  string // loader of the competing document; "" if there was none
	status Status // set once the document has been left
}

// maxDocuments is how many documents are remembered: one that is waited for may have
// been replaced by others when that is noticed.
const maxDocuments = 20

// committed notes that the main frame has another document.
func (t *Tab) committed(loader, url string) {
	rival := t.arrives(t.main.id, loader)
	t.url, t.crashed = url, false
	if t.loader == loader { // it was noticed by its life already
		return
	}
	if last := len(t.documents) - 1; last >= 0 {
		t.documents[last].status = t.statusLocked()
	}
	t.loader, t.parsed, t.loaded, t.chooser, t.unreachable = loader, false, false, nil, ""
	if t.documents = append(t.documents, document{loader: loader, rival: rival}); len(t.documents) > maxDocuments {
		t.documents = slices.Delete(t.documents, 0, maxDocuments/2)
	}
	t.navigations++
	t.toolsGone("", "")
	t.sinceNav = len(t.console)
	t.traffic.begin(loader, t.documents)
}

// Document identifies the document that the tab shows. A change of its address within it makes no other one.
func (t *Tab) Document() string {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return fmt.Sprint(t.number, " ", t.loader)
}

// navigation is one that has begun.
type navigation struct {
	url     string
	at      time.Time
	started bool   // by the browser; else the page has only asked for it, and may not get it
	loader  string // of its document, once it is started
	before  string // of the one that was under way when it began
}

// requests notes that a frame has asked for a navigation.
func (t *history) requests(frame string) {
	n := t.starting[frame]
	n.at = time.Now()
	t.starting[frame] = n
}

// begins notes that a frame has begun a navigation.
func (t *history) begins(frame, loader, url string) {
	n := t.starting[frame]
	if n.loader == loader {
		n.loader = n.before
	}
	t.starting[frame] = navigation{url, time.Now(), true, loader, n.loader}
}

// arrives notes that a frame has another document: what had begun before that is over,
// but not what the page before it has begun since, whose document is the rival.
func (t *history) arrives(frame, loader string) (rival string) {
	if n := t.starting[frame]; n.before != "" && n.before == loader {
		return n.loader
	}
	delete(t.starting, frame)
	return ""
}

// isOvertaken reports whether a document was replaced by one that the page before it
// has begun to load.
func (t *history) isOvertaken(loader string) bool {
	i := slices.IndexFunc(t.documents, func(d document) bool { return d.loader == loader })
	return i >= 0 && i+1 < len(t.documents) && t.documents[i+1].loader == t.documents[i].rival
}

// isLeaving reports whether the tab is about to have another document.
func (t *link) isLeaving() bool { return t.starting[t.main.id].started }

// gone is why nothing can be done with the tab, nil if it can.
func (t *link) gone() error {
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

// call sends a command to a target of the tab and waits for its answer, for as long as a
// page may run a script, a frame of another site for less. It gives up at once when
// there is no answer to be expected: if a dialog opens, which may hold it back, the page
// is gone, or it is leaving.
func (t *link) call(ctx context.Context, session, method string, params, result any) error {
	most := ScriptTimeout
	if session != t.main.session {
		most = FrameTimeout
	}
	return t.callFor(ctx, most, session, method, params, result)
}

// callFor is call with another bound.
func (t *link) callFor(ctx context.Context, most time.Duration, session, method string, params, result any) error {
	_, err := t.answerOf(ctx, most, session, t.begin(session, method, params), result)
	return err
}

// answerOf waits for the answer to a command that was sent to a target of the tab, as call
// does.
func (t *link) answerOf(ctx context.Context, most time.Duration, session string, got <-chan answer, result any,
) (answer, error) {
	if t.patience(session) == mute {
		most = AnswerPatience
	}
	most = t.b.of(most)
	a, err := t.await(ctx, got, result, t.patient(time.Now().Add(most)))
	switch {
	case errors.Is(err, errLate):
		return a, t.late(session, most)
	case err != nil && ctx.Err() != nil:
		t.loseUnless(got, session)
	}
	return a, err
}

// patient returns what says why nothing of the tab is waited for any longer, nil if it is, and when to ask again. It is
// asked with the lock held. A page that is leaving is given some seconds.
func (t *link) patient(end time.Time) func() (error, time.Duration) {
	stays := time.Now() // the page was not leaving
	return func() (error, time.Duration) {
		now := time.Now()
		if !t.isLeaving() {
			stays = now
		}
		left, patience := end.Sub(now), stays.Add(t.b.of(leavePatience)).Sub(now)
		switch err := t.overLocked(); {
		case err != nil:
			return err, 0
		case left <= 0:
			return errLate, 0
		case !t.isLeaving():
			return nil, left
		case patience <= 0:
			return &leavingError{t.starting[t.main.id].url}, 0
		}
		return nil, min(left, patience)
	}
}

var errLate = errors.New("there was no answer in time")

// answer is that to a command.
type answer struct {
	raw    json.RawMessage
	err    error
	number int // an answer that came later has a greater one; 0: there is none
}

// into decodes an answer, unless there is nothing to decode it into.
func (a answer) into(result any) error {
	switch {
	case isLost(a.err):
		return &lostError{a.err}
	case a.err != nil || result == nil:
		return a.err
	}
	return json.Unmarshal(a.raw, result)
}

// await waits for an answer and decodes it, unless there is a reason to give up, which is
// asked for with the lock held, after each event and after the time that it returns.
func (t *link) await(ctx context.Context, got <-chan answer, result any, why func() (error, time.Duration),
) (answer, error) {
	for {
		t.b.mu.Lock()
		changed := t.b.changed.Next()
		err, again := why()
		t.b.mu.Unlock()
		select {
		case a := <-got:
			return a, a.into(result)
		default:
		}
		if err != nil {
			return answer{}, err
		}
		timer := time.NewTimer(again)
		select {
		case a := <-got:
			timer.Stop()
			return a, a.into(result)
		case <-changed:
		case <-timer.C:
		case <-t.b.conn.Done():
			return answer{}, wire.ErrDisconnected
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		}
		timer.Stop()
	}
}

// until waits until something is so, as a tool waits for the tab. It is asked with the lock held.
func (t *link) until(ctx context.Context, most time.Duration, is func() bool) error {
	isSo, patient := errors.New("it is so"), t.patient(time.Now().Add(most))
	_, err := t.await(ctx, nil, nil, func() (error, time.Duration) {
		if is() {
			return isSo, 0
		}
		return patient()
	})
	if err == isSo {
		return nil
	}
	return err
}

// begin sends a command to a target of the tab. Its answer comes on the channel.
func (t *link) begin(session, method string, params any) <-chan answer {
	got := make(chan answer, 1)
	t.b.conn.Begin(session, method, params, func(raw json.RawMessage, err error) {
		if isNoSession(err) {
			err = errClosed
		}
		t.b.mu.Lock()
		defer t.b.mu.Unlock()
		if tg := t.b.targets[session]; tg != nil {
			tg.patience = answering
		}
		t.b.answers++
		got <- answer{raw, err, t.b.answers}
	})
	return got
}

// loseUnless notes that a caller has given up a target, unless it has just answered.
func (t *link) loseUnless(got <-chan answer, session string) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if tg := t.b.targets[session]; tg != nil && len(got) == 0 {
		tg.patience = max(tg.patience, slow)
	}
}

// patience is how a target has answered, until it answers again.
func (t *link) patience(session string) patience {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if tg := t.b.targets[session]; tg != nil {
		return tg.patience
	}
	return answering
}

// overLocked is why no answer of the tab is to be expected, nil if one is.
func (t *link) overLocked() error {
	switch {
	case t.closed:
		return errClosed
	case t.crashed:
		return errCrashed
	case t.dialog != nil:
		return errDialog
	}
	return nil
}

// leavingError is that of a page that is leaving: Chrome tells it nothing until the next
// one comes.
type leavingError struct{ url string }

func (e *leavingError) Error() string {
	return e.fact() + ": browser_wait_for waits for it, browser_navigate opens another page instead"
}

func (e *leavingError) fact() string {
	return fmt.Sprintf("the page is leaving for %s, whose server has not answered",
		cmp.Or(Redacted(e.url), "another page"))
}

// Errors of a page, or of a browser, that does not answer.
var (
	errBusy = errors.New("the page does not answer: a script of it runs without end, or it is too large. It was " +
		"stopped; browser_navigate loads another page")
	errStuck = errors.New("the page does not answer: a script of it runs without end and cannot be stopped, " +
		"or it is too large. browser_navigate opens another page in its place")
	errSilent = errors.New("the browser does not answer")
)

const errFrame = FrameError("a frame of another site does not answer: a script of it runs without end")

// late is why a target has not answered in time. If the page runs a script, that is
// stopped.
func (t *link) late(session string, most time.Duration) error {
	t.b.mu.Lock()
	if tg := t.b.targets[session]; tg != nil {
		tg.patience = mute
	}
	t.b.mu.Unlock()
	switch {
	case session != t.main.session:
		return errFrame
	case t.answers(session): // to stop a script would stop the next one
		if t.awaitsFrame() { // as a PDF does
			return errFrame
		}
		return fmt.Errorf("the page did not answer within %v", most)
	case !t.b.Answers():
		return errSilent
	}
	if t.b.conn.Begin(session, "Runtime.terminateExecution", nil, nil); !t.answers(session) {
		return errStuck
	}
	return errBusy
}

// awaitsFrame reports whether a frame of another site does not answer.
func (t *link) awaitsFrame() bool {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return slices.ContainsFunc(t.parts, func(p *target) bool { return p.patience != answering })
}

// answers reports whether a page answers soon: none of its scripts runs without end.
func (t *link) answers(session string) bool {
	return t.b.isAnswered(AnswerPatience, session, "Runtime.evaluate", map[string]string{"expression": "0"})
}

// Answers reports whether the browser itself answers soon.
func (b *Browser) Answers() bool {
	return b.isAnswered(3*AnswerPatience, "", "Browser.getVersion", nil)
}

func (b *Browser) isAnswered(within time.Duration, session, method string, params any) bool {
	answered := make(chan struct{})
	b.conn.Begin(session, method, params, func(json.RawMessage, error) { close(answered) })
	select {
	case <-answered:
		b.mu.Lock()
		defer b.mu.Unlock()
		if t := b.targets[session]; t != nil {
			t.patience = answering
		}
		return true
	case <-time.After(b.of(within)):
		return false
	}
}

// exception is a script's error.
type exception struct {
	Text      string
	Exception remote
}

func (e *exception) Error() string {
	switch x := e.Exception; {
	case x.Subtype == "error":
		return x.Description
	case x.Type != "": // any value can be thrown
		return e.Text + " " + x.text()
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

// isNoSession reports whether an error says that the target has gone.
func isNoSession(err error) bool {
	var e *jsonrpc.Error
	return errors.As(err, &e) && e.Message == "Session with given id not found."
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
		"No frame with given id found", "No frame for given id found", "Not attached to an active page":
		return true
	}
	return false
}

// lostError is such an error in words for an agent.
type lostError struct{ err error }

func (e *lostError) Error() string {
	return "the page has been replaced meanwhile: take a new snapshot"
}
func (e *lostError) Unwrap() error { return e.err }

// State is what results say of a tab.
type State struct {
	URL, Title       string
	NotLoaded        bool // the browser shows a page of its own in its place, which says why
	Status           Status
	Errors, Warnings int // of the console, since the document was loaded

	Leaving string   // the address of the page that is to come; "": none is
	Waits   []string // the addresses that a document which is not complete waits for
}

// State returns the tab's state. A page that is not asked, because it could not answer,
// or does not answer soon has the title that the browser has last seen.
func (t *Tab) State(ctx context.Context) State {
	t.b.mu.Lock()
	asks := t.canTellLocked()
	t.b.mu.Unlock()
	if asks {
		var now Shown
		short, cancel := context.WithTimeoutCause(ctx, t.b.of(AnswerPatience), errBusy)
		f := t.mainFrame()
		got, err := f.evaluateIf(short, f.empty, metBy(nil), askPage(), true)
		if err == nil && answered(got.Value, &now) == nil {
			t.note(now)
		}
		cancel()
	}
	return t.Seen()
}

// canTellLocked reports whether the page can say soon what it is.
func (t *link) canTellLocked() bool {
	return t.overLocked() == nil && t.loader != "" && !t.isLeaving() && t.main.patience == answering
}

// note keeps what a page says of itself.
func (t *link) note(now Shown) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	t.title, t.url = now.Title, now.URL
}

// addressLocked is that of the page, or of the one that could not be loaded.
func (t *history) addressLocked() string { return cmp.Or(t.unreachable, t.url) }

// Seen is the state as it was seen last, such as by a snapshot: the page is not asked.
func (t *Tab) Seen() State {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	s := State{URL: cmp.Or(t.addressLocked(), "about:blank"), Title: t.title, NotLoaded: t.unreachable != "",
		Status: t.statusLocked()}
	switch {
	case t.isLeaving():
		s.Leaving = Redacted(t.starting[t.main.id].url)
	case !t.parsed:
		s.Waits = t.waitsLocked()
	}
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

// waitsLocked are the addresses that the parser waits for, the document itself last.
func (t *records) waitsLocked() (all []string) {
	for _, r := range t.traffic.all {
		switch {
		case r.Done || r.loader != t.loader:
		case r.Type == "script" || r.Type == "stylesheet":
			all = append([]string{Redacted(r.URL)}, all...)
		case r.id == t.loader:
			all = append(all, Redacted(r.URL))
		}
	}
	return all
}

// Dialog is the type of the dialog that is open, such as beforeunload: the page is left once it is accepted; "": none
// is.
func (t *link) Dialog() string {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if t.dialog == nil {
		return ""
	}
	return t.dialog.Type
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
