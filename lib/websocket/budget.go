package websocket

import (
	"sync/atomic"
	"time"
)

// Budget bounds the bytes of the messages that several connections receive as a
// whole at the same time, beyond what each may have for nothing. The zero value
// allows none.
type Budget struct {
	Max  int64
	used atomic.Int64
}

// freeBytes is what each connection may have outside the budget.
const freeBytes = 64 << 10

// take reserves bytes, or reports false.
func (b *Budget) take(n int64) bool {
	if b.used.Add(n) <= b.Max {
		return true
	}
	b.used.Add(-n)
	return false
}

// reserve takes as much from the connection's budget as a message in memory of a size
// needs.
func (c *Conn) reserve(size int) error {
	more := int64(size) - freeBytes - c.reserved
	if c.Budget == nil || more <= 0 {
		return nil
	}
	if !c.Budget.take(more) {
		return c.refuse(&ProtocolError{PolicyViolation, "too many large messages are being received at once"})
	}
	c.reserved += more
	return nil
}

// Release gives back what the last message has taken from the budget. The reader
// calls it once it has left the message; Next does so, too.
func (c *Conn) Release() {
	if c.reserved > 0 {
		c.Budget.used.Add(-c.reserved)
		c.reserved = 0
	}
}

// expectProgress has the next read of a message fail if no byte comes for Progress.
func (c *Conn) expectProgress() {
	if c.Progress > 0 {
		c.hurried = true
		c.raw.SetReadDeadline(time.Now().Add(c.Progress))
	}
}

// expectNothing ends that.
func (c *Conn) expectNothing() {
	if c.hurried {
		c.hurried = false
		c.raw.SetReadDeadline(time.Time{})
	}
}
