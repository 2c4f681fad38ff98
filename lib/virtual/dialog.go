package virtual

import (
	"encoding/json"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
)

// Chrome lets a JavaScript dialog be answered only by CDP sessions that it has told of it, those with the domain Page.
// A person who comes later is told of it by us, and answers it on the CDP session of a client that was.

// told is a CDP session of a client that Chrome has told of a dialog.
type told struct {
	client  *Client
	session string
}

// dialogLocked notes an event of a dialog.
func (k *Client) dialogLocked(session, method string, params json.RawMessage) {
	t := k.sessions.targetLocked(session)
	switch {
	case t == nil:
	case method == "Page.javascriptDialogClosed":
		delete(t.dialogs, told{k, session})
	default:
		if t.dialogs == nil {
			t.dialogs = map[told]json.RawMessage{}
		}
		t.dialogs[told{k, session}] = params
	}
}

// dialogOf returns the dialog that is open in the page of a CDP session, of which Chrome has told other sessions only,
// and one of those; nil: none.
func (k *Client) dialogOf(session string) (told, json.RawMessage) {
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	t := k.sessions.targetLocked(session)
	if t == nil || t.dialogs[told{k, session}] != nil {
		return told{}, nil
	}
	for by, params := range t.dialogs {
		return by, params
	}
	return told{}, nil
}

// meetDialog tells a person of a dialog that is open already, or has it answered on another CDP session, and reports
// whether it does that.
func (r request) meetDialog() bool {
	if r.Method != "Page.enable" && r.Method != "Page.handleJavaScriptDialog" {
		return false
	}
	by, params := r.k.dialogOf(r.Session)
	switch {
	case params == nil:
	case r.Method == "Page.enable":
		r.k.toClient.Put(wire.Event(r.Session, "Page.javascriptDialogOpening", params))
	default:
		by.client.calls.Begin(by.session, r.Method, r.Params, r.answerTo(nil))
		return true
	}
	return false
}

// Chrome aborts if a page is to go elsewhere while a dialog is open, which closes that, the page opens another one, and
// a CDP session that was told of it ends: two alerts and a client that leaves end the pages of all sessions. The page
// is closed before.

// noteLeaving notes a command by which that may happen, and closes a page for which it is about to.
func (r request) noteLeaving() {
	switch r.Method {
	case "Page.navigate", "Page.reload", "Page.navigateToHistoryEntry":
		b := r.k.session.browser
		b.mu.Lock()
		defer b.mu.Unlock()
		if t := r.k.sessions.targetLocked(r.Session); t != nil && len(t.dialogs) > 0 {
			t.leaves = true
		}
	case "Page.disable":
		r.k.closeLeaving(func(session string) bool { return session == r.Session })
	case "Target.detachFromTarget":
		ends := jsonrpc.GetString(r.Params, "sessionId")
		r.k.closeLeaving(func(session string) bool { return session == ends })
	}
}

// closeLeaving closes the pages of which CDP sessions of the client that are about to end were told a dialog.
func (k *Client) closeLeaving(ends func(session string) bool) {
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, t := range b.targets {
		for by := range t.dialogs {
			if t.leaves && by.client == k && ends(by.session) {
				b.watcher.Begin("", "Target.closeTarget", map[string]any{"targetId": id},
					func(json.RawMessage, error) {})
			}
		}
	}
}
