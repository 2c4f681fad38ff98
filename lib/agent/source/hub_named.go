package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"btools/lib/control/api"
	"btools/lib/wait"
)

// A call may name one of the browsers that have joined (instanceId). If that is not
// the one that all other calls use, it is claimed as well, as long as some session
// has tabs in it.

// namedBrowser is a browser that calls have named.
type namedBrowser struct {
	at   *Lease
	used map[string]bool // the names of the sessions
	free func()
}

// isLocked reports whether an ID is that of the browser that other calls use.
func (h *hub) isLocked(id string) bool { return h.cur != nil && h.id == id }

func (h *hub) up(id, session string) *Lease {
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	if id == "" || h.isLocked(id) {
		if h.cur == nil || wait.Closed(h.cur.Died) {
			return nil
		}
		return h.cur
	}
	if n := h.named[id]; n != nil && !wait.Closed(n.at.Died) {
		n.used[session] = true
		return n.at
	}
	return nil
}

// choose returns the browser with an ID for a session. It waits for none to join.
func (h *hub) choose(ctx context.Context, id, session string) (_ *Lease, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, hubPatience, errHubSilent)
	defer cancel()
	select {
	case h.choosing <- struct{}{}:
		defer func() { <-h.choosing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	h.src.mu.Lock()
	next := h.cur == nil && len(h.offers) > 0 && h.offers[0] == id
	h.src.mu.Unlock()
	if next { // it is about to be the one that other calls use
		soon, cancel := context.WithTimeout(ctx, nextBound)
		err := h.await(soon, func() bool { return h.cur != nil || !slices.Contains(h.offers, id) })
		cancel()
		if err != nil && soon.Err() == nil {
			return nil, err
		}
	}
	if at := h.up(id, session); at != nil {
		return at, nil
	}
	hub, release, err := h.Hubs.Use(ctx)
	if err != nil {
		return nil, err
	}
	c, err := hub.Dial(ctx)
	if err != nil {
		release()
		if errors.Is(err, os.ErrDeadlineExceeded) { // that of the context, before this tells of it
			err = errHubSilent
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Close()
			release()
		}
	}()
	sum := sha256.Sum256([]byte(id))
	as := h.As + "-" + hex.EncodeToString(sum[:4])
	_, _, err = claim(ctx, c, api.HoldRequest{Of: api.Of{Instance: id}, As: as, By: h.As, Now: true})
	if err != nil {
		return nil, err
	}
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	if h.ctx.Err() != nil {
		return nil, ErrEnded
	}
	h.at = hub
	died := make(chan struct{})
	follow, free := context.WithCancel(h.ctx)
	n := &namedBrowser{at: h.leaseLocked(as, id, died), used: map[string]bool{session: true}, free: free}
	n.at.Instance = id
	h.named[id] = n
	h.work.Go(func() {
		api.Watch.Ask(follow, c, api.WatchRequest{Of: api.Of{Instance: as}}) // or its hub has ended
		c.Close()
		release()
		h.src.mu.Lock()
		defer h.src.mu.Unlock()
		if h.named[id] == n {
			delete(h.named, id)
		}
		close(died)
	})
	return n.at, nil
}

// nextBound is how long a browser that was launched may take to become the one that
// calls use which name none.
const nextBound = 2 * time.Second

// errHubSilent means that the hub has not answered in time.
var errHubSilent = fmt.Errorf("the hub of the browsers that have joined has not answered within %v", hubPatience)

func (h *hub) end(id, session string) {
	h.src.mu.Lock()
	of := id
	if of == "" {
		of = h.id
	}
	if id != "" && h.isLocked(id) || of == "" { // those calls use it by now
		h.src.mu.Unlock()
		return
	}
	n := h.named[id]
	h.src.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), endBound)
	defer cancel()
	api.Release.Ask(ctx, h.last(), api.Of{Instance: of, Session: session})
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	if n == nil || h.named[id] != n {
		return
	}
	if delete(n.used, session); len(n.used) == 0 {
		delete(h.named, id)
		n.free()
	}
}

func (h *hub) idOf(ctx context.Context, id string) (string, error) {
	if id = h.instanceOf(id); id == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, hubPatience, errHubSilent)
	defer cancel()
	hub, release, err := h.Hubs.Use(ctx)
	if err != nil {
		return id, err
	}
	defer release()
	_, err = api.List.Ask(ctx, hub, api.Of{Instance: id})
	return id, err
}

// instanceOf returns the ID for a Browser: "" for the default browser, otherwise the ID itself.
func (h *hub) instanceOf(id string) string {
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	if h.isLocked(id) {
		return ""
	}
	return id
}
