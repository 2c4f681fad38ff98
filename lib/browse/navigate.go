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
)

// normalize completes an address as a person would type it: example.org.
func normalize(address string) (string, error) {
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
	if err != nil || u.Hostname() == "" || noHost {
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
	address, err := normalize(given)
	if err != nil {
		return "", t.onPage(given, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, navigateTimeout,
		fmt.Errorf("%s was not loaded within %v", Redacted(address), navigateTimeout))
	defer cancel()
	if isFile(address) {
		if err := t.b.openFile(ctx, address); err != nil {
			return address, err
		}
	}
	since := t.mark()
	t.b.mu.Lock()
	crashed := t.crashed
	t.crashed, t.chooser = false, nil
	t.b.mu.Unlock()
	select { // a renderer of Chromium 156 that is still being started crashes if its page navigates
	case <-t.begun:
	case <-time.After(beginTimeout): // a script of the page runs without end, or a dialog is open
	case <-ctx.Done():
		return address, context.Cause(ctx)
	}
	defer t.stopIfStuck(since)()
	for range navigateTries {
		overtaken, err := t.navigate(ctx, address, crashed)
		if err != nil || !overtaken {
			return address, err
		}
	}
	return address, fmt.Errorf("%s was not loaded: the page before it goes from page to page by itself, "+
		"browser_close closes it", Redacted(address))
}

// navigateTries is how often an address is loaded that the page before it overtakes,
// because it has begun to load another one just before it was replaced. Of 60 pages
// that replaced themselves for ever, 6 did so three times.
const navigateTries = 5

// navigate loads an address once. Crashed says that the page before it has. Overtaken
// is that the page before it has loaded another one in its place.
func (t *Tab) navigate(ctx context.Context, address string, crashed bool) (overtaken bool, err error) {
	since := t.mark()
	var got struct {
		LoaderID, ErrorText string
		IsDownload          bool
	}
	err = t.call(ctx, t.main.session, "Page.navigate", map[string]string{"url": address}, &got)
	switch {
	case errors.Is(err, errDialog): // beforeunload asks; who answers it goes on
		return false, nil
	case err != nil:
		if crashed {
			err = fmt.Errorf("%w: browser_tabs opens another tab", err)
		}
		return false, err
	case got.IsDownload:
		return false, ErrDownload
	case got.ErrorText == "net::ERR_ABORTED" && got.LoaderID != "":
		return false, t.aborted(got.LoaderID, address)
	case got.ErrorText != "":
		return false, fmt.Errorf("cannot load %s: %s", Redacted(address), reason(got.ErrorText))
	case got.LoaderID == "": // within the document
		return false, t.settle(ctx, since)
	}
	came := false
	never := func() bool { return !came && t.navigations-since.navigations > maxDocuments/2 }
	err = t.awaitLoad(ctx, func() bool {
		came = came || slices.ContainsFunc(t.documents, func(d document) bool { return d.loader == got.LoaderID })
		return came || never()
	}, func() bool { return never() || t.isOvertaken(got.LoaderID) })
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return err == nil && (never() || t.isOvertaken(got.LoaderID)), err
}

// leavePatience is how long a page has to let another one take its place.
const leavePatience = 3 * time.Second

// stopIfStuck stops the page's script if it does not end: that of a page that is to be
// left, after leavePatience, since another page of its site waits for it; that of a page
// that is not parsed because of it, after scriptTimeout.
func (t *Tab) stopIfStuck(since mark) (stop func()) {
	unless := func(after time.Duration, done func() bool) *time.Timer {
		stuck := func() bool {
			t.b.mu.Lock()
			defer t.b.mu.Unlock()
			return !done() && t.dialog == nil && !t.closed
		}
		return time.AfterFunc(after, func() {
			if stuck() && !t.answers(t.main.session) && stuck() {
				t.b.conn.Begin(t.main.session, "Runtime.terminateExecution", nil, nil)
			}
		})
	}
	left := unless(leavePatience, func() bool { return t.navigations > since.navigations })
	parsed := unless(t.b.script, func() bool { return t.parsed })
	return func() {
		left.Stop()
		parsed.Stop()
	}
}

// ErrDownload is the error of an address whose response is a file, which the browser
// downloads.
var ErrDownload = errors.New("the response is a file, which is downloaded")

// aborted is why the response of an address became no document.
func (t *Tab) aborted(loader, address string) error {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	var status int
	if r := t.traffic.byID[loader]; r != nil {
		status = r.Status
	}
	switch {
	case status == http.StatusNoContent || status == http.StatusResetContent:
		return fmt.Errorf("%s has no page: the server has answered %d %s, and the page before it is still open",
			Redacted(address), status, http.StatusText(status))
	case status >= 200 && status < 300:
		return ErrDownload
	}
	return fmt.Errorf("cannot load %s: net::ERR_ABORTED", Redacted(address))
}

// Redacted is an address without its password.
func Redacted(address string) string {
	if u, err := url.Parse(address); err == nil && u.User != nil {
		return u.Redacted()
	}
	return address
}

// awaitLoad waits for a document, or for one that takes its place. There asks whether
// it has come, and lost whether there is nothing to wait for any more, with the lock
// held.
func (t *Tab) awaitLoad(ctx context.Context, there, lost func() bool) error {
	over := func() bool { return t.closed || t.crashed || t.dialog != nil || lost() }
	var before *mark // when it was there
	err := t.b.wait(ctx, func() bool {
		if before == nil && there() {
			m := t.markLocked()
			before = &m
			return over() || t.parsed
		}
		endless := before != nil && t.navigations > before.navigations+maxDocuments
		return over() || endless || before != nil && t.parsings > before.parsings
	})
	if err != nil {
		return err
	}
	inner, cancel := context.WithTimeoutCause(ctx, loadTimeout, errUnsettled)
	defer cancel()
	err = t.b.wait(inner, func() bool { return over() || t.parsed && t.loaded && !t.isLeaving() })
	if err == nil || errors.Is(err, errUnsettled) && ctx.Err() == nil {
		return t.gone()
	}
	return err
}

// Back goes to the page before in the history.
func (t *Tab) Back(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, navigateTimeout,
		fmt.Errorf("the page was not loaded within %v", navigateTimeout))
	defer cancel()
	var history struct {
		CurrentIndex int
		Entries      []struct{ ID int }
	}
	if err := t.call(ctx, t.main.session, "Page.getNavigationHistory", nil, &history); err != nil {
		return err
	}
	if history.CurrentIndex < 1 {
		return errors.New("there is no page before this one in the history")
	}
	since := t.mark()
	defer t.stopIfStuck(since)()
	err := t.call(ctx, t.main.session, "Page.navigateToHistoryEntry",
		map[string]int{"entryId": history.Entries[history.CurrentIndex-1].ID}, nil)
	if errors.Is(err, errDialog) {
		return nil
	}
	if err != nil {
		return err
	}
	return t.awaitLoad(ctx, func() bool { return t.navigations > since.navigations }, func() bool { return false })
}
