package browse

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"btools/lib/webstorage"
)

// hiding is which tabs an agent does not see.
type hiding struct {
	b        *Browser
	hidden   map[string]bool // contexts and tabs
	opening  int             // hidden tabs whose names are not known yet
	deferred []attached      // tabs that may be one of them
}

// attached is a tab that the connection has been attached to.
type attached struct {
	session string
	info    targetInfo
}

// isHidden reports whether an agent does not see a tab: one of those here, or one
// that such a tab has opened.
func (h *hiding) isHidden(info targetInfo) bool {
	return h.hidden[info.TargetID] || h.hidden[info.BrowserContextID] || h.hidden[info.OpenerID]
}

// Bounds of opening and closing a hidden tab.
const (
	openTimeout  = 20 * time.Second
	closeTimeout = 3 * time.Second
)

// lasting is a context for what has to be done although its caller gives up: else the
// tab would stay.
func lasting(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), most,
		fmt.Errorf("the browser did not answer within %v", most))
}

// openTime is for how long a tab may open: not past the time that the caller has.
func (h *hiding) openTime(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(time.Until(end), h.b.of(openTimeout))
	}
	return h.b.of(openTimeout)
}

// overtime is the error of a tab that was not opened: the caller's, if its time is over.
func overtime(ctx context.Context, err error) error {
	if end, ok := ctx.Deadline(); err != nil && ok && !time.Now().Before(end) {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return err
}

// Fresh opens a hidden tab in a browser context of its own, without storage, and
// with a copy of the session's cookies or without cookies. The function that it returns
// closes it, and all that it has opened.
func (h *hiding) Fresh(ctx context.Context, cookies bool) (t *Tab, end func(), err error) {
	long, cancel := lasting(ctx, h.openTime(ctx))
	defer cancel()
	var made struct{ BrowserContextID string }
	err = h.b.conn.Call(long, "", "Target.createBrowserContext", map[string]bool{"disposeOnDetach": true}, &made)
	if err != nil {
		return nil, nil, overtime(ctx, fmt.Errorf("cannot create a browser context: %w", err))
	}
	id := made.BrowserContextID
	h.hide(id, true)
	closeContext := func() {
		long, cancel := lasting(ctx, h.b.of(closeTimeout))
		defer cancel()
		h.b.conn.Call(long, "", "Target.disposeBrowserContext", map[string]string{"browserContextId": id}, nil)
		h.hide(id, false)
		if t != nil {
			h.hide(t.main.id, false)
		}
	}
	if cookies {
		if err = h.copyCookies(long, id); err != nil {
			closeContext()
			return nil, nil, overtime(ctx, fmt.Errorf("cannot copy the session's cookies: %w", err))
		}
	}
	t, err = h.openHidden(long, map[string]any{"browserContextId": id})
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		closeContext()
		return nil, nil, overtime(ctx, err)
	}
	return t, closeContext, nil
}

// copyCookies gives a browser context the session's cookies.
func (h *hiding) copyCookies(ctx context.Context, to string) error {
	all, err := h.b.Cookies(ctx)
	if err != nil {
		return err
	}
	return webstorage.SetCookies(ctx, wired{h.b.conn}, to, all)
}

// aside opens a hidden tab in the session's own context.
func (h *hiding) aside(ctx context.Context) (*Tab, func(), error) {
	long, cancel := lasting(ctx, h.openTime(ctx))
	defer cancel()
	t, err := h.openHidden(long, map[string]any{})
	if err != nil {
		return nil, nil, overtime(ctx, err)
	}
	closeTab := func() {
		long, cancel := lasting(ctx, h.b.of(closeTimeout))
		defer cancel()
		h.b.closeTab(long, t)
		h.hide(t.main.id, false)
	}
	if ctx.Err() != nil {
		closeTab()
		return nil, nil, context.Cause(ctx)
	}
	return t, closeTab, nil
}

func (h *hiding) hide(id string, on bool) {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	if on {
		h.hidden[id] = true
	} else {
		delete(h.hidden, id)
	}
}

// openHidden opens a tab. Its event comes before the answer that says which one it
// is: tabs that come meanwhile wait for that.
func (h *hiding) openHidden(ctx context.Context, params map[string]any) (t *Tab, err error) {
	params["url"], params["background"] = "about:blank", true
	h.b.mu.Lock()
	h.opening++
	h.b.mu.Unlock()
	var made struct{ TargetID string }
	var given bool // up: then the tab must not stay
	got := make(chan error, 1)
	h.b.conn.Begin("", "Target.createTarget", params, func(raw json.RawMessage, err error) {
		h.b.mu.Lock()
		defer h.b.mu.Unlock()
		if err == nil {
			err = json.Unmarshal(raw, &made)
		}
		if err == nil {
			h.hidden[made.TargetID] = true
		}
		h.opening--
		waiting := h.deferred
		h.deferred = nil
		for _, a := range waiting {
			if h.opening > 0 && !h.isHidden(a.info) {
				h.deferred = append(h.deferred, a)
			} else {
				h.b.attach("", a.session, a.info)
			}
		}
		h.b.changed.Wake()
		if got <- err; given && err == nil {
			h.closeHidden(made.TargetID)
		}
	})
	select {
	case err = <-got:
	case <-ctx.Done():
		h.b.mu.Lock()
		defer h.b.mu.Unlock()
		if given = true; len(got) > 0 && <-got == nil { // it came meanwhile
			h.closeHidden(made.TargetID)
		}
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open a tab: %w", err)
	}
	err = h.b.wait(ctx, func() bool {
		for _, tg := range h.b.targets {
			if tg.id == made.TargetID && tg.tab.main == tg {
				t = tg.tab
			}
		}
		return t != nil && (t.parsed || t.closed)
	})
	if err != nil {
		h.closeHidden(made.TargetID)
	}
	return t, err
}

// closeHidden closes a tab and does not wait for that.
func (h *hiding) closeHidden(id string) {
	h.b.conn.Begin("", "Target.closeTarget", map[string]string{"targetId": id}, nil)
}

// Load opens an address and waits, for a bounded time, until the page has what its
// scripts fetch.
func (t *Tab) Load(ctx context.Context, address string) (string, error) {
	since := t.mark()
	address, err := t.Navigate(ctx, address)
	switch {
	case errors.Is(err, ErrDownload):
		return address, nil
	case err != nil:
		return address, err
	}
	return address, t.settle(ctx, since)
}

// Status is that of a response: 404 Not Found.
type Status struct {
	Code int // 0: it is not known
	Text string
	Asks bool // for a name and a password
}

// statusLocked is the status of the document. One that has come back from the history
// had its response before.
func (t *records) statusLocked() Status {
	if r := t.traffic.byID[t.loader]; r != nil && r.Status != 0 {
		asks := slices.ContainsFunc(slices.Collect(maps.Keys(r.Received)),
			func(name string) bool { return strings.EqualFold(name, "WWW-Authenticate") })
		return Status{r.Status, cmp.Or(r.StatusText, http.StatusText(r.Status)), asks}
	}
	for _, d := range slices.Backward(t.documents) {
		if d.loader == t.loader && d.status.Code != 0 {
			return d.status
		}
	}
	return Status{}
}
