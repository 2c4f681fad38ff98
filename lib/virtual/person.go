package virtual

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"

	"btools/lib/cdp/wire"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/record"
	"btools/lib/virtual/policy"
	"btools/lib/websocket"
)

// A person looks at a session by a connection of its own, which is none of a client: it is not counted, is no use of
// the session, wakes nothing, and no client is told of it.

// Person is somebody who looks at a session.
type Person struct {
	Who  string // as others are told
	Tile bool   // a small picture among others
	View bool   // may not take control
}

// maxPersons is how many persons look at a session at once: each has a screencast of its own.
const maxPersons = 8

// errPersons is the error of one too many.
var errPersons = errors.New("the session is already seen by as many as may")

// Taken answers attach: the connection is a person's from then on.
func (s *Session) Taken(r api.AttachRequest) control.Taken {
	return control.Taken{Answer: api.Attached{Lock: true}, Do: func(ctx context.Context, c net.Conn) {
		s.clients.attach(ctx, websocket.New(c, false, nil), Person{Who: r.Who, Tile: r.Tile, View: r.View})
	}}
}

// mayView returns the refusal of a command that a person may not send without control.
func (r request) mayView() *policy.Error {
	switch lock := &r.k.session.lock; {
	case r.k.toClient.isPrivate() && !policy.InPrivate(r.Command) && !strings.HasPrefix(r.Method, "Btools."):
		return jsonrpc.Errorf(policy.ServerError, "%v", cmp.Or(lock.refusal(), errGivenBack))
	case policy.Views(r.Method), lock.isOf(r.k, policy.During(r.Command) == policy.Waits):
		return nil
	}
	return jsonrpc.Errorf(policy.ServerError, "%s needs control of the session: Btools.take", r.Method)
}

// holding is what persons are told of who has control.
type holding struct {
	By    string       `json:"by,omitempty"` // "": nobody has
	Since *record.Time `json:"since,omitempty"`
	Until *record.Time `json:"until,omitempty"` // when it ends by itself without another input
	You   bool         `json:"you"`
	// Private says that the others see nothing of the pages.
	Private bool `json:"private"`
}

// minHolder is how many characters name a holder at least: who knows the name can take the place of a lost connection.
const minHolder = 16

// take answers Btools.take: the person has control, by a random name that it gives, again with it after its connection
// was lost.
func take(r request) {
	var p struct {
		Holder  string
		Scripts bool
		Private *bool // nil: as the ask that is open wishes
	}
	json.Unmarshal(r.Params, &p) // else there is no name
	switch {
	case r.k.person == nil || r.k.person.Tile:
		r.refuse(policy.NotAllowed())
		return
	case r.k.person.View:
		r.refuse(jsonrpc.Errorf(policy.ServerError, "whoever has this address may look only: "+
			"bproxy view --control prints one that may take control"))
		return
	case len(p.Holder) < minHolder:
		r.refuse(jsonrpc.Errorf(jsonrpc.InvalidParams, "holder is a random text of at least %d characters",
			minHolder))
		return
	}
	lock := &r.k.session.lock
	ask := lock.askOpen()
	private := ask != nil && ask.Private
	if p.Private != nil {
		private = *p.Private
	}
	if err := lock.takeOver(p.Holder, r.k.person.Who, p.Scripts, private); err != nil {
		r.refuse(err)
		return
	}
	lock.name(r.k, p.Holder)
	lock.hide()
	b := r.k.session.browser
	b.mu.Lock()
	r.k.downloads.wanted[""] = true // the page offers to save them
	b.mu.Unlock()
	r.k.session.throttle.wake(r.k.ctx)
	r.reply(emptyObject)
	r.k.session.clients.tellControl()
}

// waitUntilFree answers Btools.waitUntilFree when no person has control.
func waitUntilFree(r request) {
	r.k.session.work.Go(func() {
		if r.k.session.lock.await(r.k.ctx) {
			r.reply(emptyObject)
		}
	})
}

// command is what persons are told of a command of a client: what, where, and no values.
type command struct {
	Method string   `json:"method"`
	Target string   `json:"targetId,omitempty"`
	Type   string   `json:"type,omitempty"` // of a mouse event, as the next
	X      *float64 `json:"x,omitempty"`
	Y      *float64 `json:"y,omitempty"`
}

// tellCommand tells persons what the client does. Those with a tile are told of what acts, which is less.
func (k *Client) tellCommand(c policy.Command) {
	var does command
	if c.Method == "Input.dispatchMouseEvent" {
		json.Unmarshal(c.Params, &does) // else it has no place
	}
	does.Method, does.Target = c.Method, ""
	acts := policy.During(c) == policy.Waits
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := k.sessions.targetLocked(c.Session); t != nil {
		does.Target = t.id
	} else if t := b.targets[jsonrpc.GetString(c.Params, "targetId")]; t != nil && t.session == k.session {
		does.Target = t.id
	}
	event := wire.Event("", "Btools.command", does)
	for other := range k.session.clients.all {
		if other.person != nil && (acts || !other.person.Tile) {
			other.toClient.Put(event)
		}
	}
}

// touch notes that a client uses the session. A person does not.
func (k *Client) touch() {
	if k.person == nil {
		k.session.Touch()
	}
}
