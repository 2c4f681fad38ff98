package virtual

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/jsonrpc"
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
	by      string         // who that is
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
}

// waits reports whether a command waits, or has been refused because too many do. The client has its turn.
func (k *Client) waits(c policy.Command, message []byte) bool {
	q := &k.turns.queue
	does := policy.During(c.Method)
	g := &k.session.lock
	holds := g.closed.Load() && (does == policy.Waits || does == policy.Script && !g.letsScripts())
	if !holds && (does == policy.Serves || !q.Blocks(c.Session)) {
		return false
	}
	message = bytes.Clone(message) // the reader reads the next one into it
	c, _ = policy.Parse(message)
	if err := q.Add(c.Session, waiting{c, message}, time.Now()); err != nil {
		k.refuse(c, err)
		return true
	}
	if k.turns.timer == nil {
		k.turns.timer = time.AfterFunc(takeover.Patience, k.refuseLate)
	}
	return true
}

func (g *personLock) letsScripts() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hold.Scripts
}

// refuseLate refuses what has waited for too long.
func (k *Client) refuseLate() {
	k.turns.Lock()
	defer k.turns.Unlock()
	k.turns.timer = nil
	g := &k.session.lock
	g.mu.Lock()
	why := g.hold.Refusal()
	g.mu.Unlock()
	now := time.Now()
	for {
		h, ok := k.turns.queue.Late(now)
		if !ok {
			break
		}
		k.refuse(h.command, jsonrpc.Errorf(policy.ServerError, "%v", why))
	}
	if due := k.turns.queue.Due(); !due.IsZero() {
		k.turns.timer = time.AfterFunc(time.Until(due), k.refuseLate)
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
	for {
		h, ok := k.turns.queue.Next()
		if !ok {
			return
		}
		if err := k.act(h.command, h.message); err != nil {
			k.disconnect(err)
			return
		}
	}
}

// Take gives a person control of the session. When it returns, no command of a client acts any more but those that
// Chrome has been sent.
func (s *Session) Take(holder, who string, scripts bool) error {
	g := &s.lock
	g.mu.Lock()
	err := g.hold.Take(holder, scripts, time.Now())
	if err == nil {
		g.by = who
		g.closed.Store(true)
		s.watchLocked()
	}
	g.mu.Unlock()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, k := range s.everyClient() {
		all.Go(func() {
			k.turns.Lock() // what it is sending now
			k.turns.Unlock()
		})
	}
	all.Wait()
	return nil
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

// free lets the clients go on.
func (s *Session) free() {
	g := &s.lock
	g.mu.Lock()
	g.closed.Store(g.hold.Holder != "")
	s.watchLocked()
	g.changed.Wake()
	g.mu.Unlock()
	s.tellControl()
	for _, k := range s.everyClient() {
		s.work.Go(k.goOn)
	}
}

func (s *Session) everyClient() (all []*Client) {
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	for k := range s.clients {
		if k.person == nil {
			all = append(all, k)
		}
	}
	return all
}
