package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"btools/lib/cdp"
	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/live"
	"btools/lib/live/sources"
	"btools/lib/record"
	"btools/lib/state"
)

const (
	topEvery    = time.Second     // between two lists, and two pictures
	topPatience = 5 * time.Second // with a session
	topMost     = 64              // sessions with a connection at a time, as on the page
)

// topRow is a session, and what its connections tell. The lock of its rows guards it.
type topRow struct {
	sources.Session
	title, url, target string // of the page that is looked at
	did                *topCommand
	isKnown            bool          // its pages are, or that they cannot be
	why                string        // nothing is known of its pages
	stale              chan struct{} // gets something when pages may have changed
	end                func()        // ends look; nil: it does not run
	again              time.Time     // of the next try
	look, held         *cdp.Conn     // to look, and to have control; nil: there is none
}

// topCommand is the last command of a client that acts.
type topCommand struct {
	Method string      `json:"method"`
	Type   string      `json:"type,omitempty"` // of an input
	At     record.Time `json:"at"`
}

// topRows are the sessions of all programs.
type topRows struct {
	store   *state.Store
	run     func(func())  // in a goroutine, whose panic does no harm to the terminal
	guard   func()        // deferred where others call a function in one
	changed chan struct{} // gets something when there is something to show
	work    sync.WaitGroup

	mu  sync.Mutex
	all []*topRow // with an ask first
	err error     // why they are not known
}

// set changes what the rows say, and tells of it.
func (t *topRows) set(change func()) {
	t.mu.Lock()
	change()
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// spawn runs a function until the rows have ended.
func (t *topRows) spawn(f func()) {
	t.work.Add(1)
	t.run(func() {
		defer t.work.Done()
		f()
	})
}

// list reads the sessions anew.
func (t *topRows) list(ctx context.Context) {
	t.mu.Lock()
	var was []sources.Session
	for _, r := range t.all {
		was = append(was, r.Session)
	}
	t.mu.Unlock()
	all, err := sources.All(ctx, t.store, was)
	t.set(func() {
		if t.err = err; err != nil {
			return
		}
		known := map[string]*topRow{}
		for _, r := range t.all {
			known[r.Key] = r
		}
		t.all = []*topRow{}
		for _, s := range all {
			r := cmp.Or(known[s.Key], &topRow{stale: make(chan struct{}, 1)})
			r.Session = s
			r.isKnown = r.isKnown || !r.isLive()
			delete(known, s.Key)
			t.all = append(t.all, r)
		}
		slices.SortStableFunc(t.all, func(a, b *topRow) int { return cmp.Compare(b.asks(), a.asks()) })
		for _, r := range known {
			r.leave()
		}
	})
}

// follow reads the sessions again and again.
func (t *topRows) follow(ctx context.Context) {
	tick := time.NewTicker(topEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		t.list(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// asks returns 1 if a person is asked to do something, else 0.
func (r *topRow) asks() int {
	if r.Ask != nil {
		return 1
	}
	return 0
}

// isLive reports whether there are pages to look at.
func (r *topRow) isLive() bool { return r.Kind != sources.Firefox && !r.Hibernated }

// leave ends the connection of somebody who looks.
func (r *topRow) leave() {
	if r.end != nil {
		r.end()
	}
}

// see has those of the rows looked at that are shown, and the others not. The lock is held.
func (t *topRows) see(ctx context.Context, shown []*topRow) {
	for i, r := range t.all {
		switch isShown := slices.Contains(shown[:min(len(shown), topMost)], r); {
		case !isShown:
			r.leave()
		case r.end == nil && r.isLive() && time.Now().After(r.again):
			looking, end := context.WithCancel(ctx)
			s := t.all[i].Session
			r.end = end
			t.spawn(func() {
				err := t.lookAt(looking, r, &s)
				end()
				t.set(func() {
					r.end, r.look, r.isKnown = nil, nil, true
					if r.again = time.Now(); err != nil {
						r.why, r.again = err.Error(), r.again.Add(topPatience)
					}
				})
			})
		}
	}
}

// lookAt keeps a connection to a session, and learns of its pages.
func (t *topRows) lookAt(ctx context.Context, r *topRow, s *sources.Session) error {
	conn, _, err := s.Attach(ctx, api.AttachRequest{Who: live.UserName(), Tile: true})
	if err != nil {
		return err
	}
	c := cdp.On(conn, func(e cdp.Event) { t.hear(r, e) })
	defer c.Close()
	t.set(func() { r.look = c })
	c.Begin("", "Target.setDiscoverTargets", map[string]any{"discover": true}, nil)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Done():
			return errors.New("the connection has ended")
		case <-r.stale:
		}
		if err := t.readPages(ctx, r, c); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-c.Done():
		case <-time.After(topEvery):
		}
	}
}

// hear notes an event of a session.
func (t *topRows) hear(r *topRow, e cdp.Event) {
	defer t.guard()
	switch e.Method {
	case "Btools.command":
		did := &topCommand{jsonrpc.GetString(e.Params, "method"), jsonrpc.GetString(e.Params, "type"), record.Now()}
		target := jsonrpc.GetString(e.Params, "targetId")
		t.set(func() { r.did, r.target = did, cmp.Or(target, r.target) })
	case "Target.targetCreated", "Target.targetInfoChanged", "Target.targetDestroyed":
	default:
		return
	}
	r.isStale()
}

// isStale notes that pages may have changed.
func (r *topRow) isStale() {
	select {
	case r.stale <- struct{}{}:
	default:
	}
}

// readPages learns which pages there are. Chrome tells of addresses by itself, but not of titles.
func (t *topRows) readPages(ctx context.Context, r *topRow, c *cdp.Conn) error {
	type page struct{ TargetID, Type, Title, URL string }
	var got struct{ TargetInfos []page }
	if err := callSession(ctx, c, "", "Target.getTargets", nil, &got); err != nil {
		return err
	}
	pages := slices.DeleteFunc(got.TargetInfos, func(p page) bool { return p.Type != "page" })
	t.set(func() {
		var now page
		if len(pages) > 0 {
			now = pages[max(0, slices.IndexFunc(pages, func(p page) bool { return p.TargetID == r.target }))]
		}
		r.target, r.title, r.url, r.isKnown, r.why = now.TargetID, now.Title, now.URL, true, ""
	})
	return nil
}

// shoot returns a picture of the page that is looked at, as a PNG.
func (t *topRows) shoot(ctx context.Context, r *topRow) ([]byte, error) {
	t.mu.Lock()
	c, target, why := cmp.Or(r.held, r.look), r.target, r.reason()
	isMine := r.held != nil // also in private
	t.mu.Unlock()
	switch {
	case why != "" && !isMine:
		return nil, errors.New(why)
	case c == nil || target == "":
		return nil, errors.New("no tab is open")
	}
	var at struct{ SessionID string }
	if err := callSession(ctx, c, "", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true},
		&at); err != nil {
		return nil, err
	}
	defer c.Begin("", "Target.detachFromTarget", map[string]any{"sessionId": at.SessionID}, nil)
	var shot struct{ Data []byte }
	err := callSession(ctx, c, at.SessionID, "Page.captureScreenshot", map[string]any{"format": "png",
		"optimizeForSpeed": true}, &shot)
	return shot.Data, err
}

// take gives this person control of a session, until it is given back or ends by itself. As of a page, the end of the
// connection gives it back a little later.
func (t *topRows) take(ctx context.Context, r *topRow) error {
	t.mu.Lock()
	s := r.Session
	t.mu.Unlock()
	conn, at, err := s.Attach(ctx, api.AttachRequest{Who: live.UserName(), Wake: true})
	if err != nil {
		return err
	}
	has, over := false, make(chan struct{})
	end := sync.OnceFunc(func() { close(over) })
	c := cdp.On(conn, func(e cdp.Event) {
		defer t.guard()
		if e.Method == "Btools.control" {
			had := has
			if has = string(jsonrpc.Get(e.Params, "you")) == "true"; had && !has {
				end()
			}
		}
	})
	if !at.Lock {
		err = errors.New(at.Why)
	} else {
		err = callSession(ctx, c, "", "Btools.take", map[string]any{"holder": rand.Text()}, nil)
	}
	if err != nil {
		c.Close()
		return err
	}
	t.set(func() { r.held = c })
	t.spawn(func() {
		select {
		case <-ctx.Done():
		case <-c.Done():
		case <-over:
			callSession(ctx, c, "", "Browser.getVersion", nil, nil) // give is answered before that
		}
		c.Close()
		t.set(func() { r.held = nil })
	})
	return nil
}

// give gives control back, and answers what is asked.
func (t *topRows) give(ctx context.Context, r *topRow) error {
	t.mu.Lock()
	c, target := r.held, r.target
	t.mu.Unlock()
	if c == nil {
		return errors.New("you do not have control of it here")
	}
	return callSession(ctx, c, "", "Btools.give", map[string]any{"targetId": target}, nil)
}

// callSession sends a command to a session, which has some time to answer.
func callSession(ctx context.Context, c *cdp.Conn, session, method string, params, result any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, topPatience, errors.New("the session does not answer"))
	defer cancel()
	return c.Call(ctx, session, method, params, result)
}
