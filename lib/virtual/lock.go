package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/virtual/policy"
	"btools/lib/virtual/takeover"
	"btools/lib/wait"
)

// A person who takes control of a session holds the commands of its clients that act, and no connection, context or
// CDP session: what the agent has stays. A command waits for the end of control, and fails after some seconds.

// personLock is what holds the commands of a session's clients.
type personLock struct {
	closed atomic.Bool // a person has control

	mu      sync.Mutex
	hold    takeover.Hold
	settles bool   // clients may release what they hold down
	by      string // who that is
	tell    func(event, who string)
	changed wait.Broadcast // who has control
	timer   *time.Timer    // of the end by itself; nil: nobody has control
}

// turns is who sends the commands of a client: what reads them, or what goes on with those that have waited.
type turns struct {
	sync.Mutex
	queue takeover.Queue[waiting]
	timer *time.Timer // of the first that waits
}

// waiting is a command that waits.
type waiting struct {
	command policy.Command
	message []byte
	why     error // it is refused if it waits for too long
}

// waits reports whether a command waits, or has been refused because too many do. The client has its turn.
func (k *Client) waits(c policy.Command, message []byte) bool {
	g, q := &k.session.lock, &k.turns.queue
	if !g.closed.Load() && q.IsEmpty() {
		return false
	}
	does := policy.During(c)
	if does == policy.Setup {
		does = policy.Script
		if k.isPaused(c.Session) {
			does = policy.Goes
		}
	}
	g.mu.Lock()
	h, settles := g.hold, g.settles
	g.mu.Unlock()
	holds := h.Holder != "" && (does == policy.Waits && !(settles && k.releases(c)) || does == policy.Script &&
		!h.Scripts)
	if !holds && (does == policy.Serves || !q.Blocks(c.Session)) {
		return false
	}
	message = bytes.Clone(message) // the reader reads the next one into it
	c, _ = policy.Parse(message)
	if err := q.Add(c.Session, waiting{c, message, h.Refusal()}, time.Now()); err != nil {
		k.refuse(c, err)
		return true
	}
	k.unanswered.add(c, false) // it is a use of the session
	if k.turns.timer == nil {
		k.turns.timer = time.AfterFunc(takeover.Patience, k.refuseLate)
	}
	return true
}

// isPaused reports whether the target of a CDP session waits until its clients have set it up.
func (k *Client) isPaused(session string) bool {
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	t := k.targetLocked(session)
	return t != nil && t.isPaused()
}

// refuseLate refuses what has waited for too long.
func (k *Client) refuseLate() {
	k.turns.Lock()
	defer k.turns.Unlock()
	k.refuseLateLocked()
	k.turns.timer = nil
	if due := k.turns.queue.Due(); !due.IsZero() {
		k.turns.timer = time.AfterFunc(time.Until(due), k.refuseLate)
	}
}

func (k *Client) refuseLateLocked() {
	now := time.Now()
	for {
		late, ok := k.turns.queue.Late(now)
		if !ok {
			return
		}
		k.refuse(late.command, late.why)
	}
}

// goOn sends what has waited, in its order.
func (k *Client) goOn() {
	k.turns.Lock()
	defer k.turns.Unlock()
	if k.turns.timer != nil {
		k.turns.timer.Stop()
		k.turns.timer = nil
	}
	for k.refuseLateLocked(); k.ctx.Err() == nil; {
		next, ok := k.turns.queue.Next()
		if !ok {
			return
		}
		if err := k.act(next.command, next.message); err != nil {
			k.disconnect(err)
			return
		}
	}
}

// Bounds of how long a person waits for control.
const (
	// takeWait is for commands that are being checked to be passed on.
	takeWait = 2 * time.Second
	// settleTime is for pages to have the inputs that Chrome has been sent, and for clients to release what they hold
	// down: a click that has begun is one.
	settleTime = 250 * time.Millisecond
)

// errUnderWay is the error of a person who would have to wait longer.
var errUnderWay = errors.New("a command of a client is still being prepared, such as for a page that another client " +
	"sets up: try again")

// TellControl has a function called with "taken" and "given_back" and who the person is.
func (s *Session) TellControl(tell func(event, who string)) {
	s.lock.mu.Lock()
	defer s.lock.mu.Unlock()
	s.lock.tell = tell
}

// told calls the function of TellControl.
func (s *Session) told(event string) {
	s.lock.mu.Lock()
	tell, who := s.lock.tell, s.lock.by
	s.lock.mu.Unlock()
	if tell != nil {
		tell(event, who)
	}
}

// Take gives a person control of the session. When it returns, no command of a client acts any more but scripts that
// run already, and nothing is held down.
func (s *Session) Take(holder, who string, scripts bool) error {
	g := &s.lock
	g.mu.Lock()
	had := g.hold.Holder != ""
	err := g.hold.Take(holder, scripts, time.Now())
	if err == nil {
		g.by, g.settles = who, true
		g.closed.Store(true)
		s.watchLocked()
	}
	g.mu.Unlock()
	if err != nil {
		return err
	}
	if !had {
		s.told("taken")
	}
	rest := make(chan struct{})
	go func() {
		s.eachClient((*Client).settle)
		g.mu.Lock()
		g.settles = false
		g.mu.Unlock()
		s.eachClient(func(k *Client) {
			k.turns.Lock()
			defer k.turns.Unlock()
			k.letGo()
		})
		close(rest)
	}()
	select {
	case <-rest:
		return nil
	case <-time.After(takeWait):
		s.Give(holder)
		return errUnderWay
	}
}

// eachClient has a function do something with each client, all at once, and waits for it.
func (s *Session) eachClient(do func(*Client)) {
	var all sync.WaitGroup
	for _, k := range s.everyClient(false) {
		all.Go(func() { do(k) })
	}
	all.Wait()
}

// settle waits until what the client is sending has been passed on, pages have its inputs, and it holds nothing down.
func (k *Client) settle() {
	k.turns.Lock()
	k.turns.Unlock()
	ctx, cancel := context.WithTimeout(k.ctx, settleTime)
	defer cancel()
	u := &k.unanswered
	u.mu.Lock()
	defer u.mu.Unlock()
	awaitLocked(ctx, &u.mu, &u.answered, func() bool { return u.inputs == 0 && !k.holdsDown() })
}

// Give ends the control of a person, and reports whether it had it.
func (s *Session) Give(holder string) bool {
	g := &s.lock
	g.mu.Lock()
	had := g.hold.Give(holder)
	g.mu.Unlock()
	if had {
		s.free()
	}
	return had
}

// lose notes that the connection of a person has ended.
func (s *Session) lose(k *Client) {
	g := &s.lock
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold.Lose(k.holder, time.Now())
	s.watchLocked()
}

// watchLocked ends control when nobody has it any more.
func (s *Session) watchLocked() {
	g := &s.lock
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	if end := g.hold.Ends(); !end.IsZero() {
		g.timer = time.AfterFunc(time.Until(end), func() {
			g.mu.Lock()
			over := g.hold.Over(time.Now())
			if !over {
				s.watchLocked() // there was an input meanwhile
			}
			g.mu.Unlock()
			if over {
				s.free()
			}
		})
	}
}

// free lets the clients go on, when the person holds nothing down any more.
func (s *Session) free() {
	for _, k := range s.everyClient(true) {
		k.letGo()
	}
	s.Touch() // it was used until now
	g := &s.lock
	g.mu.Lock()
	g.closed.Store(g.hold.Holder != "")
	s.watchLocked()
	g.changed.Wake()
	g.mu.Unlock()
	s.tellControl()
	s.told("given_back")
	s.goOn()
}

// goOn has each client send what has waited.
func (s *Session) goOn() {
	for _, k := range s.everyClient(false) {
		go k.goOn()
	}
}

// everyClient returns the clients, or the persons who look at the session.
func (s *Session) everyClient(persons bool) (all []*Client) {
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	for k := range s.clients {
		if persons == (k.person != nil) {
			all = append(all, k)
		}
	}
	return all
}

// pressed is what a client holds down.
type pressed struct {
	sync.Mutex
	takeover.Pressed
}

// letGo releases the buttons, keys and fingers that the client holds down.
func (k *Client) letGo() {
	k.pressed.Lock()
	defer k.pressed.Unlock()
	for _, up := range k.pressed.Release() {
		k.calls.Begin(up.Session, up.Method, up.Params, func(json.RawMessage, error) {})
	}
}

// holdsDown reports whether the client holds anything down.
func (k *Client) holdsDown() bool {
	k.pressed.Lock()
	defer k.pressed.Unlock()
	return k.pressed.Any()
}

// releases reports whether a command releases what the client holds down.
func (k *Client) releases(c policy.Command) bool {
	k.pressed.Lock()
	defer k.pressed.Unlock()
	return k.pressed.Releases(c.Session, c.Method, c.Params)
}

// inputs is how the methods of inputs begin.
const inputs = "Input."

// notePressed notes what an input holds down.
func (k *Client) notePressed(c policy.Command) {
	if strings.HasPrefix(c.Method, inputs) {
		k.pressed.Lock()
		defer k.pressed.Unlock()
		k.pressed.Note(c.Session, c.Method, c.Params)
	}
}

// mayAct returns the refusal of a request for /json that acts; nil: nobody has control.
func (s *Session) mayAct() error {
	s.lock.mu.Lock()
	defer s.lock.mu.Unlock()
	if s.lock.hold.Holder == "" {
		return nil
	}
	return s.lock.hold.Refusal()
}
