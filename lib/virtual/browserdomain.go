package virtual

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"btools/lib/downloads"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
)

// closeBrowser ends the session: for its clients, the browser is closed.
func closeBrowser(r request) {
	r.k.toClient.Write(policy.Result(r.Command, emptyObject)) // before the connection ends
	r.k.session.stop(ErrClosed)
}

// cancelDownload cancels a download of the session.
func cancelDownload(r request) {
	b := r.k.session.browser
	b.mu.Lock()
	d := r.k.session.downloads.all[jsonrpc.GetString(r.Params, "guid")]
	known := d != nil && d.owned && !d.complete
	if known {
		d.why = downloads.Canceled
	}
	b.mu.Unlock()
	if !known {
		r.refuse(policy.NoDownload())
		return
	}
	if r.setContext() {
		r.callOnSession(nil)
	}
}

// getWindowForTarget records the window, which the session may use from then on.
func getWindowForTarget(r request) {
	r.forward(func(result json.RawMessage) json.RawMessage {
		b := r.k.session.browser
		if id, err := strconv.ParseInt(string(jsonrpc.Get(result, "windowId")), 10, 64); err == nil {
			b.mu.Lock()
			r.k.session.pages.windows[id] = true
			b.mu.Unlock()
		}
		return result
	})
}

// settingTimeout bounds how long a setting for all pages waits for one of them.
const settingTimeout = time.Second

// ignoreCertificateErrors applies the setting to each page of the session, now
// and later. Chrome would apply it to all contexts.
func ignoreCertificateErrors(r request) {
	if r.root == nil {
		r.forward(nil)
		return
	}
	s, b := r.k.session, r.k.session.browser
	ignore := string(jsonrpc.Get(r.Params, "ignore")) == "true"
	ctx, cancel := context.WithTimeout(r.k.ctx, settingTimeout) // one that has crashed does not answer
	defer cancel()
	b.mu.Lock()
	s.pages.ignoreCertErrors = ignore
	var answered sync.WaitGroup
	for _, t := range s.pages.attachedLocked() { // one that is gone meanwhile answers with an error
		own := t.own
		answered.Go(func() { s.link.Call(ctx, own, r.Method, map[string]bool{"ignore": ignore}) })
	}
	b.mu.Unlock()
	answered.Wait()
	r.reply(emptyObject)
}

// systemInfo describes the machine, without the browser's command line.
func systemInfo(r request) {
	r.forward(func(result json.RawMessage) json.RawMessage {
		return jsonrpc.Set(result, "commandLine", json.RawMessage(`"chrome"`))
	})
}
