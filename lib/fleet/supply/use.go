package supply

import (
	"time"

	"btools/lib/wait"
)

// Idle says when a browser is idle, which ends it.
type Idle struct {
	Timeout       time.Duration // without use; 0: never
	ByConnections bool          // each open connection is use, not only what clients send and downloads
	// Busy, if not nil, reports whether the browser is at work that only it knows of.
	Busy func(pid int) bool
}

// busyChecks is how often a browser that is Busy is asked again during its idle time.
const busyChecks = 10

// A Conn is an open connection of a client, which ends with the browser.
type Conn interface {
	LastUse() time.Time // when the client last sent anything
	Close()
}

// use counts who uses a browser. It is pure: no lock, no clock, no I/O.
type use struct {
	byConnections bool
	users         int           // those that wait for something; they always count
	held          int           // sessions or requests that count by connections
	conns         map[Conn]bool // open connections
	last          time.Time     // the last use that is over and that neither connections nor sessions know
}

// at returns when the browser was used last; now, while it is in use. sessions is when its
// sessions were used last.
func (u *use) at(now, sessions time.Time) time.Time {
	if u.users > 0 || u.byConnections && (len(u.conns) > 0 || u.held > 0) {
		return now
	}
	last := u.last
	if u.byConnections {
		return last
	}
	for c := range u.conns {
		if t := c.LastUse(); t.After(last) {
			last = t
		}
	}
	if sessions.After(last) {
		last = sessions
	}
	return last
}

// Enter counts a user that waits for something; false: the browser is ending. The caller calls Leave.
func (c *Chrome) Enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.IsEnding() {
		return false
	}
	c.use.users++
	return true
}

// Leave ends what Enter began. It reports whether nothing waits any more for a browser that is still being launched.
func (c *Chrome) Leave() (unwanted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.use.users--
	return c.use.users == 0 && !wait.Closed(c.ready)
}

// Users returns the number of users that have entered.
func (c *Chrome) Users() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.use.users
}

// Hold counts a session or a request as use by connections. The caller calls Release.
func (c *Chrome) Hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.use.held++
}

// Release ends what Hold began.
func (c *Chrome) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.use.held--
	if c.use.byConnections {
		c.use.last = time.Now()
	}
}

// NoteUse notes that a client has used the browser.
func (c *Chrome) NoteUse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.use.last = time.Now()
}

// Connect adds an open connection; false: the browser is ending. The caller calls Disconnect.
func (c *Chrome) Connect(conn Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.IsEnding() {
		return false
	}
	c.connected.Add(1) // before it is ending, so nobody waits yet
	c.use.conns[conn], c.use.last = true, time.Now()
	return true
}

// Disconnect removes a connection. It reports whether it was the last one of a browser that goes on.
func (c *Chrome) Disconnect(conn Conn) (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.use.conns[conn] {
		c.connected.Done()
	}
	delete(c.use.conns, conn)
	c.use.last = time.Now()
	return len(c.use.conns) == 0 && !c.IsEnding()
}

// Conns returns the open connections.
func (c *Chrome) Conns() (open []Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.use.conns {
		open = append(open, conn)
	}
	return open
}

// LastUse returns when the browser was used last; now, while it is in use.
func (c *Chrome) LastUse() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastUseLocked()
}

func (c *Chrome) lastUseLocked() (last time.Time) {
	var sessions time.Time
	if s := c.sessions.Running(); s != nil && !c.use.byConnections {
		sessions = s.Used()
	}
	return c.use.at(time.Now(), sessions)
}

// onIdle ends a browser that has not been used for the idle time, or schedules the next check.
func (c *Chrome) onIdle() {
	i := c.Idle
	if !i.ByConnections && i.Busy != nil && time.Since(c.LastUse()) >= i.Timeout && i.Busy(c.Browser.Instance.PID) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.use.last = time.Now()
		c.idleTimer.Reset(i.Timeout / busyChecks)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.IsEnding() {
		return
	}
	if left := i.Timeout - time.Since(c.lastUseLocked()); left > 0 {
		c.idleTimer.Reset(left)
		return
	}
	c.endLocked(Unused)
}
