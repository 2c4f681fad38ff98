package browse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	proto "github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"

	"btools/lib/jsonrpc"
)

// Address completes an address as a person would type it: example.org.
func Address(address string) (string, error) {
	address = strings.TrimSpace(address)
	if address == "" {
		return "", errors.New("the address is empty")
	}
	u, err := url.Parse(address)
	if err == nil && u.Scheme != "" && (u.Host != "" || u.Opaque != "" || u.Path != "") && !looksLikeHost(u) {
		return address, nil
	}
	noHost := err == nil && u.Scheme != "" && strings.Trim(address[len(u.Scheme):], ":/") == ""
	u, err = url.Parse("https://" + address)
	isNumber := strings.Trim(address, "0123456789.") == "" && net.ParseIP(address) == nil
	if err != nil || u.Hostname() == "" || noHost || isNumber {
		return "", fmt.Errorf("%q is not an address: an address is such as https://example.org/", address)
	}
	if host := u.Hostname(); host == "localhost" || net.ParseIP(host) != nil && net.ParseIP(host).IsLoopback() {
		return "http://" + address, nil
	}
	return "https://" + address, nil
}

// onPage adds to the error of an address what it is on the page that is open.
func (t *Tab) onPage(address string, err error) error {
	t.b.mu.Lock()
	page, wrong := url.Parse(t.url)
	t.b.mu.Unlock()
	if wrong == nil && page.Host != "" && strings.HasPrefix(address, "/") {
		if u, wrong := page.Parse(address); wrong == nil {
			return fmt.Errorf("%w; on this page, %s is %s", err, address, u)
		}
	}
	return err
}

// looksLikeHost reports whether what was read as a scheme is a host before a port:
// localhost:8080.
func looksLikeHost(u *url.URL) bool {
	port, _, _ := strings.Cut(u.Opaque, "/")
	return port != "" && strings.Trim(port, "0123456789") == ""
}

// Navigate loads an address and waits until the document is parsed, and for a bounded
// time until everything that it needs is loaded.
func (t *Tab) Navigate(ctx context.Context, address string) (string, error) {
	given := address
	address, err := Address(given)
	if err != nil {
		return "", t.onPage(given, err)
	}
	if scheme, _, _ := strings.Cut(address, ":"); strings.EqualFold(scheme, "javascript") {
		return "", errors.New("a javascript: address is a script, not a page: browser_evaluate runs it")
	}
	if isFile(address) {
		if err := t.b.openFile(ctx, address); err != nil {
			return address, err
		}
	}
	t.b.mu.Lock()
	crashed, fresh := t.crashed, t.url == "" || t.url == "about:blank"
	t.crashed, t.chooser = false, nil
	t.b.mu.Unlock()
	// A renderer of Chromium 156 that is still being started crashes if its page navigates.
	begin, cancel := context.WithTimeout(ctx, t.b.of(beginTimeout))
	t.b.wait(begin, func() bool { return t.begun || t.isLeaving() || t.overLocked() != nil })
	cancel()
	defer t.stopIfStuck()()
	for range navigateTries {
		overtaken, err := t.navigate(ctx, address)
		switch {
		case errors.Is(err, errCrashed) && fresh:
			return address, ErrUnborn
		case errors.Is(err, errCrashed) && crashed:
			return address, fmt.Errorf("%w: browser_tabs opens another tab", err)
		case err != nil || !overtaken:
			return address, err
		}
		// Chrome ignores an address that it is loading already, such as for a tab that comes
		// back, until its server has answered.
		came, cancel := context.WithTimeout(ctx, t.b.of(beginTimeout))
		t.b.wait(came, func() bool { return !t.isLeaving() || t.overLocked() != nil })
		cancel()
	}
	return address, fmt.Errorf("%s was not loaded: the page before it goes from page to page by itself, "+
		"browser_close closes it", Redacted(address))
}

// ErrUnborn is the error of a new tab whose renderer has crashed because it was started
// too slowly. It loads nothing any more, and is to be replaced.
var ErrUnborn = fmt.Errorf("%w: browser_tabs opens another tab", errCrashed)

// navigateTries is how often an address is loaded that the page before it overtakes,
// because it has begun to load another one just before it was replaced. Of 60 pages
// that replaced themselves for ever, 6 did so three times.
const navigateTries = 5

// navigate loads an address once. Overtaken is that the page before it has loaded another
// one in its place.
func (t *Tab) navigate(ctx context.Context, address string) (overtaken bool, err error) {
	since := t.mark()
	var got page.NavigateResult
	end := time.Now().Add(t.b.of(NavigateTimeout))
	_, err = t.await(ctx, t.begin(t.main.session, page.Navigate.Method, page.NavigateParams{URL: address}), &got,
		func() (error, time.Duration) { return t.overOrLate(end) })
	switch {
	case errors.Is(err, errDialog): // beforeunload asks; who answers it goes on
		return false, nil
	case errors.Is(err, errLate):
		return false, t.unanswered(Redacted(address))
	case err != nil:
		var e *jsonrpc.Error
		if errors.As(err, &e) { // a session refuses an address in the words of the protocol
			if why, is := strings.CutPrefix(e.Message, "Invalid parameters: url: "); is {
				err = errors.New(why)
			}
		}
		return false, err
	case got.IsDownload:
		return false, ErrDownload
	case got.ErrorText == "net::ERR_ABORTED": // without a loader if it was never sent
		err := t.aborted(ctx, since, string(got.LoaderID), address)
		return err == nil, err
	case got.ErrorText != "":
		return false, fmt.Errorf("cannot load %s: %s", Redacted(address), reason(got.ErrorText))
	case got.LoaderID == "": // within the document
		return false, t.settle(ctx, since)
	}
	came, loader := false, string(got.LoaderID)
	never := func() bool { return !came && t.navigations-since.navigations > maxDocuments/2 }
	err = t.awaitLoad(ctx, Redacted(address), func() bool {
		came = came || slices.ContainsFunc(t.documents, func(d document) bool { return d.loader == loader })
		return came || never()
	}, func() bool { return never() || t.isOvertaken(loader) })
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return err == nil && (never() || t.isOvertaken(loader)), err
}

// stopIfStuck stops the script of a page that is not parsed because of it.
func (t *Tab) stopIfStuck() (stop func()) {
	stuck := func() bool {
		t.b.mu.Lock()
		defer t.b.mu.Unlock()
		return !t.parsed && t.overLocked() == nil && !t.isLeaving()
	}
	over := make(chan struct{})
	t.b.work.Go(func() {
		timer := time.NewTimer(t.b.of(parseTimeout))
		defer timer.Stop()
		select {
		case <-timer.C:
			if stuck() {
				t.late(t.main.session, parseTimeout)
			}
		case <-over:
		case <-t.b.Gone():
		}
	})
	return func() { close(over) }
}

// unstick stops the script of a page that is to be left: the next one of the same site
// would wait for it. Its error is that it cannot be stopped, or the browser is silent.
func (t *Tab) unstick() error {
	t.b.mu.Lock()
	asks := t.overLocked() == nil && t.begun && !t.isLeaving()
	t.b.mu.Unlock()
	if !asks || t.answers(t.main.session) {
		return nil
	}
	if err := t.late(t.main.session, AnswerPatience); errors.Is(err, errStuck) || errors.Is(err, errSilent) {
		return err
	}
	return nil
}

// Place is a tab in which another page can be opened: this one, or, if a script of its
// page runs without end and cannot be stopped, another one in its place.
func (t *Tab) Place(ctx context.Context) (Page, error) {
	err := t.unstick()
	if errors.Is(err, errStuck) {
		return t.Replace(ctx)
	}
	return t, err
}

// Replace closes the tab and opens another one in its place.
func (t *Tab) Replace(ctx context.Context) (Page, error) {
	p, err := t.b.New(ctx)
	if err != nil {
		return nil, err
	}
	other := p.(*Tab)
	t.b.Swap(t, other)
	return other, t.b.closeTab(ctx, t)
}

// ErrDownload is the error of an address whose response is a file, which the browser
// downloads.
var ErrDownload = errors.New("the response is a file, which is downloaded")

// aborted is why the response of an address became no document; nil: another navigation
// of the page has begun meanwhile, such as that of a tab which comes back.
func (t *Tab) aborted(ctx context.Context, since mark, loader, address string) error {
	var status int
	t.b.mu.Lock()
	if r := t.traffic.byID[loader]; r != nil {
		status = r.Status
	}
	t.b.mu.Unlock()
	switch {
	case IsEmpty(status):
		return NoPage(address, status)
	case status >= 200 && status < 300:
		return ErrDownload
	}
	// That another one has begun may be told a moment later.
	soon, cancel := context.WithTimeout(ctx, t.b.of(AnswerPatience))
	defer cancel()
	if t.b.wait(soon, func() bool { return t.isLeaving() || t.navigations > since.navigations }) == nil {
		return nil
	}
	return fmt.Errorf("cannot load %s: net::ERR_ABORTED", Redacted(address))
}

// IsEmpty reports whether a response with this HTTP status leaves the current page open
// (204, 205).
func IsEmpty(status int) bool {
	return status == http.StatusNoContent || status == http.StatusResetContent
}

// NoPage is the error of an address whose response IsEmpty.
func NoPage(address string, status int) error {
	return fmt.Errorf("%s has no page: the server has answered %d %s, and the page before it is still open",
		Redacted(address), status, http.StatusText(status))
}

// Redacted is an address without its password.
func Redacted(address string) string {
	if u, err := url.Parse(address); err == nil && u.User != nil {
		return u.Redacted()
	}
	return address
}

// overOrLate is why a navigation is not waited for any more, and for how long it is.
func (t *link) overOrLate(end time.Time) (error, time.Duration) {
	if err := t.overLocked(); err != nil {
		return err, 0
	}
	left := time.Until(end)
	if left <= 0 {
		return errLate, 0
	}
	return nil, left
}

// awaitLoad waits for a document, or for one that takes its place, until it is loaded, or
// for a bounded time. There asks whether it has come, and lost whether there is nothing
// to wait for any more, with the lock held.
func (t *Tab) awaitLoad(ctx context.Context, what string, there, lost func() bool) error {
	over := func() bool { return t.overLocked() != nil || lost() }
	var before mark // when it was there
	parsed := false
	err := t.within(ctx, NavigateTimeout, func() bool {
		before, parsed = t.markLocked(), t.parsed
		return over() || there()
	})
	if errors.Is(err, errUnsettled) {
		return t.unanswered(what)
	}
	if err == nil { // a script that does not end is stopped after parseTimeout
		err = t.within(ctx, parseTimeout+2*AnswerPatience, func() bool {
			return over() || parsed || t.parsings > before.parsings || t.navigations > before.navigations+maxDocuments
		})
	}
	if err == nil {
		err = t.within(ctx, loadTimeout, func() bool { return over() || t.parsed && t.loaded && !t.isLeaving() })
	}
	if err == nil || errors.Is(err, errUnsettled) {
		return t.gone()
	}
	return err
}

// unanswered is the error of a page that has not come. It is not waited for any more.
func (t *Tab) unanswered(what string) error {
	t.b.conn.Begin(t.main.session, "Page.stopLoading", nil, nil)
	return fmt.Errorf("%s was not loaded within %v: its server has not answered, and the page that was open still is",
		what, t.b.of(NavigateTimeout))
}

// within waits until a condition holds, but for a bounded time: then it is errUnsettled.
func (t *link) within(ctx context.Context, most time.Duration, is func() bool) error {
	inner, cancel := context.WithTimeoutCause(ctx, t.b.of(most), errUnsettled)
	defer cancel()
	return t.b.wait(inner, is)
}

// Go goes back in the history, or forward.
func (t *Tab) Go(ctx context.Context, forward bool) error {
	all, err := do(ctx, t.link, t.main.session, page.GetNavigationHistory, proto.Empty{})
	if err != nil {
		return err
	}
	where, to := "before", int(all.CurrentIndex)-1
	if forward {
		where, to = "after", to+2
	}
	if to < 0 || to >= len(all.Entries) {
		return fmt.Errorf("there is no page %s this one in the history", where)
	}
	entry := all.Entries[to]
	if isFile(entry.URL) {
		if err := t.b.openFile(ctx, entry.URL); err != nil {
			return err
		}
	}
	if err := t.unstick(); err != nil {
		return err
	}
	since := t.mark()
	defer t.stopIfStuck()()
	_, err = do(ctx, t.link, t.main.session, page.NavigateToHistoryEntry,
		page.NavigateToHistoryEntryParams{EntryID: entry.ID})
	return t.hasBegun(ctx, err, "the page "+where, since)
}

// Reload loads the page again.
func (t *Tab) Reload(ctx context.Context) error {
	if err := t.unstick(); err != nil {
		return err
	}
	since := t.mark()
	defer t.stopIfStuck()()
	_, err := do(ctx, t.link, t.main.session, page.Reload, page.ReloadParams{})
	return t.hasBegun(ctx, err, "the page", since)
}

// hasBegun waits for the document of a navigation that the browser has begun, unless with this error.
func (t *Tab) hasBegun(ctx context.Context, err error, what string, since mark) error {
	switch {
	case errors.Is(err, errDialog): // beforeunload asks; who answers it goes on
		return nil
	case err != nil && !isPassing(err):
		return err
	}
	return t.awaitLoad(ctx, what, func() bool { return t.navigations > since.navigations },
		func() bool { return false })
}
