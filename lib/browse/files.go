package browse

import (
	"context"
	"strings"

	"btools/lib/cdp"
)

// GuardFiles has a function say why the file at a file: address may not be shown, nil
// if it may. It is to be called before anything is opened.
func (b *Browser) GuardFiles(refuses func(ctx context.Context, address string) error) {
	b.refuses = refuses
}

func isFile(address string) bool {
	return strings.HasPrefix(strings.TrimPrefix(address, "view-source:"), "file:")
}

// openFile says whether a file: address may be opened. From the first one on, files that
// pages lead to or have in frames are looked at too: only pages that are files can.
func (b *Browser) openFile(ctx context.Context, address string) error {
	if b.refuses == nil {
		return nil
	}
	if err := b.refuses(ctx, strings.TrimPrefix(address, "view-source:")); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.guarding {
		b.guarding = true
		b.pauseAllLocked()
	}
	return nil
}

// judge lets the request for a file go on, or not.
func (b *Browser) judge(session string, e cdp.Event) {
	p := decode[pausedRequest](e.Params)
	ctx, cancel := context.WithTimeout(context.Background(), b.of(actionTimeout))
	defer cancel()
	if b.refuses(ctx, p.Request.URL) != nil {
		b.conn.Begin(session, "Fetch.failRequest", map[string]string{"requestId": p.RequestID,
			"errorReason": "AccessDenied"}, nil)
		return
	}
	b.conn.Begin(session, "Fetch.continueRequest", map[string]string{"requestId": p.RequestID}, nil)
}
