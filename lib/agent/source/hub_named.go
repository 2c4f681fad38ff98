package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"btools/lib/control/api"
	"btools/lib/wait"
)

// isDefaultLocked reports whether an ID is that of the default browser.
func (h *hub) isDefaultLocked(id string) bool {
	c := h.held[""]
	return c != nil && c.id == id
}

func (h *hub) up(id, session string) *Lease {
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	if h.isDefaultLocked(id) {
		id = ""
	}
	c := h.held[id]
	if c == nil || wait.Closed(c.at.Died) {
		return nil
	}
	if id != "" {
		c.used[session] = true
	}
	return c.at
}

// choose returns the browser with an ID for a session. It does not wait for it to join.
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
	next := h.held[""] == nil && len(h.offers) > 0 && h.offers[0] == id
	h.src.mu.Unlock()
	if next { // it is about to be the one that other calls use
		soon, cancel := context.WithTimeout(ctx, nextBound)
		_, err := h.first.Get(soon)
		cancel()
		if err != nil && soon.Err() == nil {
			return nil, err
		}
	}
	if at := h.up(id, session); at != nil {
		return at, nil
	}
	at, release, err := h.Hubs.Use(ctx)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(id))
	as := h.As + "-" + hex.EncodeToString(sum[:4])
	c, err := h.hold(ctx, at, release, id, session,
		api.HoldRequest{Of: api.Of{Instance: id}, As: as, By: h.As, Now: true})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // that of the context, before this tells of it
		return nil, errHubSilent
	case err != nil:
		return nil, err
	}
	return c.at, nil
}

// nextBound is how long a browser that was launched may take to become the default one.
const nextBound = 2 * time.Second

// errHubSilent means that the hub has not answered in time.
var errHubSilent = fmt.Errorf("the hub of the browsers that have joined has not answered within %v", hubPatience)

func (h *hub) end(id, session string) {
	h.src.mu.Lock()
	c, of := h.held[id], id
	if id == "" && c != nil {
		of = c.id
	}
	moved := id != "" && h.isDefaultLocked(id) // the calls that name none use it by now
	h.src.mu.Unlock()
	if moved || of == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endBound)
	defer cancel()
	api.Release.Ask(ctx, h.last(), api.Of{Instance: of, Session: session})
	h.src.mu.Lock()
	defer h.src.mu.Unlock()
	if id == "" || c == nil || h.held[id] != c {
		return
	}
	if delete(c.used, session); len(c.used) == 0 {
		delete(h.held, id)
		c.free()
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
	if h.isDefaultLocked(id) {
		return ""
	}
	return id
}
