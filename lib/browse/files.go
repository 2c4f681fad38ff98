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
func (n *network) GuardFiles(refuses func(ctx context.Context, address string) error) {
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	n.refuses = refuses
	for _, t := range n.b.All {
		n.noteFileLocked(t.url)
		n.b.conn.Begin(t.main.session, page.GetNavigationHistory.Method, nil, func(raw json.RawMessage, err error) {
			n.b.mu.Lock()
			defer n.b.mu.Unlock()
			for _, e := range decode[page.GetNavigationHistoryResult](raw).Entries {
				n.noteFileLocked(e.URL)
			}
		})
	}
}

// noteFileLocked has files looked after if a page is one.
func (n *network) noteFileLocked(address string) {
	if n.refuses != nil && isFile(address) {
		n.guardLocked()
	}
}

func (n *network) guardLocked() {
	if !n.guarding {
		n.guarding = true
		n.pauseAllLocked()
	}
}

// fileRule matches a file: address as Chrome takes it: in any case, with spaces before it.
var fileRule = lazy.Regexp(`(?i)^\s*(?:view-source:\s*)*(file:.*)`)

func isFile(address string) bool { return fileRule().MatchString(address) }

// openFile says whether a file: address may be opened. From the first one on, files that
// pages lead to or have in frames are looked at too: only pages that are files can.
func (n *network) openFile(ctx context.Context, address string) error {
	if n.refuses == nil {
		return nil
	}
	if m := fileRule().FindStringSubmatch(address); m != nil {
		if err := n.refuses(ctx, m[1]); err != nil {
			return err
		}
	}
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	n.guardLocked()
	return nil
}

// judge lets the request for a file go on, or not.
func (n *network) judge(session string, e cdp.Event) {
	p := decode[pausedRequest](e.Params)
	ctx, cancel := context.WithTimeout(context.Background(), n.b.of(ActionTimeout))
	defer cancel()
	if n.refuses(ctx, p.Request.URL) != nil {
		n.b.conn.Begin(session, "Fetch.failRequest", map[string]string{"requestId": p.RequestID,
			"errorReason": "AccessDenied"}, nil)
		return
	}
	n.b.conn.Begin(session, "Fetch.continueRequest", map[string]string{"requestId": p.RequestID}, nil)
}
