package browse

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/overlay"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/webmcp"

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
		for _, t := range b.All {
			if t.main.id == info.TargetID {
				t.url, t.title = info.URL, titleOf(info.Title, info.URL)
			}
		}
	case "Target.targetDestroyed":
		b.noteMadeLocked(decode[struct{ TargetID string }](e.Params).TargetID, false)
	case "Target.targetCrashed":
		id := decode[struct{ TargetID string }](e.Params).TargetID
		for _, t := range b.All {
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
	case "Runtime.executionContextCreated": // Chrome makes one again in the next document
		c := decode[struct {
			Context struct {
				ID      int
				Name    string
				AuxData struct{ FrameID string }
			}
		}](e.Params).Context
		if c.Name == worldName {
			t.worlds[c.AuxData.FrameID] = world{id: c.ID}
		}
	case "Runtime.executionContextDestroyed":
		id := decode[struct{ ExecutionContextID int }](e.Params).ExecutionContextID
		for f, w := range t.worlds {
			if w.id == id {
				delete(t.worlds, f)
			}
		}
	case "Page.frameNavigated":
		p := decode[struct {
			Frame struct{ ID, ParentID, LoaderID, URL, UnreachableURL string }
			Type  string
		}](e.Params)
		delete(t.worlds, p.Frame.ID)
		if p.Frame.ID != tab.main.id { // else when the page is there
			tab.toolsGone(t.session, p.Frame.ID)
		}
		if !tab.hidden {
			tab.b.visits.Add(p.Frame.URL)
			tab.b.noteFileLocked(p.Frame.URL)
		}
		if p.Frame.ID == tab.main.id {
			tab.committed(p.Frame.LoaderID, p.Frame.URL)
			tab.unreachable = p.Frame.UnreachableURL
			if p.Type == "BackForwardCacheRestore" { // the document as it was left
				tab.parsed, tab.loaded = true, true
				tab.parsings++
				// Or its tools are not told of again.
				for _, c := range []string{webmcp.Disable.Method, webmcp.Enable.Method} {
					tab.b.conn.Begin(t.session, c, nil, nil)
				}
			}
		}
	case page.NavigatedWithinDocument.Method:
		p := read(page.NavigatedWithinDocument, e.Params)
		delete(tab.starting, string(p.FrameID))
		if string(p.FrameID) == tab.main.id {
			tab.url = p.URL
			tab.navigations++
		}
	case page.FrameRequestedNavigation.Method:
		p := read(page.FrameRequestedNavigation, e.Params)
		if p.Disposition == page.ClientNavigationDispositionCurrentTab || p.Disposition == "" {
			tab.requests(string(p.FrameID))
		}
	case page.FrameStartedNavigating.Method:
		p := read(page.FrameStartedNavigating, e.Params)
		if p.NavigationType != page.FrameStartedNavigatingNavigationTypeSameDocument &&
			p.NavigationType != page.FrameStartedNavigatingNavigationTypeHistorySameDocument {
			tab.begins(string(p.FrameID), string(p.LoaderID), p.URL)
		}
	case page.FrameStoppedLoading.Method, page.FrameDetached.Method:
		p := read(page.FrameDetached, e.Params) // the other one has no reason
		if p.Reason != page.FrameDetachedReasonSwap {
			delete(tab.starting, string(p.FrameID))
		} // else it goes on in another process
		if e.Method == page.FrameDetached.Method {
			tab.toolsGone(t.session, string(p.FrameID))
		}
	case page.LifecycleEvent.Method:
		p := read(page.LifecycleEvent, e.Params)
		if string(p.FrameID) != tab.main.id {
			break
		}
		switch p.Name {
		case "init", "commit", "DOMContentLoaded", "load":
			// Page.frameNavigated is missing if a new renderer is set up too late.
			if loader := string(p.LoaderID); tab.loader != loader {
				url := tab.url
				if n := tab.starting[tab.main.id]; n.loader == loader {
					url = n.url
				}
				tab.committed(loader, url)
			}
			if !tab.parsed && (p.Name == "DOMContentLoaded" || p.Name == "load") {
				tab.parsed = true
				tab.parsings++
				t.patience = answering
			}
			tab.loaded = tab.loaded || p.Name == "load"
		}
	case page.WindowOpen.Method:
		if read(page.WindowOpen, e.Params).UserGesture { // else Chrome opens none
			tab.windows++
			tab.windowAt = time.Now()
		}
	case "Page.downloadWillBegin":
		p := decode[struct{ GUID, SuggestedFilename string }](e.Params)
		tab.downloads++
		tab.b.downloads++
		if tab.files = append(tab.files, p.SuggestedFilename); len(tab.files) > maxDocuments {
			tab.files = slices.Delete(tab.files, 0, maxDocuments/2)
		}
		tab.downloading[p.GUID] = time.Now()
	case "Page.downloadProgress":
		if p := decode[struct{ GUID, State string }](e.Params); p.State != "inProgress" {
			delete(tab.downloading, p.GUID)
		}
	case page.JavascriptDialogOpening.Method:
		p := read(page.JavascriptDialogOpening, e.Params)
		d := Dialog{string(p.Type), p.Message, p.DefaultPrompt, t.session}
		if tab.hidden || tab.closing { // nobody sees it
			tab.unblockLocked(&d)
			break
		}
		tab.dialog = &d
	case page.JavascriptDialogClosed.Method:
		accepted := read(page.JavascriptDialogClosed, e.Params).Result
		if tab.dialog != nil && tab.dialog.Type == "beforeunload" && !accepted {
			clear(tab.starting)
		}
		tab.dialog = nil
	case page.FileChooserOpened.Method:
		p := read(page.FileChooserOpened, e.Params)
		c := Chooser{string(p.Mode), int(p.BackendNodeID), t.session}
		if c.BackendNodeID == 0 { // showOpenFilePicker, which Chrome has refused already
			tab.unserved = true
		} else {
			tab.chooser = &c
		}
	case inspector.TargetCrashed.Method:
		tab.crashed = tab.crashed || t == tab.main
		tab.toolsGone(t.session, "")
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
	case overlay.InspectNodeRequested.Method:
		if p := tab.picking; p != nil && p.by == nil {
			p.by, p.node = t, int(read(overlay.InspectNodeRequested, e.Params).BackendNodeID)
		}
	case overlay.InspectModeCanceled.Method:
		if tab.picking != nil {
			tab.picking.canceled = true
		}
	case "Input.dragIntercepted":
		tab.dragged = decode[struct{ Data json.RawMessage }](e.Params).Data
	case webmcp.ToolsAdded.Method, webmcp.ToolsRemoved.Method, webmcp.ToolInvoked.Method, webmcp.ToolResponded.Method:
		t.toolEvent(e)
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
func (t *link) unblockLocked(d *Dialog) {
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
		all = append(all, fmt.Sprintf("[%q dialog with message %q]: can be handled by browser_handle_dialog", d.Type,
			cut(d.Message, maxMessage)))
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
