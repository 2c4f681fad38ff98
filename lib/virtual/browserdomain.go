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
func (k *Client) closeBrowser(c policy.Command, _ *root) {
	k.toClient.Write(policy.Result(c, emptyObject)) // before the connection ends
	k.session.stop(ErrClosed)
}

// cancelDownload cancels a download of the session.
func (k *Client) cancelDownload(c policy.Command, _ *root) {
	b := k.session.browser
	b.mu.Lock()
	d := k.session.downloads.all[jsonrpc.GetString(c.Params, "guid")]
	known := d != nil && d.owned && !d.complete
	if known {
		d.why = downloads.Canceled
	}
	b.mu.Unlock()
	if !known {
		k.refuse(c, policy.NoDownload())
		return
	}
	if k.setContext(&c) {
		k.callOnSession(c, nil)
	}
}

// getWindowForTarget records the window, which the session may use from then
// on.
func (k *Client) getWindowForTarget(c policy.Command, r *root) {
	k.forward(c, r, func(result json.RawMessage) json.RawMessage {
		b := k.session.browser
		if id, err := strconv.ParseInt(string(jsonrpc.Get(result, "windowId")), 10, 64); err == nil {
			b.mu.Lock()
			k.session.pages.windows[id] = true
			b.mu.Unlock()
		}
		return result
	})
}

// settingTimeout bounds how long a setting for all pages waits for one of them.
const settingTimeout = time.Second

// ignoreCertificateErrors applies the setting to each page of the session, now
// and later. Chrome would apply it to all contexts.
func (k *Client) ignoreCertificateErrors(c policy.Command, r *root) {
	if r == nil {
		k.forward(c, r, nil)
		return
	}
	s, b := k.session, k.session.browser
	ignore := string(jsonrpc.Get(c.Params, "ignore")) == "true"
	ctx, cancel := context.WithTimeout(k.ctx, settingTimeout) // one that has crashed does not answer
	defer cancel()
	b.mu.Lock()
	s.pages.ignoreCertErrors = ignore
	var pages []string
	for _, own := range s.pages.own {
		pages = append(pages, own)
	}
	b.mu.Unlock()
	var answered sync.WaitGroup
	for _, own := range pages { // one that is gone meanwhile answers with an error
		answered.Go(func() { s.link.Call(ctx, own, c.Method, map[string]bool{"ignore": ignore}) })
	}
	answered.Wait()
	k.reply(c, emptyObject)
}

// systemInfo describes the machine, without the browser's command line.
func (k *Client) systemInfo(c policy.Command, r *root) {
	k.forward(c, r, func(result json.RawMessage) json.RawMessage {
		return jsonrpc.Set(result, "commandLine", json.RawMessage(`"chrome"`))
	})
}
