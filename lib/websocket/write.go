package websocket

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// block is the buffer for long messages: large enough that a system call
// carries much, and small enough to stay in a processor's cache.
type block [128 << 10]byte

var blocks = sync.Pool{New: func() any { return new(block) }}

// Write sends a text message in one frame.
func (c *Conn) Write(message []byte) error { return c.WriteAll(message) }

// WriteAll sends text messages, a frame each, with no other frames between
// them. Short messages share one system call.
func (c *Conn) WriteAll(messages ...[]byte) error {
	if err := c.lock(); err != nil {
		return err
	}
	defer c.unlock()
	buf := blocks.Get().(*block)
	defer blocks.Put(buf)
	out := buf[:0]
	for _, b := range messages {
		if c.Trace != nil {
			c.Trace(true, b, int64(len(b)))
		}
		var err error
		if out, err = c.writeFrame(out, c.newHead(true, opText, int64(len(b))), b); err != nil {
			return err
		}
	}
	return c.send(out)
}

// newHead returns the head of a frame that this end sends.
func (c *Conn) newHead(final bool, opcode byte, size int64) head {
	h := head{final: final, opcode: opcode, masked: c.client, size: size}
	if c.client {
		h.key = newKey()
	}
	return h
}

// writeFrame appends a frame to out, and sends what does not fit.
func (c *Conn) writeFrame(out []byte, h head, payload []byte) ([]byte, error) {
	if cap(out)-len(out) < maxHead {
		if err := c.send(out); err != nil {
			return nil, err
		}
		out = out[:0]
	}
	out = appendHead(out, h)
	for key := h.key; ; {
		n := min(len(payload), cap(out)-len(out))
		out = append(out, payload[:n]...)
		if h.masked {
			key = mask(out[len(out)-n:], key)
		}
		if payload = payload[n:]; len(payload) == 0 {
			return out, nil
		}
		if err := c.send(out); err != nil {
			return nil, err
		}
		out = out[:0]
		if !h.masked { // send it from where it is
			return out, c.send(payload)
		}
	}
}

// Relay sends a message of another connection while it arrives, in the same
// frames: a single frame stays one, and its length is sent first. The goroutine
// that reads the other connection calls it. If reading fails after a part was
// sent, c is closed, because the rest cannot follow, unless it is to Complete
// messages. If writing fails, the other connection can go on with Next.
func (c *Conn) Relay(m *Message) error {
	if err := m.usable(); err != nil {
		return err
	}
	if err := c.lock(); err != nil {
		return err
	}
	defer c.unlock()
	m.used = true
	opcode := byte(opText)
	if len(m.peeked) > 0 {
		whole := m.final && m.left == 0
		c.trace(m, m.peeked, whole)
		if err := c.sendFrame(whole, opText, m.peeked); err != nil || whole {
			return err
		}
		opcode = opContinuation
	}
	for {
		if err := c.relayFrame(m, opcode); err != nil {
			return err
		}
		if m.final {
			return nil
		}
		if err := m.nextFrame(opContinuation); err != nil {
			return c.cutOff(m, 0, err)
		}
		opcode = opContinuation
	}
}

// relayFrame relays the rest of the current frame, as one frame.
func (c *Conn) relayFrame(m *Message, opcode byte) error {
	h := c.newHead(m.final, opcode, m.left)
	key := h.key
	// The bytes in the buffer are sent from there, with the new head in the place
	// of the old one: a short message takes one write.
	from := m.c
	b := m.ready()
	c.trace(m, b, m.final && m.left == int64(len(b)))
	if c.client {
		key = mask(b, key)
	}
	var room [maxHead]byte
	begin := from.r - len(appendHead(room[:0], h))
	appendHead(from.buf[begin:begin], h)
	m.consume(len(b))
	if err := c.send(from.buf[begin:from.r]); err != nil || m.left == 0 {
		return err
	}
	buf := blocks.Get().(*block)
	defer blocks.Put(buf)
	for m.left > 0 {
		n, err := m.read(buf[:])
		if err != nil {
			return c.cutOff(m, key, err)
		}
		c.trace(m, buf[:n], m.final && m.left == 0)
		if c.client {
			key = mask(buf[:n], key)
		}
		if err := c.send(buf[:n]); err != nil {
			return err
		}
	}
	return nil
}

// trace collects a message that is relayed, and gives it to Trace with its last
// part.
func (c *Conn) trace(m *Message, part []byte, last bool) {
	if c.Trace == nil {
		return
	}
	switch {
	case m.size > MaxTraced:
		m.traced, part = nil, nil
	case !last || int64(len(part)) < m.size:
		m.traced = append(m.traced, part...)
		part = m.traced
	}
	if last {
		c.Trace(true, part, m.size)
	}
}

// cutOff ends a message whose source has failed in the middle of it. The key is for
// the rest of the frame.
func (c *Conn) cutOff(m *Message, key uint32, err error) error {
	if !c.Complete || m.left > MaxTraced {
		c.abort(fmt.Errorf("cannot write to the WebSocket: a message was cut off: %w", err))
		return err
	}
	rest := bytes.Repeat([]byte(" "), int(m.left))
	mask(rest, key)
	if c.send(rest) == nil && !m.final {
		c.sendFrame(true, opContinuation, nil)
	}
	return err
}

// sendFrame sends one frame.
func (c *Conn) sendFrame(final bool, opcode byte, payload []byte) error {
	buf := blocks.Get().(*block)
	defer blocks.Put(buf)
	out, err := c.writeFrame(buf[:0], c.newHead(final, opcode, int64(len(payload))), payload)
	if err != nil {
		return err
	}
	return c.send(out)
}

// send writes all of b to the peer. An error ends the connection. The caller
// holds the lock.
func (c *Conn) send(b []byte) error {
	for len(b) > 0 {
		c.renewDeadline()
		n, err := 0, error(nil)
		if len(b) <= maxTry {
			n = c.writeNow(b)
		}
		if n == 0 {
			n, err = c.raw.Write(b)
		}
		c.sent.Add(int64(n))
		b = b[n:]
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			c.abort(fmt.Errorf("cannot write to the WebSocket: %w", err))
			return c.failure()
		case n == 0:
			c.abort(fmt.Errorf("cannot write to the WebSocket: the peer has read nothing for %v", c.Stall))
			return c.failure()
		}
	}
	return nil
}

// renewDeadline gives the next write at least Stall. Setting the deadline each
// time would make relaying a short message a fifth slower, so it lasts for a
// while.
func (c *Conn) renewDeadline() {
	if c.Stall <= 0 {
		return
	}
	if now := time.Now(); c.deadline.Sub(now) < c.Stall {
		c.deadline = now.Add(c.Stall + c.Stall/4)
		c.raw.SetWriteDeadline(c.deadline)
	}
}

// sendPong answers a ping. It does not wait for a message that is being
// written: the writer sends the answer afterwards, only to the last ping (RFC
// 6455, 5.5.3).
func (c *Conn) sendPong(payload []byte) {
	frame := c.controlFrame(opPong, payload)
	c.pong.Store(&frame)
	select {
	case c.writing <- struct{}{}:
		c.unlock()
	default:
	}
}

// lock waits for the right to write.
func (c *Conn) lock() error {
	select {
	case c.writing <- struct{}{}:
	case <-c.done:
		return c.failure()
	}
	if err := c.failure(); err != nil {
		<-c.writing
		return err
	}
	return nil
}

// unlock sends a pending pong and gives up the right to write.
func (c *Conn) unlock() {
	for {
		if p := c.pong.Swap(nil); p != nil {
			c.send(*p)
		}
		<-c.writing
		if c.pong.Load() == nil {
			return
		}
		select {
		case c.writing <- struct{}{}:
		default:
			return // the next one sends it
		}
	}
}
