package virtual

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/control/api"
	"btools/lib/record"
	"btools/lib/virtual/policy"
	"btools/lib/virtual/takeover"
	"btools/lib/wait"
)

// A person who takes control of a session holds the commands of its clients that act, and no connection, context or
// CDP session: what the agent has stays. A command waits for the end of control, and fails after some seconds.

// personLock is who has control of a session, which holds the commands of its clients.
type personLock struct {
	s      *Session
	closed atomic.Bool // a person has control
	hides  atomic.Bool // and is private
	hid    atomic.Bool // one was
	hiding sync.Mutex  // held while who sees what changes
	asking sync.Mutex  // held while an ask begins or ends and this is told: mu comes after it

	mu       sync.Mutex
	hold     takeover.Hold
	asks     takeover.Asks
	answered chan<- answer  // of the ask that is open; it has room for one
	people   map[string]int // connections by the name of their person
	settles  bool           // clients may release what they hold down
	by       string         // who that is
	tell     func(event, who string)
	changed  wait.Broadcast // who has control
	timer    *time.Timer    // of the end by itself; nil: nobody has control
	stopped  bool           // the session has ended
}

// take gives a person control, and reports whether it had it. settled is called next.
func (l *personLock) take(holder, who string, scripts, private bool) (had bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	had = l.hold.Holder != ""
	if err := l.hold.Take(holder, scripts, private, time.Now()); err != nil {
		return had, err
	}
	l.by, l.settles = who, true
	l.closed.Store(true)
	l.watchLocked()
	return had, nil
}

// settled notes that clients need not release anything any more.
func (l *personLock) settled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settles = false
}

// give ends the control of a person, and reports whether it had it. The lock stays closed until open.
func (l *personLock) give(holder string) bool {
	l.mu.Lock()
	had, who := l.hold.Give(holder), l.by
	l.mu.Unlock()
	if had {
		l.free(who)
	}
	return had
}

// lose notes that the connection of a person has ended. A newer one of the same person goes on.
func (l *personLock) lose(k *Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forgetLocked(k) > 0 {
		return
	}
	l.hold.Lose(k.holder, time.Now())
	l.watchLocked()
}

// open lets clients go on, if nobody has taken control since.
func (l *personLock) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed.Store(l.hold.Holder != "")
	l.watchLocked()
	l.changed.Wake()
}

// watchLocked ends control when nobody has it any more.
func (l *personLock) watchLocked() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if end := l.hold.Ends(); !end.IsZero() && !l.stopped {
		l.timer = time.AfterFunc(time.Until(end), l.end)
	}
}

// end ends control that has ended by itself.
func (l *personLock) end() {
	l.mu.Lock()
	over, who := l.hold.Over(time.Now()), l.by
	if !over {
		l.watchLocked() // there was an input meanwhile
	}
	l.mu.Unlock()
	if over {
		l.free(who)
	}
}

// stop ends the lock with its session.
func (l *personLock) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.watchLocked()
}

// holds reports whether a command that does so waits; releases: it releases what its client holds down.
func (l *personLock) holds(does policy.While, releases func() bool) bool {
	l.mu.Lock()
	taken, scripts, settles := l.hold.Holder != "", l.hold.Scripts, l.settles
	l.mu.Unlock()
	return taken && (does == policy.Waits && !(settles && releases()) || does == policy.Script && !scripts)
}

// holdNow returns who has control, and how.
func (l *personLock) holdNow() takeover.Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hold
}

// refusal returns the error of a command that may not act; nil: nobody has control.
func (l *personLock) refusal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold.Holder == "" {
		return nil
	}
	return l.hold.Refusal()
}

// isOf reports whether a person has control, and notes an input.
func (l *personLock) isOf(k *Client, isInput bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.holder == "" || l.hold.Holder != k.holder {
		return false
	}
	if isInput {
		l.hold.Use(time.Now())
	}
	return true
}

// name notes by which name a person has control.
func (l *personLock) name(k *Client, holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetLocked(k)
	k.holder = holder
	if l.people == nil {
		l.people = map[string]int{}
	}
	l.people[holder]++
	if l.hold.Holder == holder { // the end of an older connection may have been noted since it was taken
		l.hold.Take(holder, l.hold.Scripts, l.hold.Private, time.Now())
		l.watchLocked()
	}
}

// forgetLocked forgets a connection, and returns how many others its person has.
func (l *personLock) forgetLocked(k *Client) int {
	if l.people[k.holder] > 1 {
		l.people[k.holder]--
	} else {
		delete(l.people, k.holder)
	}
	return l.people[k.holder]
}

// status returns who has control; nil: nobody.
func (l *personLock) status() *api.Control {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold.Holder == "" {
		return nil
	}
	return &api.Control{By: l.by, Since: record.Time{Time: l.hold.Since}, Private: l.hold.Private}
}

// holding returns what a person is told of who has control.
func (l *personLock) holding(k *Client) holding {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hold
	if h.Holder == "" {
		return holding{}
	}
	return holding{By: l.by, Since: &record.Time{Time: h.Since}, Until: &record.Time{Time: h.Ends()},
		You: k.holder == h.Holder, Private: h.Private}
}

// await waits until nobody has control, and reports whether that is so.
func (l *personLock) await(ctx context.Context) bool {
	for {
		l.mu.Lock()
		free, changed := l.hold.Holder == "", l.changed.Next()
		l.mu.Unlock()
		if free {
			return true
		}
		if wait.For(ctx, changed) != nil {
			return false
		}
	}
}

// told calls the function of TellControl.
func (l *personLock) told(event, who string) {
	l.mu.Lock()
	tell := l.tell
	l.mu.Unlock()
	if tell != nil {
		tell(event, who)
	}
}

// turns is who sends the commands of a client: what reads them, or what goes on with those that have waited.
type turns struct {
	of *Client

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

// waitsLocked reports whether a command waits, or has been refused because too many do.
func (t *turns) waitsLocked(c policy.Command, message []byte) bool {
	k := t.of
	if !k.session.lock.closed.Load() && t.queue.IsEmpty() {
		return false
	}
	does := policy.During(c)
	if does == policy.Setup {
		does = policy.Script
		if k.sessions.isPaused(c.Session) {
			does = policy.Goes
		}
	}
	holds := k.session.lock.hides.Load() && !policy.InPrivate(c) ||
		k.session.lock.holds(does, func() bool { return k.pressed.releases(c) })
	if !holds && (does == policy.Serves || !t.queue.Blocks(c.Session)) {
		return false
	}
	message = bytes.Clone(message) // the reader reads the next one into it
	c, _ = policy.Parse(message)
	why := cmp.Or(k.session.lock.refusal(), errGivenBack)
	if err := t.queue.Add(c.Session, waiting{c, message, why}, time.Now()); err != nil {
		k.request(c).refuse(err)
		return true
	}
	k.unanswered.add(c, false) // it is a use of the session
	if t.timer == nil {
		t.timer = time.AfterFunc(takeover.Patience, t.refuseLate)
	}
	return true
}

// refuseLate refuses what has waited for too long.
func (t *turns) refuseLate() {
	t.Lock()
	defer t.Unlock()
	t.refuseLateLocked()
	t.timer = nil
	if due := t.queue.Due(); !due.IsZero() {
		t.timer = time.AfterFunc(time.Until(due), t.refuseLate)
	}
}

func (t *turns) refuseLateLocked() {
	now := time.Now()
	for {
		late, ok := t.queue.Late(now)
		if !ok {
			return
		}
		t.of.request(late.command).refuse(late.why)
	}
}

// goOn sends what has waited, in its order.
func (t *turns) goOn() {
	t.Lock()
	defer t.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	for t.refuseLateLocked(); t.of.ctx.Err() == nil; {
		next, ok := t.queue.Next()
		if !ok {
			return
		}
		if err := t.of.request(next.command).act(next.message); err != nil {
			t.of.disconnect(err)
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

// errGivenBack is the error of a command that has waited although control was being given back.
var errGivenBack = errors.New("a person gives back control of this session; nothing was done")

// TellControl sets a function that is called with "taken" or "given_back", and who the person is, and with "asked" or
// "answered", and what a person is asked to do or the outcome.
func (s *Session) TellControl(tell func(event, who string)) {
	s.lock.mu.Lock()
	defer s.lock.mu.Unlock()
	s.lock.tell = tell
}

// takeOver gives a person control of the session. When it returns, no command of a client acts any more but scripts
// that run already, and nothing is held down.
func (l *personLock) takeOver(holder, who string, scripts, private bool) error {
	had, err := l.take(holder, who, scripts, private)
	if err != nil {
		return err
	}
	if !had {
		l.told("taken", who)
	}
	rest := make(chan struct{})
	go func() {
		defer close(rest)
		l.s.clients.each((*Client).settle)
		l.settled()
		l.s.clients.each(func(k *Client) {
			k.turns.Lock()
			defer k.turns.Unlock()
			k.letGo()
			k.setDrags(false)
		})
	}()
	select {
	case <-rest:
		return nil
	case <-time.After(takeWait):
		l.give(holder)
		return errUnderWay
	}
}

// free lets the clients go on, when the person holds nothing down any more.
func (l *personLock) free(who string) {
	for _, k := range l.s.clients.every(true) {
		k.letGo()
	}
	l.s.Touch() // it was used until now
	l.hide()
	l.open()
	l.s.clients.tellControl()
	l.told("given_back", who)
	for _, k := range l.s.clients.every(false) {
		k.setDrags(true)
		go k.turns.goOn()
	}
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
	awaitLocked(ctx, &u.mu, &u.answered, func() bool { return u.inputs == 0 && !k.pressed.any() })
}

// letGo releases the buttons, keys and fingers that the client holds down.
func (k *Client) letGo() {
	k.begin(k.pressed.release())
}

// setDrags lets the client intercept drags if it does, or not for some time: a person's would go to it alone.
func (k *Client) setDrags(on bool) {
	k.pressed.mu.Lock()
	all := k.pressed.now.Drags(on)
	k.pressed.mu.Unlock()
	k.begin(all)
}

// begin sends commands whose answers do not matter.
func (k *Client) begin(all []takeover.Command) {
	for _, c := range all {
		k.calls.Begin(c.Session, c.Method, c.Params, func(json.RawMessage, error) {})
	}
}

// pressed is what a client holds down.
type pressed struct {
	mu  sync.Mutex
	now takeover.Pressed
}

// release returns what releases all, and forgets it.
func (p *pressed) release() []takeover.Command {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.Release()
}

// any reports whether anything is held down.
func (p *pressed) any() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.Any()
}

// releases reports whether a command releases something.
func (p *pressed) releases(c policy.Command) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.Releases(c.Session, c.Method, c.Params)
}

// inputs is how the methods of inputs begin.
const inputs = "Input."

// note notes what an input holds down.
func (p *pressed) note(c policy.Command) {
	if strings.HasPrefix(c.Method, inputs) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.now.Note(c.Session, c.Method, c.Params)
	}
}
