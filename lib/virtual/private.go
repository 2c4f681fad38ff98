package virtual

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/record"
	"btools/lib/virtual/policy"
	"btools/lib/virtual/takeover"
	"btools/lib/websocket"
)

// While a person is private, nobody else gets a byte of the pages: commands wait, the answers of those under way are
// withheld, events of content are dropped, and those of structure are kept until the end.

// outlet is where messages for a client go.
type outlet struct {
	*websocket.Outbox
	k     *Client
	sifts atomic.Bool  // not all messages pass as they are
	round atomic.Int32 // number of times that a person began or ended to be private

	mu       sync.Mutex
	private  bool
	why      *policy.Error              // of the answers that are withheld
	kept     takeover.Kept              // until the end
	behind   map[string]bool            // CDP sessions of which messages of that time may still come
	withheld map[int]string             // CDP sessions of commands by their ids: they have got an error as their answer
	requests map[string]string          // CDP sessions of requests that began in that time, by their ids
	casts    map[string]json.RawMessage // params of the screencasts by CDP session
}

// isPrivate reports whether a person is private from the client.
func (o *outlet) isPrivate() bool {
	if !o.sifts.Load() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.private
}

// Put sends a message, or what may pass of it.
func (o *outlet) Put(message []byte) {
	if o.sifts.Load() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if message = o.siftLocked(message); message == nil {
			return
		}
	}
	o.Outbox.Put(message)
}

// answer sends an answer of ours to a command.
func (o *outlet) answer(r request, message []byte) {
	if o.sifts.Load() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if round := o.round.Load(); r.round != round && o.withheldLocked(r.ID) {
			return
		} else if r.round != round && o.private && !policy.InPrivate(r.Command) {
			message = policy.Failure(r.Command, o.why)
		}
	}
	o.Outbox.Put(message)
}

// withheldLocked reports whether the command with an id has got an error as its answer, and forgets it.
func (o *outlet) withheldLocked(id json.RawMessage) bool {
	n, err := strconv.Atoi(string(id))
	if _, is := o.withheld[n]; err != nil || !is {
		return false
	}
	delete(o.withheld, n)
	o.noteLocked()
	return true
}

// siftLocked returns what a client gets of a message; nil: nothing.
func (o *outlet) siftLocked(message []byte) []byte {
	method, session := jsonrpc.GetString(message, "method"), jsonrpc.GetString(message, "sessionId")
	switch {
	case method == "" && o.withheldLocked(jsonrpc.Get(message, "id")):
		return nil
	case method == "" && o.private:
		return policy.Failure(policy.Command{ID: jsonrpc.Get(message, "id"), Session: session}, o.why)
	case method == "", strings.HasPrefix(method, "Btools."):
		return message
	}
	params := jsonrpc.Get(message, "params")
	if !o.isOfRequestLocked(session, method, params) && !o.private && !o.behind[session] {
		return message
	}
	o.serveLocked(session, method, params)
	if params = policy.Structure(method, params); params == nil {
		return nil
	}
	event := wire.Event(session, method, params)
	if !o.private {
		return event
	}
	if err := o.kept.Add(session, method, event); err != nil {
		go o.k.disconnect(err)
	}
	return nil
}

// lateRequest is how much later than the end of a request Chrome may tell of it.
const lateRequest = 2 * time.Second

// isOfRequestLocked reports whether an event is of a request that began while a person was private, and notes those.
func (o *outlet) isOfRequestLocked(session, method string, params json.RawMessage) bool {
	name := "requestId"
	if strings.HasPrefix(method, "Fetch.") {
		name = "networkId"
	} else if !strings.HasPrefix(method, "Network.") {
		return false
	}
	id := jsonrpc.GetString(params, name)
	_, is := o.requests[id]
	begins := strings.HasPrefix(method, "Network.requestWillBeSent") || strings.HasSuffix(method, "Created") ||
		method == "Fetch.requestPaused"
	if o.private && begins && id != "" && !is {
		if o.requests == nil {
			o.requests = map[string]string{}
		}
		o.requests[id], is = session, true
	}
	if is && (method == "Network.loadingFinished" || method == "Network.loadingFailed") {
		time.AfterFunc(lateRequest, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			delete(o.requests, id)
			o.noteLocked()
		})
	}
	return is
}

// serveLocked does for a client what a page waits for.
func (o *outlet) serveLocked(session, method string, params json.RawMessage) {
	id := func(name string) json.RawMessage { return jsonrpc.Get(params, name) }
	switch byDefault := map[string]string{"response": "Default"}; method {
	case "Fetch.requestPaused":
		o.k.calls.Send(session, "Fetch.continueRequest", map[string]any{"requestId": id("requestId")})
	case "Fetch.authRequired":
		o.k.calls.Send(session, "Fetch.continueWithAuth", map[string]any{"requestId": id("requestId"),
			"authChallengeResponse": byDefault})
	case "Network.requestIntercepted":
		with := map[string]any{"interceptionId": id("interceptionId")}
		if id("authChallenge") != nil {
			with["authChallengeResponse"] = byDefault
		}
		o.k.calls.Send(session, "Network.continueInterceptedRequest", with)
	case "Debugger.paused":
		o.k.calls.Send(session, "Debugger.resume", nil)
	}
}

// noteLocked notes whether all messages pass as they are.
func (o *outlet) noteLocked() {
	o.sifts.Store(o.private || len(o.behind) > 0 || len(o.withheld) > 0 || len(o.requests) > 0)
}

// end forgets a CDP session that has ended.
func (o *outlet) end(session string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.casts, session)
	delete(o.behind, session)
	maps.DeleteFunc(o.withheld, func(_ int, of string) bool { return of == session })
	maps.DeleteFunc(o.requests, func(_, of string) bool { return of == session })
	o.noteLocked()
}

// noteCast notes a command that begins or ends a screencast.
func (o *outlet) noteCast(c policy.Command) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.casts, c.Session)
	if c.Method == "Page.startScreencast" {
		if o.casts == nil {
			o.casts = map[string]json.RawMessage{}
		}
		o.casts[c.Session] = append(json.RawMessage{}, c.Params...)
	}
}

// shut keeps the pages from a client: hold is of the person who is private.
func (o *outlet) shut(hold takeover.Hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.private {
		return
	}
	o.private, o.why = true, jsonrpc.Errorf(policy.ServerError, "%v", hold.Withheld())
	o.round.Add(1)
	o.noteLocked()
	if o.withheld == nil {
		o.withheld = map[int]string{}
	}
	for id, c := range o.k.unanswered.takeSent() {
		o.withheld[id] = c.session
		of := policy.Command{ID: strconv.AppendInt(nil, int64(id), 10), Session: c.session}
		o.Outbox.Put(policy.Failure(of, o.why))
	}
	for session := range o.casts {
		o.k.calls.Send(session, "Page.stopScreencast", nil)
	}
	if o.k.session.options.DefaultContext {
		o.k.calls.Send("", "Tracing.end", nil) // what was recorded is dropped
	}
	if o.k.person == nil {
		o.Outbox.Put(wire.Event("", "Btools.private", map[string]any{"since": record.Time{Time: hold.Since}}))
	}
}

// catchUp has Chrome say when it has sent all that it had to on a client's CDP sessions, and calls done then. What it
// keeps of the console is discarded: clients would get it later.
func (o *outlet) catchUp(sessions []string, done func()) {
	o.mu.Lock()
	private := o.private
	if private {
		o.behind = map[string]bool{}
		for _, s := range sessions {
			o.behind[s] = true
		}
	}
	o.mu.Unlock()
	if !private {
		return
	}
	var once sync.Once // a CDP session that has ended is not behind
	for _, session := range sessions {
		last := "Log.clear"
		if session == "" && o.k.page == "" {
			last = "Browser.getVersion"
		} else {
			o.k.calls.Send(session, "Runtime.discardConsoleEntries", nil)
		}
		o.k.calls.Begin(session, last, nil, func(json.RawMessage, error) {
			o.mu.Lock()
			delete(o.behind, session)
			all := len(o.behind) == 0
			o.noteLocked()
			o.mu.Unlock()
			if all {
				once.Do(done)
			}
		})
	}
}

// open lets a client see pages again. CDP sessions that Chrome has not answered stay behind.
func (o *outlet) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.private {
		return
	}
	for _, event := range o.kept.Take() {
		o.Outbox.Put(event)
	}
	o.private = false
	o.round.Add(1)
	o.noteLocked()
	for session, params := range o.casts {
		o.k.calls.Send(session, "Page.startScreencast", params)
	}
}

// wouldRecall reports whether a command would have Chrome tell of a time in which a person was private.
func (r request) wouldRecall() bool {
	b := r.k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	t := r.k.sessions.targetLocked(r.Session)
	return r.k.session.lock.hid.Load() && (t == nil || t.private)
}

// catchUpTime bounds how long a client waits at the end for pages that do not answer: one has a dialog, or hangs.
const catchUpTime = 30 * time.Millisecond

// hide shows clients and persons what they may see.
func (l *personLock) hide() {
	l.hiding.Lock()
	defer l.hiding.Unlock()
	hold := l.holdNow()
	if !hold.Private {
		if !l.hides.Load() {
			return
		}
		ctx, cancel := context.WithTimeout(l.s.life.ctx, time.Second)
		defer cancel()
		var happened sync.WaitGroup // to targets and downloads
		happened.Go(func() { l.s.browser.sync(ctx) })
		l.s.link.Call(ctx, "", "Browser.getVersion", nil)
		happened.Wait()
	}
	var open []*Client
	var sessions [][]string
	b := l.s.browser
	b.mu.Lock()
	l.hides.Store(true)
	l.hid.Store(true)
	for _, t := range l.s.targetsLocked() {
		t.private = true
	}
	for k := range l.s.clients.all {
		if !hold.Private || k.person != nil && l.isOf(k, false) {
			open = append(open, k)
			sessions = append(sessions, append(k.sessions.allLocked(), ""))
			continue
		}
		k.toClient.shut(hold)
		for _, t := range l.s.targetsLocked() {
			t.leaveLocked(k) // what it was to set up
		}
	}
	if !hold.Private {
		for _, t := range l.s.pages.attachedLocked() {
			l.s.link.Send(t.own, "Runtime.discardConsoleEntries", nil)
			l.s.link.Send(t.own, "Log.clear", nil)
		}
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(l.s.life.ctx, catchUpTime)
	defer cancel()
	var all sync.WaitGroup
	for i, k := range open {
		all.Go(func() {
			caughtUp := make(chan struct{})
			k.toClient.catchUp(sessions[i], func() { close(caughtUp) })
			if k.toClient.isPrivate() {
				select {
				case <-caughtUp:
				case <-ctx.Done():
				case <-k.ctx.Done():
				}
			}
			k.toClient.open()
		})
	}
	all.Wait()
	if !hold.Private {
		b.mu.Lock()
		defer b.mu.Unlock()
		l.hides.Store(false)
		for k := range l.s.clients.all { // some have come meanwhile
			k.toClient.open()
		}
	}
}
