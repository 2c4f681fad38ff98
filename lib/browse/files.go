package browse

import (
	"context"
	"encoding/json"

	"github.com/chromedp/cdproto/page"

	"btools/lib/cdp"
	"btools/lib/lazy"
)

// GuardFiles has a function say why the file at a file: address may not be shown, nil
// if it may. A file that is open already stays, but is looked after as one that was opened.
func (b *Browser) GuardFiles(refuses func(ctx context.Context, address string) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuses = refuses
	for _, t := range b.tabs {
		b.noteFileLocked(t.url)
		b.conn.Begin(t.main.session, page.GetNavigationHistory.Method, nil, func(raw json.RawMessage, err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, e := range decode[page.GetNavigationHistoryResult](raw).Entries {
				b.noteFileLocked(e.URL)
			}
		})
	}
}

// noteFileLocked has files looked after if a page is one.
func (b *Browser) noteFileLocked(address string) {
	if b.refuses != nil && isFile(address) {
		b.guardLocked()
	}
}

func (b *Browser) guardLocked() {
	if !b.guarding {
		b.guarding = true
		b.pauseAllLocked()
	}
}

// fileRule matches a file: address as Chrome takes it: in any case, with spaces before it.
var fileRule = lazy.Regexp(`(?i)^\s*(?:view-source:\s*)*(file:.*)`)

func isFile(address string) bool { return fileRule().MatchString(address) }

// openFile says whether a file: address may be opened. From the first one on, files that
// pages lead to or have in frames are looked at too: only pages that are files can.
func (b *Browser) openFile(ctx context.Context, address string) error {
	if b.refuses == nil {
		return nil
	}
	if m := fileRule().FindStringSubmatch(address); m != nil {
		if err := b.refuses(ctx, m[1]); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.guardLocked()
	return nil
}

// judge lets the request for a file go on, or not.
func (b *Browser) judge(session string, e cdp.Event) {
	p := decode[pausedRequest](e.Params)
	ctx, cancel := context.WithTimeout(context.Background(), b.of(ActionTimeout))
	defer cancel()
	if b.refuses(ctx, p.Request.URL) != nil {
		b.conn.Begin(session, "Fetch.failRequest", map[string]string{"requestId": p.RequestID,
			"errorReason": "AccessDenied"}, nil)
		return
	}
	b.conn.Begin(session, "Fetch.continueRequest", map[string]string{"requestId": p.RequestID}, nil)
}
