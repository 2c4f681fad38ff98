package virtual

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"btools/lib/downloads"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
)

// downloadTable is what a session downloads. The browser's lock guards it.
type downloadTable struct {
	s      *Session
	all    map[string]*download
	wishes map[string]wish // of clients, by context
}

// download is a file that the browser downloads. Chrome reports all downloads to every connection with download
// events, along with the frame that started each.
type download struct {
	owned    bool              // it is known to be the session's
	foreign  bool              // no frame of the session has started it
	begun    json.RawMessage   // params of downloadWillBegin
	pending  []json.RawMessage // progress, until the owner is known
	context  string            // of the frame; "": unknown
	why      string            // the reason why it is canceled, if that is known
	complete bool              // Chrome has completed it
}

// wish is what a client wants done with the downloads of a context.
type wish struct {
	behavior string // of Browser.setDownloadBehavior
	dir      string // where it gets them, too; "": nowhere
}

// findFrameTimeout bounds the search for the page of a frame.
const findFrameTimeout = 5 * time.Second

// take makes the browser report the downloads of a context, and write them to the session's directory.
func (dt *downloadTable) take(ctx context.Context, context string) error {
	_, err := dt.s.link.Call(ctx, "", "Browser.setDownloadBehavior",
		dt.s.options.downloadParams(context, wish{behavior: "default"}))
	return err
}

// setDownloadBehavior executes the command for a context of the session. The session's own connection always receives
// download events; whether the client does is stored here.
func setDownloadBehavior(r request) {
	if !r.setContext() {
		return
	}
	wants := string(jsonrpc.Get(r.Params, "eventsEnabled")) == "true"
	r.sendDownloadBehavior(func() { r.k.downloads.wanted[r.Session] = wants })
}

// setPageDownloadBehavior executes the older command of a page.
func setPageDownloadBehavior(r request) {
	b := r.k.session.browser
	b.mu.Lock()
	t := r.k.sessions.targetLocked(r.Session)
	b.mu.Unlock()
	if t == nil {
		r.refuse(policy.NoMethod(r.Method))
		return
	}
	r.Method = "Browser.setDownloadBehavior"
	r.Params = jsonrpc.Set(r.Params, "browserContextId", quote(t.context))
	r.sendDownloadBehavior(func() {})
}

// sendDownloadBehavior sends what a client wants done with downloads, in the form that Chrome may see. done is called
// with the browser's lock if Chrome agrees.
func (r request) sendDownloadBehavior(done func()) {
	s, b := r.k.session, r.k.session.browser
	w := wish{jsonrpc.GetString(r.Params, "behavior"), jsonrpc.GetString(r.Params, "downloadPath")}
	context := jsonrpc.GetString(r.Params, "browserContextId")
	if w.isValid() { // else Chrome refuses it
		var refused *policy.Error
		if w.dir, refused = r.k.delivery.wishedDir(w); refused != nil {
			r.refuse(refused)
			return
		}
		if raw, err := json.Marshal(s.options.downloadParams(context, w)); err == nil {
			r.Params = raw
		}
		b.mu.Lock()
		s.downloads.wishes[context] = w // before a download begins
		b.mu.Unlock()
	}
	r.Params = jsonrpc.Set(r.Params, "eventsEnabled", json.RawMessage("true"))
	r.callOnSession(func(result json.RawMessage) json.RawMessage {
		b.mu.Lock()
		done()
		b.mu.Unlock()
		return result
	})
}

// wishedDir returns where the client gets its downloads; "": where the session's are.
func (d *delivery) wishedDir(w wish) (string, *policy.Error) {
	if w.behavior == "deny" || w.behavior == "default" {
		return "", nil
	}
	ctx, cancel := d.k.bounded()
	defer cancel()
	return d.dir(ctx, w.dir)
}

// isValid reports whether Chrome accepts it.
func (w wish) isValid() bool {
	switch w.behavior {
	case "deny", "default":
		return true
	case "allow", "allowAndName":
		return w.dir != ""
	}
	return false
}

// event handles an event of the session's own connection.
func (s *Session) event(method, session string, params json.RawMessage) {
	if session != "" {
		switch method {
		case "Target.attachedToTarget":
			s.emulates.partAttached(params)
		case "Target.detachedFromTarget":
			s.browser.mu.Lock()
			delete(s.emulates.parts, jsonrpc.GetString(params, "sessionId"))
			s.browser.mu.Unlock()
		case "Fetch.requestPaused":
			s.login.documentRequested(session, params)
		case "Page.frameNavigated":
			s.pages.frameNavigated(session, params)
		case "DOMStorage.domStorageItemAdded", "DOMStorage.domStorageItemUpdated", "DOMStorage.domStorageItemRemoved",
			"DOMStorage.domStorageItemsCleared", "Storage.indexedDBContentUpdated":
			s.keep.stored(session, params)
		}
		return
	}
	switch method {
	case "Browser.downloadWillBegin":
		s.downloads.started(params)
	case "Browser.downloadProgress":
		s.downloads.progressed(params)
	}
}

// started reports a download to clients if it is the session's.
func (dt *downloadTable) started(params json.RawMessage) {
	b := dt.s.browser
	guid, frame := jsonrpc.GetString(params, "guid"), jsonrpc.GetString(params, "frameId")
	b.mu.Lock()
	defer b.mu.Unlock()
	if dt.s.life.isOver() {
		return
	}
	dt.all[guid] = &download{begun: params}
	if t := b.starterLocked(frame); t != nil { // the ID of a main frame is its target's
		dt.assignLocked(guid, t.session == dt.s, t.context)
		return
	}
	pages := map[string]string{} // the session's own CDP sessions, by context
	for _, t := range dt.s.pages.attachedLocked() {
		pages[t.own] = t.context
	}
	dt.s.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), findFrameTimeout)
		defer cancel()
		context, owned := dt.findFrame(ctx, pages, frame)
		b.mu.Lock()
		defer b.mu.Unlock()
		dt.assignLocked(guid, owned, context)
	})
}

// sync returns when the downloads that Chrome has reported so far have been passed on to clients that want them. A
// client must learn of a download before it learns that the tab of the download has closed, and the two come over
// different connections.
func (d *downloadEvents) sync() {
	b := d.k.session.browser
	b.mu.Lock()
	wanted := slices.Contains(slices.Collect(maps.Values(d.wanted)), true)
	b.mu.Unlock()
	if !wanted {
		return
	}
	ctx, cancel := context.WithTimeout(d.k.ctx, syncTimeout)
	defer cancel()
	d.k.session.link.Call(ctx, "", "Browser.getVersion", nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	d.passLocked(d.last)
}

// downloadEvents are the events of downloads that wait until the client has been told what Chrome had said before on
// its own connection, such as that a tab has opened.
type downloadEvents struct {
	k       *Client
	wanted  map[string]bool // the CDP sessions that get them
	waiting []json.RawMessage
	last    int // number of the last event so far
}

// putLocked sends the client an event, after what Chrome has said before.
func (d *downloadEvents) putLocked(message json.RawMessage) {
	e := d
	e.waiting = append(e.waiting, message)
	e.last++
	n, b := e.last, d.k.session.browser
	d.k.calls.Begin("", "Browser.getVersion", nil, func(json.RawMessage, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		d.passLocked(n)
	})
}

// passLocked sends the client the events up to the n-th.
func (d *downloadEvents) passLocked(n int) {
	e := d
	for len(e.waiting) > 0 && e.last-len(e.waiting) < n {
		d.k.toClient.Put(e.waiting[0])
		e.waiting = e.waiting[1:]
	}
}

// syncTimeout bounds how long the end of a tab is kept from a client.
const syncTimeout = time.Second

// findFrame returns the context of the page that has a frame. Pages are given by the session's own CDP sessions.
func (dt *downloadTable) findFrame(ctx context.Context, pages map[string]string, frame string) (string, bool) {
	for page, context := range pages {
		tree, err := dt.s.link.Call(ctx, page, "Page.getFrameTree", nil)
		if err == nil && isFrameInTree(jsonrpc.Get(tree, "frameTree"), frame) {
			return context, true
		}
	}
	return "", false
}

// isFrameInTree reports whether a frame is in a FrameTree.
func isFrameInTree(tree json.RawMessage, frame string) bool {
	if jsonrpc.GetString(tree, "frame", "id") == frame {
		return true
	}
	for child := range jsonrpc.Elements(jsonrpc.Get(tree, "childFrames")) {
		if isFrameInTree(child, frame) {
			return true
		}
	}
	return false
}

// assignLocked reports a download of this session to its clients. One of an unknown frame, such as that of a pop-up
// that became the download, is the session's once Chrome writes it to the session's directory.
func (dt *downloadTable) assignLocked(guid string, owned bool, context string) {
	d := dt.all[guid]
	if d == nil || dt.s.life.isOver() {
		return
	}
	if !owned {
		if d.foreign = true; !dt.s.options.keepsDownloads() || dt.s.browser.contexts[context] != nil {
			delete(dt.all, guid)
			return
		}
		dt.claimLocked(guid, d)
		return
	}
	d.owned, d.context = true, context
	dt.s.clients.notifyDownloadLocked("Browser.downloadWillBegin", d.begun)
	url := jsonrpc.GetString(d.begun, "url")
	if dt.s.lock.hides.Load() {
		url = policy.Origin(url)
	}
	if dt.s.options.keepsDownloads() && !dt.s.options.Files.Begin(guid, url,
		jsonrpc.GetString(d.begun, "suggestedFilename")) {
		dt.stopLocked(guid, d)
	}
	pending := d.pending
	d.pending = nil
	for _, p := range pending {
		dt.progressLocked(guid, d, p)
	}
}

// claimLocked takes over a download of an unknown frame if Chrome writes it to the session's directory.
func (dt *downloadTable) claimLocked(guid string, d *download) {
	if dt.s.options.Files.HasIncoming(guid) {
		dt.assignLocked(guid, true, "")
		return
	}
	if n := len(d.pending); n > 0 && jsonrpc.GetString(d.pending[n-1], "state") != "inProgress" {
		delete(dt.all, guid)
	}
}

func (dt *downloadTable) progressed(params json.RawMessage) {
	guid := jsonrpc.GetString(params, "guid")
	dt.s.browser.mu.Lock()
	defer dt.s.browser.mu.Unlock()
	d := dt.all[guid]
	switch {
	case d == nil || dt.s.life.isOver():
	case d.owned:
		dt.progressLocked(guid, d, params)
	default:
		if len(d.pending) > 0 {
			d.pending = d.pending[:0] // the latest has it all
		}
		if d.pending = append(d.pending, params); d.foreign {
			dt.claimLocked(guid, d)
		}
	}
}

// progressLocked handles the progress of a download of the session.
func (dt *downloadTable) progressLocked(guid string, d *download, params json.RawMessage) {
	if jsonrpc.GetString(params, "state") != "inProgress" {
		dt.s.Touch()
	}
	if !dt.s.options.keepsDownloads() {
		dt.s.clients.notifyDownloadLocked("Browser.downloadProgress", params)
		if jsonrpc.GetString(params, "state") != "inProgress" {
			delete(dt.all, guid)
		}
		return
	}
	files := dt.s.options.Files
	switch jsonrpc.GetString(params, "state") {
	case "inProgress":
		dt.s.clients.notifyDownloadLocked("Browser.downloadProgress", params)
		if !files.Progress(guid, number(params, "receivedBytes"), number(params, "totalBytes")) {
			dt.stopLocked(guid, d)
		}
	case "completed":
		if !d.complete {
			d.complete = true
			dt.s.work.Go(func() { dt.complete(guid, d, params) })
		}
	default:
		why := d.why
		if why == "" {
			why = downloads.Interrupted
			if dt.wishes[d.context].behavior == "deny" {
				why = downloads.Canceled
			}
		}
		delete(dt.all, guid)
		files.Fail(guid, why)
		dt.s.clients.notifyDownloadLocked("Browser.downloadProgress", params)
	}
}

// number returns a number of an event.
func number(params json.RawMessage, name string) int64 {
	f, err := strconv.ParseFloat(string(jsonrpc.Get(params, name)), 64)
	if err != nil {
		return 0
	}
	return int64(f)
}

// stopLocked cancels a download beyond the session's limit.
func (dt *downloadTable) stopLocked(guid string, d *download) {
	if d.why != "" {
		return
	}
	d.why = downloads.Limit
	contexts := []string{d.context}
	if d.context == "" { // unknown: only the right one has it
		contexts = []string{dt.s.base}
		for id := range dt.s.contexts {
			contexts = append(contexts, id)
		}
	}
	for _, id := range contexts {
		dt.s.link.Send("", "Browser.cancelDownload", map[string]string{"guid": guid, "browserContextId": id})
	}
}

// complete puts a file where it belongs, and reports it to clients then.
func (dt *downloadTable) complete(guid string, d *download, params json.RawMessage) {
	files, b := dt.s.options.Files, dt.s.browser
	path, err := files.Move(guid)
	b.mu.Lock()
	w := dt.wishes[d.context]
	b.mu.Unlock()
	shown := path
	if err == nil && w.dir != "" {
		name, exact := filepath.Base(path), false
		if w.behavior == "allowAndName" {
			name, exact = guid, true
		}
		at, err := deliver(path, w.dir, name, exact)
		if shown = at; err != nil {
			b.log.Warn("cannot put a download where its client wants it: "+err.Error(), "guid", guid)
			shown = path
		}
	}
	why := downloads.Interrupted
	switch {
	case errors.Is(err, downloads.ErrLimit):
		why = downloads.Limit
	case err != nil:
		b.log.Warn("cannot keep a download: "+err.Error(), "guid", guid)
	}
	if err != nil {
		params = jsonrpc.Set(params, "state", quote("canceled"))
		files.Fail(guid, why)
	} else {
		params = jsonrpc.Set(params, "filePath", quote(shown))
	}
	dt.s.Touch()
	b.mu.Lock()
	delete(dt.all, guid)
	dt.s.clients.notifyDownloadLocked("Browser.downloadProgress", params)
	b.mu.Unlock()
	if err != nil {
		return
	}
	if err := files.Finish(dt.s.life.ctx.Done(), guid, path); err != nil {
		files.Fail(guid, downloads.Canceled)
	}
}

// dropLocked ends the downloads of a context that is disposed of: Chrome reports nothing of them any more.
func (dt *downloadTable) dropLocked(context string) {
	delete(dt.wishes, context)
	for guid, d := range dt.all {
		if d.owned && d.context == context && !d.complete {
			delete(dt.all, guid)
			if dt.s.options.keepsDownloads() {
				dt.s.options.Files.Fail(guid, downloads.Canceled)
			}
		}
	}
}
