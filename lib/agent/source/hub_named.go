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

	"btools/lib/control"
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
func (j *joining) isLocked(id string) bool { return j.cur != nil && j.id == id }

func (j *joining) up(id, session string) *Lease {
	j.mu.Lock()
	defer j.mu.Unlock()
	if id == "" || j.isLocked(id) {
		if j.cur == nil || wait.Closed(j.cur.Died) {
			return nil
		}
		return j.cur
	}
	if n := j.named[id]; n != nil && !wait.Closed(n.at.Died) {
		n.used[session] = true
		return n.at
	}
	return nil
}

// choose returns the browser with an ID for a session. It waits for none to join.
func (j *joining) choose(ctx context.Context, id, session string) (_ *Lease, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, hubPatience, errHubSilent)
	defer cancel()
	select {
	case j.choosing <- struct{}{}:
		defer func() { <-j.choosing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	j.mu.Lock()
	next := j.cur == nil && len(j.offers) > 0 && j.offers[0] == id
	j.mu.Unlock()
	if next { // it is about to be the one that other calls use
		soon, cancel := context.WithTimeout(ctx, nextBound)
		err := j.await(soon, func() bool { return j.cur != nil || !slices.Contains(j.offers, id) })
		cancel()
		if err != nil && soon.Err() == nil {
			return nil, err
		}
	}
	if at := j.up(id, session); at != nil {
		return at, nil
	}
	hub, release, err := j.Hubs.Use(ctx)
	if err != nil {
		return nil, err
	}
	c, err := control.Dial(ctx, hub.Control)
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
	as := j.As + "-" + hex.EncodeToString(sum[:4])
	_, _, err = claim(ctx, c, map[string]any{"instance": id, "as": as, "by": j.As, "now": true})
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ctx.Err() != nil {
		return nil, ErrEnded
	}
	j.hub = hub
	died := make(chan struct{})
	follow, free := context.WithCancel(j.ctx)
	n := &namedBrowser{at: j.leaseLocked(as, id, died), used: map[string]bool{session: true}, free: free}
	n.at.Instance = id
	j.named[id] = n
	j.work.Go(func() {
		c.Call(follow, "left", map[string]string{"instance": as}, nil) // or its hub has ended
		c.Close()
		release()
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.named[id] == n {
			delete(j.named, id)
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

func (j *joining) end(id, session string) {
	j.mu.Lock()
	of := id
	if of == "" {
		of = j.id
	}
	if id != "" && j.isLocked(id) || of == "" { // those calls use it by now
		j.mu.Unlock()
		return
	}
	n := j.named[id]
	j.mu.Unlock()
	j.call(context.Background(), "session_end", map[string]string{"instance": of, "name": session})
	j.mu.Lock()
	defer j.mu.Unlock()
	if n == nil || j.named[id] != n {
		return
	}
	if delete(n.used, session); len(n.used) == 0 {
		delete(j.named, id)
		n.free()
	}
}

func (j *joining) idOf(ctx context.Context, id string) (string, error) {
	if id = j.instanceOf(id); id == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, hubPatience, errHubSilent)
	defer cancel()
	hub, release, err := j.Hubs.Use(ctx)
	if err != nil {
		return id, err
	}
	defer release()
	return id, control.Call(ctx, hub.Control, "session_list", map[string]string{"instance": id}, nil)
}

// instanceOf is an ID as a Browser has it: that of the browser that calls use which
// name none is "".
func (j *joining) instanceOf(id string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.isLocked(id) {
		return ""
	}
	return id
}
