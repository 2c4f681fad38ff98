package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/agent/instances"
	"btools/lib/control"
	"btools/lib/extension/keep"
	"btools/lib/jsonrpc"
	"btools/lib/launch/options"
	"btools/lib/record"
)

// Joined says how a browser that joins by its extension is used in the place of
// one that is launched.
type Joined struct {
	Hubs *keep.Keeper
	// As is the name by which the hub knows the browser that bmcp holds: its
	// address stays the same, whichever browser that is.
	As string
	// Launched are the browsers that agents launch. They join the hub, and are used if no other has.
	Launched *instances.Set
}

// hubPatience is how long a call waits for a browser to join: hosts give up after
// a minute or less.
const hubPatience = 20 * time.Second

// joining holds one browser at a time of those that have joined a hub.
type joining struct {
	oneBrowser
	Joined
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	running bool     // follow runs
	hub     keep.Hub // the last one; its HTTPURL is "" before
	cur     *Lease   // nil: there is no browser
	id      string   // that the hub knows it by
	record  *record.Record
	count   int    // browsers so far
	left    string // why the last one left
	// named are the browsers that calls have named, by ID. choosing is full while one is
	// claimed.
	named    map[string]*namedBrowser
	choosing chan struct{}
	// offers are the browsers that an agent has launched, the last one first. Nobody
	// else claims them.
	offers  []string
	again   context.CancelFunc // ends the claim that waits; nil: none does
	err     error              // why follow has ended
	changed chan struct{}
}

// OfHub is a source of one browser at a time, which has joined by its extension. Each host, and each
// session_id, has tabs of its own in it.
func OfHub(how Joined, idle time.Duration) Source {
	j := &joining{Joined: how, changed: make(chan struct{}), named: map[string]*namedBrowser{},
		choosing: make(chan struct{}, 1)}
	j.ctx, j.stop = context.WithCancel(context.Background())
	j.init(j, Sessions{Kind: Hub, Idle: idle})
	how.Launched.Joined, how.Launched.Left = j.offer, j.withdraw
	return j
}

// offer has a browser used that an agent has launched, unless there is one.
func (j *joining) offer(id string) {
	j.reoffer(func() { j.offers = append([]string{id}, j.offers...) })
}

// withdraw ends the offer of a browser that has ended.
func (j *joining) withdraw(id string) {
	j.reoffer(func() { j.offers = slices.DeleteFunc(j.offers, func(o string) bool { return o == id }) })
}

func (j *joining) reoffer(change func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if change(); j.again != nil {
		j.again()
	}
}

// claim waits for a browser, the last one that an agent has launched if there is one.
func (j *joining) claim(c *control.Client) (*record.Record, string, error) {
	ctx, again := context.WithCancel(j.ctx)
	defer again()
	params := map[string]any{"as": j.As, "by": j.As}
	j.mu.Lock()
	if len(j.offers) > 0 {
		params["instance"] = j.offers[0]
	}
	j.again = again
	j.mu.Unlock()
	r, id, err := claim(ctx, c, params)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.again = nil
	return r, id, err
}

// claim returns the record of the browser that it has claimed, and its ID.
func claim(ctx context.Context, c *control.Client, params any) (*record.Record, string, error) {
	r, i := &record.Record{}, record.Instance{}
	err := c.Call(ctx, "claim", params, r)
	if err == nil {
		_, err = r.Get("instance", &i)
	}
	return r, i.ID, err
}

// leaseLocked is a browser that was claimed. One that comes back has another ID: it has lost its pages.
func (j *joining) leaseLocked(as, id string, died chan struct{}) *Lease {
	j.count++
	b := j.browserAt(as)
	b.ID = fmt.Sprintf("%s/%d", id, j.count)
	return &Lease{Browser: b, Died: died, Release: func() {}, joined: true}
}

// change changes what is known under the lock, and wakes those that wait.
func (j *joining) change(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
	close(j.changed)
	j.changed = make(chan struct{})
}

// follow holds one browser after the other.
func (j *joining) follow() {
	for {
		err := j.followOne()
		if j.ctx.Err() != nil {
			err = context.Cause(j.ctx)
		}
		if err != nil {
			j.change(func() { j.running, j.err = false, err })
			return
		}
	}
}

// hubPause is the time until the next try after a hub has ended.
const hubPause = 200 * time.Millisecond

// followOne holds a browser until it has left. Only an error that will come again
// is returned.
func (j *joining) followOne() error {
	h, release, err := j.Hubs.Use(j.ctx)
	if err != nil {
		return err
	}
	defer release()
	c, err := control.Dial(j.ctx, h.Control)
	if err == nil {
		defer c.Close() // which ends the claim
		j.change(func() { j.hub = h })
		r, id, failed := j.claim(c)
		if err = failed; err == nil {
			j.hold(c, r, id)
			return nil
		}
	}
	if errors.As(err, new(*control.Error)) {
		return err
	}
	select { // the hub has ended, or another browser is to be claimed
	case <-time.After(hubPause):
	case <-j.ctx.Done():
	}
	return nil
}

// hold makes a browser the current one until it has left.
func (j *joining) hold(c *control.Client, r *record.Record, id string) {
	died := make(chan struct{})
	j.change(func() {
		j.cur, j.record, j.id = j.leaseLocked(j.As, id, died), r, id
		j.cur.ended = j.left
	})
	var left struct {
		Why string `json:"why"`
	}
	if c.Call(j.ctx, "left", map[string]string{"instance": id}, &left) != nil {
		left.Why = "its hub has ended"
	}
	j.change(func() { j.cur, j.record, j.id, j.left = nil, nil, "", left.Why })
	close(died)
}

func (j *joining) browserAt(as string) Browser {
	at := j.hub.HTTPURL + "/session/" + as
	return Browser{HTTPURL: at, WSURL: "ws" + strings.TrimPrefix(at, "http") + "/devtools/browser"}
}

// await waits until is returns true, which it calls with the lock, or no browser
// can join.
func (j *joining) await(ctx context.Context, is func() bool) error {
	for started := false; ; {
		j.mu.Lock()
		if is() {
			j.mu.Unlock()
			return nil
		}
		if !j.running && started {
			defer j.mu.Unlock()
			return j.err
		}
		if !j.running && j.ctx.Err() == nil {
			j.running, started = true, true
			j.work.Go(j.follow)
		}
		changed := j.changed
		j.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-j.ctx.Done():
			return ErrEnded
		}
	}
}

func (j *joining) acquire(ctx context.Context, instance, session string) (at *Lease, err error) {
	if instance != "" {
		return j.choose(ctx, instance, session)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, hubPatience, errNotJoined)
	defer cancel()
	err = j.await(ctx, func() bool { at = j.cur; return at != nil })
	if errors.Is(err, errNotJoined) {
		j.mu.Lock()
		defer j.mu.Unlock()
		err = j.missingLocked()
	}
	return at, err
}

// errNotJoined means that no browser has joined in time.
var errNotJoined = errors.New("no browser has joined in time")

// missingLocked says that there is no browser, and what to do about it.
func (j *joining) missingLocked() error {
	what := "No browser has joined by its extension"
	if j.left != "" {
		what = fmt.Sprintf("The browser has left (%s), and none has joined since", j.left)
	}
	code := ""
	if j.hub.CodeFile != "" {
		code = ", which is in " + j.hub.CodeFile
	}
	return errors.New(what + `. Ask the user to open the browser that has the btools extension, and to look at the ` +
		`extension's button. If no browser has it yet: "bproxy extension DIR" writes it to a directory, which is ` +
		`loaded unpacked at chrome://extensions; a click on its button asks for the pairing code` + code +
		`. Without a person, browser_instance launches a browser.`)
}

func (j *joining) target(ctx context.Context) (b Browser, err error) {
	err = j.await(ctx, func() bool {
		b = j.browserAt(j.As)
		return j.hub.HTTPURL != ""
	})
	return b, err
}

func (j *joining) status(context.Context) (*record.Record, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var missing error
	if j.cur == nil {
		missing = j.missingLocked()
	}
	if j.hub.HTTPURL == "" {
		return nil, missing
	}
	r, now := record.New(), proxyStatus{State: "stopped", LastExit: j.left}
	if j.record != nil {
		r, now.State = j.record.Clone(), "ready"
	}
	r.MustSet("proxy", record.Proxy{Port: j.hub.Port, HTTPURL: j.hub.HTTPURL})
	r.MustSet("status", now)
	return r, missing
}

func (j *joining) control(context.Context, string, options.Options) (*record.Record, error) {
	return nil, errNotOurs
}
func (j *joining) newSession(context.Context, string, string) error { return errUsersLogins }
func (j *joining) hibernate(context.Context, string) bool           { return true }

// list returns the sessions of the browser that calls use which name none first. Each has the ID of its browser.
func (j *joining) list(ctx context.Context) (all []json.RawMessage) {
	var others []json.RawMessage
	for _, session := range sessionsIn(j.call(ctx, "session_list", nil)) {
		_, below, _ := strings.Cut(jsonrpc.GetString(session, "http_url"), "/session/")
		id, _, _ := strings.Cut(below, "/")
		session = jsonrpc.Set(session, "instanceId", jsonrpc.Quote(id))
		if j.instanceOf(id) == "" {
			all = append(all, session)
		} else {
			others = append(others, session)
		}
	}
	return append(all, others...)
}

// call sends the hub a request.
func (j *joining) call(ctx context.Context, method string, params map[string]string) (result json.RawMessage) {
	j.mu.Lock()
	path := j.hub.Control
	j.mu.Unlock()
	if path == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, endBound)
	defer cancel()
	if control.Call(ctx, path, method, params, &result) != nil {
		return nil
	}
	return result
}

func (j *joining) Instances() *instances.Set { return j.Launched }

func (j *joining) Close() {
	j.Launched.Close()
	j.seats.close()
	j.mu.Lock()
	j.stop()
	j.mu.Unlock()
	j.work.Wait()
	j.Hubs.Close()
}
