package firefox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"btools/lib/browse"
	"btools/lib/jsonrpc"
)

// Tab is a page of the browser. Its fields are guarded by the browser's lock.
type Tab struct {
	b      *Browser
	id     string // of its context
	number int    // of all tabs that have been opened, from 1
	label  string // by which an agent names it; "": none
	closed bool

	dialog    *dialog // nil: none is open
	leaving   *string // the address to which a navigation leads; nil: there is none
	empty     int     // the status that the latest navigation has no page by
	begun     int     // how many navigations there were
	documents int     // that it has shown, counted
	url       string  // of the latest of them
	told      told    // by the page
}

var _ browse.Page = (*Tab)(nil)

// dialog is a dialog that is open.
type dialog struct{ kind, message string }

// told is what a page says of itself.
type told struct {
	URL, Title string
	Status     int // of HTTP, by which the document came; 0: it is not known
}

// event notes an event of the tab.
func (t *Tab) event(name string, params json.RawMessage) {
	switch name {
	case "userPromptOpened":
		t.dialog = &dialog{jsonrpc.GetString(params, "type"), jsonrpc.GetString(params, "message")}
	case "userPromptClosed":
		t.dialog = nil
	case "navigationStarted":
		t.leaving, t.empty = new(jsonrpc.GetString(params, "url")), 0
		t.begun++
	case responseStarted: // Firefox says no more of a navigation that this ends
		var status int
		json.Unmarshal(jsonrpc.Get(params, "response", "status"), &status)
		if browse.IsEmpty(status) && jsonrpc.GetString(params, "navigation") != "" {
			t.empty, t.leaving = status, nil
		}
	case "navigationCommitted":
		t.leaving, t.url = nil, jsonrpc.GetString(params, "url")
		t.documents++
	case "downloadWillBegin", "navigationFailed", "navigationAborted", "fragmentNavigated":
		t.leaving = nil
	}
}

// Document identifies the document that the tab shows.
func (t *Tab) Document() string {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return fmt.Sprint(t.id, " ", t.documents)
}

// ask returns what the page says of itself; its address alone if it says nothing soon, and if Firefox does not either,
// what the page has said before.
func (t *Tab) ask(ctx context.Context) (now told) {
	short, cancel := context.WithTimeout(ctx, t.b.of(browse.AnswerPatience))
	defer cancel()
	if t.Dialog() != "" || t.b.run(short, t.id, "page", nil, &now) != nil {
		now = told{URL: t.address(ctx)}
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if now.URL != "" {
		t.told = now
	}
	return t.told
}

// address returns the address of the tab; "": Firefox does not tell it soon.
func (t *Tab) address(ctx context.Context) string {
	short, cancel := context.WithTimeout(ctx, t.b.of(browse.AnswerPatience))
	defer cancel()
	var tree struct{ Contexts []node }
	err := t.b.conn.Call(short, "browsingContext.getTree", map[string]any{"root": t.id, "maxDepth": 0}, &tree)
	if err != nil || len(tree.Contexts) != 1 {
		return ""
	}
	return tree.Contexts[0].URL
}

// Address is that of the page.
func (t *Tab) Address(ctx context.Context) string { return t.ask(ctx).URL }

// State asks the page for its state.
func (t *Tab) State(ctx context.Context) browse.State {
	t.ask(ctx)
	return t.Seen()
}

// Seen is the state that the page has told last.
func (t *Tab) Seen() browse.State {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	s := browse.State{URL: t.told.URL, Title: t.told.Title,
		Status: browse.Status{Code: t.told.Status, Text: http.StatusText(t.told.Status)}}
	if t.leaving != nil {
		s.Leaving = browse.Redacted(*t.leaving)
	}
	return s
}

// CatchUp has nothing to wait for: Firefox tells of a document when that is there.
func (t *Tab) CatchUp() {}

// Dialog is the type of the dialog that is open; "": none is.
func (t *Tab) Dialog() string {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if t.dialog == nil {
		return ""
	}
	return t.dialog.kind
}

// Modals are the dialogs that wait for an agent, as results name them.
func (t *Tab) Modals() []string {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if t.dialog == nil {
		return nil
	}
	return []string{fmt.Sprintf("[%s]: %q can be handled by browser_handle_dialog", t.dialog.kind, t.dialog.message)}
}

// HandleDialog accepts or dismisses the dialog that is open.
func (t *Tab) HandleDialog(ctx context.Context, accept bool, prompt *string) error {
	if t.Dialog() == "" {
		return errors.New("no dialog is open")
	}
	params := map[string]any{"context": t.id, "accept": accept}
	if prompt != nil {
		params["userText"] = *prompt
	}
	since := t.mark()
	if err := t.b.call(ctx, t.id, "browsingContext.handleUserPrompt", params, nil); err != nil {
		return err
	}
	return t.settle(ctx, since)
}

// switchPatience is how long a tab may take to come to the front. It is there before, but
// Firefox waits for the page that was there, too.
const switchPatience = 500 * time.Millisecond

// activate brings the tab to the front.
func (t *Tab) activate(ctx context.Context) error {
	of := map[string]string{"context": t.id}
	for isAgain := false; ; isAgain = true {
		err := t.b.callFor(ctx, t.b.of(switchPatience), t.id, "browsingContext.activate", of, nil)
		t.b.mu.Lock()
		isOpen := !t.closed
		t.b.mu.Unlock()
		switch {
		case errors.Is(err, errLate):
			return nil
		case errors.Is(err, errClosed) && isOpen && !isAgain: // Firefox also says so when another tab closes just then
			continue
		}
		return err
	}
}

// close closes the tab, whatever its page does: it is not asked.
func (t *Tab) close(ctx context.Context) error {
	err := t.b.call(ctx, t.id, "browsingContext.close", map[string]string{"context": t.id}, nil)
	if err != nil && !errors.Is(err, errClosed) {
		return err
	}
	return t.b.wait(ctx, func() bool { return t.closed })
}
