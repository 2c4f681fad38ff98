package browse

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"btools/lib/cdp"
)

// targetInfo is what events say of a target.
type targetInfo struct {
	TargetID, Type, URL, Title string
	BrowserContextID, OpenerID string
}

// decode reads an event's parameters; what Chrome sends has their types.
func decode[T any](params json.RawMessage) (v T) {
	json.Unmarshal(params, &v)
	return v
}

// event handles an event.
func (b *Browser) event(e cdp.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.changed.Wake()
	switch e.Method {
	case "Target.attachedToTarget":
		p := decode[struct {
			SessionID  string
			TargetInfo targetInfo
		}](e.Params)
		if a := (attached{p.SessionID, p.TargetInfo}); e.Session == "" && b.opening > 0 && !b.isHidden(a.info) {
			b.deferred = append(b.deferred, a)
		} else {
			b.attach(e.Session, p.SessionID, p.TargetInfo)
		}
	case "Target.detachedFromTarget":
		b.detach(decode[struct{ SessionID string }](e.Params).SessionID)
	case "Target.targetInfoChanged":
		info := decode[struct{ TargetInfo targetInfo }](e.Params).TargetInfo
		for _, t := range b.tabs {
			if t.main.id == info.TargetID {
				t.url, t.title = info.URL, info.Title
			}
		}
	case "Target.targetCrashed":
		id := decode[struct{ TargetID string }](e.Params).TargetID
		for _, t := range b.tabs {
			t.crashed = t.crashed || t.main.id == id
		}
	default:
		if t := b.targets[e.Session]; t != nil {
			t.event(e)
		}
	}
}

// event handles an event of a target.
func (t *target) event(e cdp.Event) {
	tab := t.tab
	switch e.Method {
	case "Runtime.executionContextsCleared":
		clear(t.worlds)
	case "Runtime.executionContextDestroyed":
		id := decode[struct{ ExecutionContextID int }](e.Params).ExecutionContextID
		for f, w := range t.worlds {
			if w == id {
				delete(t.worlds, f)
			}
		}
	case "Page.frameNavigated":
		p := decode[struct {
			Frame struct{ ID, ParentID, LoaderID, URL string }
			Type  string
		}](e.Params)
		delete(t.worlds, p.Frame.ID)
		if !tab.hidden {
			tab.b.visits.Add(p.Frame.URL)
			tab.b.noteFileLocked(p.Frame.URL)
		}
		if p.Frame.ID == tab.main.id {
			tab.committed(p.Frame.LoaderID, p.Frame.URL)
			if p.Type == "BackForwardCacheRestore" { // the document as it was left
				tab.parsed, tab.loaded = true, true
				tab.parsings++
			}
		}
	case "Page.navigatedWithinDocument":
		p := decode[struct{ FrameID, URL string }](e.Params)
		delete(tab.starting, p.FrameID)
		if p.FrameID == tab.main.id {
			tab.url = p.URL
			tab.navigations++
		}
	case "Page.frameRequestedNavigation":
		p := decode[struct{ FrameID, Disposition string }](e.Params)
		if p.Disposition == "currentTab" || p.Disposition == "" {
			tab.requests(p.FrameID)
		}
	case "Page.frameStartedNavigating":
		p := decode[struct{ FrameID, LoaderID, URL, NavigationType string }](e.Params)
		if p.NavigationType != "sameDocument" && p.NavigationType != "historySameDocument" {
			tab.begins(p.FrameID, p.LoaderID, p.URL)
		}
	case "Page.frameStoppedLoading", "Page.frameDetached":
		p := decode[struct{ FrameID, Reason string }](e.Params)
		if p.Reason != "swap" { // it goes on in another process
			delete(tab.starting, p.FrameID)
		}
	case "Page.lifecycleEvent":
		p := decode[struct{ FrameID, LoaderID, Name string }](e.Params)
		if p.FrameID != tab.main.id {
			break
		}
		switch p.Name {
		case "init", "commit", "DOMContentLoaded", "load":
			// Page.frameNavigated is missing if a new renderer is set up too late.
			if tab.loader != p.LoaderID {
				tab.committed(p.LoaderID, tab.url)
			}
			if !tab.parsed && (p.Name == "DOMContentLoaded" || p.Name == "load") {
				tab.parsed = true
				tab.parsings++
				t.patience = answering
			}
			tab.loaded = tab.loaded || p.Name == "load"
		}
	case "Page.downloadWillBegin":
		p := decode[struct{ GUID, SuggestedFilename string }](e.Params)
		tab.downloads++
		if tab.files = append(tab.files, p.SuggestedFilename); len(tab.files) > maxDocuments {
			tab.files = slices.Delete(tab.files, 0, maxDocuments/2)
		}
		tab.downloading[p.GUID] = time.Now()
	case "Page.downloadProgress":
		if p := decode[struct{ GUID, State string }](e.Params); p.State != "inProgress" {
			delete(tab.downloading, p.GUID)
		}
	case "Page.javascriptDialogOpening":
		d := decode[Dialog](e.Params)
		d.session = t.session
		if tab.hidden || tab.closing { // nobody sees it
			tab.unblockLocked(&d)
			break
		}
		tab.dialog = &d
	case "Page.javascriptDialogClosed":
		if tab.dialog != nil && tab.dialog.Type == "beforeunload" && !decode[struct{ Result bool }](e.Params).Result {
			clear(tab.starting)
		}
		tab.dialog = nil
	case "Page.fileChooserOpened":
		c := decode[Chooser](e.Params)
		c.session = t.session
		if c.BackendNodeID == 0 { // showOpenFilePicker, which Chrome has refused already
			tab.unserved = true
		} else {
			tab.chooser = &c
		}
	case "Inspector.targetCrashed":
		tab.crashed = tab.crashed || t == tab.main
	case "Fetch.requestPaused", "Fetch.authRequired":
		if tab.paused != nil {
			tab.paused(e)
		} else if e.Method == "Fetch.requestPaused" {
			tab.b.work.Go(func() {
				if isFile(decode[pausedRequest](e.Params).Request.URL) && tab.b.refuses != nil {
					tab.b.judge(t.session, e)
				} else {
					tab.b.route(t.session, e)
				}
			})
		}
	case "Overlay.inspectNodeRequested":
		if p := tab.picking; p != nil && p.by == nil {
			p.by, p.node = t, decode[struct{ BackendNodeID int }](e.Params).BackendNodeID
		}
	case "Overlay.inspectModeCanceled":
		if tab.picking != nil {
			tab.picking.canceled = true
		}
	case "Input.dragIntercepted":
		tab.dragged = decode[struct{ Data json.RawMessage }](e.Params).Data
	case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
		tab.addMessage(e)
	default:
		tab.addTraffic(t, e)
	}
}

// Dialog is an alert, a confirm, a prompt or a beforeunload that is open.
type Dialog struct {
	Type          string
	Message       string
	DefaultPrompt string

	session string
}

// unblockLocked has a dialog prevent nothing.
func (t *Tab) unblockLocked(d *Dialog) {
	t.b.conn.Begin(d.session, "Page.handleJavaScriptDialog", map[string]bool{"accept": d.Type == "beforeunload"}, nil)
}

// Chooser is a file chooser that is open.
type Chooser struct {
	Mode          string // selectSingle or selectMultiple
	BackendNodeID int

	session string
}

// maxMessage is how many bytes of a dialog's message are shown.
const maxMessage = 2000

// Modals are the dialogs and choosers that wait for an agent, as results name them.
func (t *Tab) Modals() (all []string) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if d := t.dialog; d != nil {
		message := d.Message
		if len(message) > maxMessage {
			message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
		}
		all = append(all, fmt.Sprintf("[%q dialog with message %q]: can be handled by browser_handle_dialog", d.Type,
			message))
	}
	if t.chooser != nil {
		all = append(all, "[File chooser]: can be handled by browser_file_upload")
	}
	if t.unserved {
		t.unserved = false
		all = append(all, "[File picker of a script]: nothing can handle it, and the page was told that nobody chose "+
			"a file; an input of the type file, or browser_drop, may do instead")
	}
	return all
}
