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

// attached is a tab that the connection has been attached to.
type attached struct {
	session string
	info    targetInfo
}

// isHidden reports whether an agent does not see a tab: one of those here, or one
// that such a tab has opened.
func (b *Browser) isHidden(info targetInfo) bool {
	return b.hidden[info.TargetID] || b.hidden[info.BrowserContextID] || b.hidden[info.OpenerID]
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
func (b *Browser) openTime(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(time.Until(end), b.of(openTimeout))
	}
	return b.of(openTimeout)
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
func (b *Browser) Fresh(ctx context.Context, cookies bool) (t *Tab, end func(), err error) {
	long, cancel := lasting(ctx, b.openTime(ctx))
	defer cancel()
	var made struct{ BrowserContextID string }
	err = b.conn.Call(long, "", "Target.createBrowserContext", map[string]bool{"disposeOnDetach": true}, &made)
	if err != nil {
		return nil, nil, overtime(ctx, fmt.Errorf("cannot create a browser context: %w", err))
	}
	id := made.BrowserContextID
	b.hide(id, true)
	closeContext := func() {
		long, cancel := lasting(ctx, b.of(closeTimeout))
		defer cancel()
		b.conn.Call(long, "", "Target.disposeBrowserContext", map[string]string{"browserContextId": id}, nil)
		b.hide(id, false)
		if t != nil {
			b.hide(t.main.id, false)
		}
	}
	if cookies {
		if err = b.copyCookies(long, id); err != nil {
			closeContext()
			return nil, nil, overtime(ctx, fmt.Errorf("cannot copy the session's cookies: %w", err))
		}
	}
	t, err = b.openHidden(long, map[string]any{"browserContextId": id})
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
func (b *Browser) copyCookies(ctx context.Context, to string) error {
	all, err := b.Cookies(ctx)
	if err != nil {
		return err
	}
	return webstorage.SetCookies(ctx, wired{b.conn}, to, all)
}

// aside opens a hidden tab in the session's own context.
func (b *Browser) aside(ctx context.Context) (*Tab, func(), error) {
	long, cancel := lasting(ctx, b.openTime(ctx))
	defer cancel()
	t, err := b.openHidden(long, map[string]any{})
	if err != nil {
		return nil, nil, overtime(ctx, err)
	}
	closeTab := func() {
		long, cancel := lasting(ctx, b.of(closeTimeout))
		defer cancel()
		b.closeTab(long, t)
		b.hide(t.main.id, false)
	}
	if ctx.Err() != nil {
		closeTab()
		return nil, nil, context.Cause(ctx)
	}
	return t, closeTab, nil
}

func (b *Browser) hide(id string, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if on {
		b.hidden[id] = true
	} else {
		delete(b.hidden, id)
	}
}

// openHidden opens a tab. Its event comes before the answer that says which one it
// is: tabs that come meanwhile wait for that.
func (b *Browser) openHidden(ctx context.Context, params map[string]any) (t *Tab, err error) {
	params["url"], params["background"] = "about:blank", true
	b.mu.Lock()
	b.opening++
	b.mu.Unlock()
	var made struct{ TargetID string }
	var given bool // up: then the tab must not stay
	got := make(chan error, 1)
	b.conn.Begin("", "Target.createTarget", params, func(raw json.RawMessage, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if err == nil {
			err = json.Unmarshal(raw, &made)
		}
		if err == nil {
			b.hidden[made.TargetID] = true
		}
		b.opening--
		waiting := b.deferred
		b.deferred = nil
		for _, a := range waiting {
			if b.opening > 0 && !b.isHidden(a.info) {
				b.deferred = append(b.deferred, a)
			} else {
				b.attach("", a.session, a.info)
			}
		}
		b.changed.Wake()
		if got <- err; given && err == nil {
			b.closeHidden(made.TargetID)
		}
	})
	select {
	case err = <-got:
	case <-ctx.Done():
		b.mu.Lock()
		defer b.mu.Unlock()
		if given = true; len(got) > 0 && <-got == nil { // it came meanwhile
			b.closeHidden(made.TargetID)
		}
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open a tab: %w", err)
	}
	err = b.wait(ctx, func() bool {
		for _, tg := range b.targets {
			if tg.id == made.TargetID && tg.tab.main == tg {
				t = tg.tab
			}
		}
		return t != nil && (t.parsed || t.closed)
	})
	if err != nil {
		b.closeHidden(made.TargetID)
	}
	return t, err
}

// closeHidden closes a tab and does not wait for that.
func (b *Browser) closeHidden(id string) {
	b.conn.Begin("", "Target.closeTarget", map[string]string{"targetId": id}, nil)
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

// Status is the HTTP status of the document; 0: it is not known.
func (t *Tab) Status() int {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return t.statusLocked().Code
}

// Status is that of a response: 404 Not Found.
type Status struct {
	Code int // 0: it is not known
	Text string
	Asks bool // for a name and a password
}

// statusLocked is the status of the document. One that has come back from the history
// had its response before.
func (t *Tab) statusLocked() Status {
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
