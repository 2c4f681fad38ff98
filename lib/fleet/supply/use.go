package supply

import (
	"context"
	"sync"
	"time"

	"btools/lib/virtual"
	"btools/lib/wait"
)

// Idle says when a browser is idle, which ends it.
type Idle struct {
	Timeout       time.Duration // time without use; 0: never
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
	users         int           // users that wait for something; they always count
	held          int           // sessions and requests that count by connections
	conns         map[Conn]bool // open connections
	last          time.Time     // last use that is over and that neither connections nor sessions know
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

// users are those of a browser: what waits for it, its open connections, and those of its sessions.
type users struct {
	ready     chan struct{}   // closed when the browser is launched, or could not be
	ctx       context.Context // ends when the browser is ending; the cause says why
	sessions  *wait.Starter[*virtual.Browser]
	connected sync.WaitGroup // connections; none is added once the browser is ending

	mu  sync.Mutex // nothing blocks while it is held
	use use
}

// Enter counts a user that waits for something; false: the browser is ending. The caller calls Leave.
func (u *users) Enter() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx.Err() != nil {
		return false
	}
	u.use.users++
	return true
}

// Leave ends what Enter began. It reports whether nothing waits any more for a browser that is still being launched.
func (u *users) Leave() (unwanted bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.use.users--
	return u.use.users == 0 && !wait.Closed(u.ready)
}

// Users returns the number of users that have entered.
func (u *users) Users() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.use.users
}

// Hold counts a session or a request as use by connections. The caller calls Release.
func (u *users) Hold() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.use.held++
}

// Release ends what Hold began.
func (u *users) Release() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.use.held--
	if u.use.byConnections {
		u.use.last = time.Now()
	}
}

// NoteUse notes that a client has used the browser.
func (u *users) NoteUse() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.use.last = time.Now()
}

// Connect adds an open connection; false: the browser is ending. The caller calls Disconnect.
func (u *users) Connect(conn Conn) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx.Err() != nil {
		return false
	}
	u.connected.Add(1) // before it is ending, so nobody waits yet
	u.use.conns[conn], u.use.last = true, time.Now()
	return true
}

// Disconnect removes a connection. It reports whether it was the last one of a browser that goes on.
func (u *users) Disconnect(conn Conn) (last bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.use.conns[conn] {
		u.connected.Done()
	}
	delete(u.use.conns, conn)
	u.use.last = time.Now()
	return len(u.use.conns) == 0 && u.ctx.Err() == nil
}

// Conns returns the open connections.
func (u *users) Conns() (open []Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for conn := range u.use.conns {
		open = append(open, conn)
	}
	return open
}

// LastUse returns when the browser was used last; now, while it is in use.
func (u *users) LastUse() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.lastUseLocked()
}

func (u *users) lastUseLocked() (last time.Time) {
	var sessions time.Time
	if s := u.sessions.Running(); s != nil && !u.use.byConnections {
		sessions = s.Used()
	}
	return u.use.at(time.Now(), sessions)
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
