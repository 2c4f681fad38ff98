package firefox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"btools/lib/browse"
	"btools/lib/jsonrpc"
)

// Tab is a page of the browser. Its fields are guarded by the browser's lock.
type Tab struct {
	browse.Elements[*frame]
	sight
	b      *Browser
	main   *frame
	id     string // of its context
	number int    // of all tabs that have been opened, from 1
	closed bool

	dialog    *dialog // nil: none is open
	leaving   *string // the address to which a navigation leads; nil: there is none
	empty     int     // the status that the latest navigation has no page by
	begun     int     // how many navigations there were
	documents int     // that it has shown, counted
	url       string  // of the latest of them
}

var _ browse.Page = (*Tab)(nil)

// dialog is a dialog that is open.
type dialog struct{ kind, message string }

func newTab(b *Browser, id string) *Tab {
	t := &Tab{b: b, id: id, number: b.opened}
	t.main, t.sight.t = &frame{tab: t, id: id}, t
	t.Elements = browse.NewElements(browse.Engine[*frame]{Refs: &b.refs, Of: b.of,
		Gone: func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if t.closed {
				return errClosed
			}
			return nil
		},
		Main: func() *frame { return t.main }, All: t.tree,
		Has: func(f *frame) bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return f != nil && b.topLocked(f.id) == t
		},
		Run: func(ctx context.Context, f *frame, script string, args map[string]any, result any) error {
			return b.run(ctx, f.id, script, args, result)
		},
		Noting: t.noting, Passing: isLost, Caused: isCaused,
		Watch: func() func(context.Context) error {
			since := t.mark()
			return func(ctx context.Context) error { return t.settle(ctx, since) }
		},
		Clicks: t.clicks, Hover: t.hover, Fill: t.fill, TypeKeys: t.typeKeys, EndTyping: t.endTyping})
	return t
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
