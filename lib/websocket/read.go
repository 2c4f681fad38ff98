package websocket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

const (
	// readBuffer is the size of a connection's read buffer. Most messages fit.
	readBuffer = 32 << 10

	// headRoom is kept free before the bytes in the buffer: a message is relayed
	// from there with another head, which may be longer than its old one.
	headRoom = 16

	// MaxPeek is how many bytes of a message Peek can return.
	MaxPeek = 4 << 10

	// firstAlloc bounds the memory that is allocated because of a head alone.
	firstAlloc = 1 << 20
)

var errUsed = errors.New("cannot read a message twice, or after the next one was requested")

// Message is a text message that is being received.
type Message struct {
	c      *Conn
	limit  int64  // of its size
	size   int64  // of its frames as far as they have been seen
	final  bool   // the current frame is its last one
	left   int64  // of the current frame's payload
	key    uint32 // the mask of what follows the next plain bytes
	plain  int    // number of bytes in the buffer that are unmasked
	peeked []byte // of earlier fragments, returned by Peek and not yet read
	used   bool   // it was read or relayed
	traced []byte // what a relay has sent of it, for Trace
}

// Next returns the next message. It skips the rest of the previous one, which
// can no longer be used. Next answers pings as they come. It answers the peer's
// close frame and returns it as a *CloseError. If the peer violates the
// protocol, it closes the connection and returns a *ProtocolError. After an
// error, Next always returns an error.
func (c *Conn) Next() (*Message, error) {
	if err := c.failure(); err != nil {
		return nil, err
	}
	c.Release()
	if m := c.current; m != nil {
		if err := m.skip(); err != nil {
			return nil, err
		}
	}
	m := &Message{c: c, limit: c.Limit}
	c.current = m
	if err := m.nextFrame(opText); err != nil {
		return nil, err
	}
	return m, nil
}

// Size returns the length of the payload in bytes, or -1 if the message is
// fragmented and its last fragment has not arrived.
func (m *Message) Size() int64 {
	if !m.final {
		return -1
	}
	return m.size
}

// Peek waits for the first n bytes of the message, or all if it is shorter, at
// most MaxPeek. It leaves them to be read. They are valid until the next use of
// the message or of its connection's next one.
func (m *Message) Peek(n int) ([]byte, error) {
	if err := m.usable(); err != nil {
		return nil, err
	}
	n = min(n, MaxPeek)
	if len(m.peeked) == 0 && (m.final || m.left >= int64(n)) {
		n = int(min(int64(n), m.left))
		for len(m.ready()) < n {
			if err := m.c.fill(); err != nil {
				return nil, err
			}
		}
		return m.ready()[:n], nil
	}
	for len(m.peeked) < n {
		b, err := m.more()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		b = b[:min(len(b), n-len(m.peeked))]
		m.peeked = append(m.peeked, b...)
		m.consume(len(b))
	}
	return m.peeked[:min(n, len(m.peeked))], nil
}

// Bytes reads the whole message into memory of its own.
func (m *Message) Bytes() ([]byte, error) {
	if err := m.usable(); err != nil {
		return nil, err
	}
	m.used = true
	defer m.c.expectNothing()
	all := m.peeked
	if need := int64(len(all)) + m.left; int64(cap(all)) < need {
		all = append(make([]byte, 0, min(need, firstAlloc)), all...)
	}
	if err := m.c.reserve(cap(all)); err != nil {
		return nil, err
	}
	for {
		for m.left > 0 {
			if len(all) == cap(all) {
				room := int(min(m.left, int64(max(len(all), 512))))
				if err := m.c.reserve(len(all) + room); err != nil {
					return nil, err
				}
				all = append(make([]byte, 0, len(all)+room), all...)
			}
			if m.buffered() == 0 {
				m.c.expectProgress()
			}
			n, err := m.read(all[len(all):cap(all)])
			if err != nil {
				return nil, err
			}
			all = all[:len(all)+n]
		}
		if m.final {
			if m.c.Trace != nil {
				m.c.Trace(false, all, int64(len(all)))
			}
			return all, nil
		}
		m.c.expectProgress()
		if err := m.nextFrame(opContinuation); err != nil {
			return nil, err
		}
	}
}

// Within reads the whole message into memory of its own, if it has at most limit bytes.
// Of a longer one it returns the first bytes and the last n, and cut.
func (m *Message) Within(limit, n int) (b []byte, cut bool, err error) {
	if size := m.Size(); size >= 0 && size <= int64(limit) {
		b, err = m.Bytes()
		return b, false, err
	}
	if err := m.usable(); err != nil {
		return nil, false, err
	}
	m.used = true
	b = m.peeked
	for {
		part, err := m.more()
		if err == io.EOF {
			return b, cut, nil
		}
		if err != nil {
			return nil, false, err
		}
		b = append(b, part...)
		m.consume(len(part))
		if len(b) > max(limit, 2*n) {
			cut = true
			b = append(b[:n], b[len(b)-n:]...)
		}
	}
}

// Bound lowers the connection's limit for this message. It returns an error, and
// closes the connection, if the message is known to be longer.
func (m *Message) Bound(limit int64) error {
	if m.limit = min(m.limit, limit); m.size > m.limit {
		return m.c.refuse(&ProtocolError{TooBig, fmt.Sprintf("a message is longer than %d bytes", m.limit)})
	}
	return nil
}

// usable returns an error if the message was read, or is not the current one.
func (m *Message) usable() error {
	if m.used || m.c.current != m {
		return errUsed
	}
	return m.c.failure()
}

// skip reads the rest of the message.
func (m *Message) skip() error {
	m.peeked = nil
	for {
		for m.left > 0 {
			if n := m.buffered(); n > 0 {
				m.consume(n)
				continue
			}
			b := blocks.Get().(*block)
			n, err := m.c.read(b[:min(m.left, int64(len(b)))])
			blocks.Put(b)
			if err != nil {
				return err
			}
			m.left -= int64(n)
		}
		if m.final {
			return nil
		}
		if err := m.nextFrame(opContinuation); err != nil {
			return err
		}
	}
}

// more returns the message's bytes in the buffer, at least one: it waits for
// it, and goes on to the next frame. At the end it returns io.EOF.
func (m *Message) more() ([]byte, error) {
	for m.left == 0 {
		if m.final {
			return nil, io.EOF
		}
		if err := m.nextFrame(opContinuation); err != nil {
			return nil, err
		}
	}
	if m.buffered() == 0 {
		if err := m.c.fill(); err != nil {
			return nil, err
		}
	}
	return m.ready(), nil
}

// read reads from the current frame's payload, which has not ended.
func (m *Message) read(p []byte) (int, error) {
	p = p[:min(int64(len(p)), m.left)]
	if b := m.ready(); len(b) > 0 {
		n := copy(p, b)
		m.consume(n)
		return n, nil
	}
	n, err := m.c.read(p)
	m.left -= int64(n)
	if !m.c.client {
		m.key = mask(p[:n], m.key)
	}
	return n, err
}

// buffered returns how much of the current frame's payload is in the buffer.
func (m *Message) buffered() int { return int(min(m.left, int64(m.c.w-m.c.r))) }

// ready returns that part, unmasked.
func (m *Message) ready() []byte {
	b := m.c.buf[m.c.r : m.c.r+m.buffered()]
	if !m.c.client && m.plain < len(b) {
		m.key = mask(b[m.plain:], m.key)
		m.plain = len(b)
	}
	return b
}

// consume removes n bytes of that part.
func (m *Message) consume(n int) {
	m.c.r += n
	m.left -= int64(n)
	m.plain = max(0, m.plain-n)
}

// nextFrame reads the head of the next frame of the message, and handles
// control frames before it. If the peer violates the protocol, it closes the
// connection.
func (m *Message) nextFrame(opcode byte) error {
	h, err := m.c.dataHead()
	switch {
	case err != nil:
	case h.opcode == opBinary:
		err = &ProtocolError{Unsupported, "a message is binary"}
	case h.opcode != opcode && opcode == opText:
		err = broken("a continuation frame without a message to continue")
	case h.opcode != opcode:
		err = broken("a message begins inside another one")
	case h.size > m.limit-m.size:
		err = &ProtocolError{TooBig, fmt.Sprintf("a message is longer than %d bytes", m.limit)}
	}
	if err != nil {
		return m.c.refuse(err)
	}
	m.size += h.size
	m.final, m.left, m.key, m.plain = h.final, h.size, h.key, 0
	return nil
}

// dataHead handles control frames until a data frame arrives, and reads its
// head.
func (c *Conn) dataHead() (head, error) {
	for {
		h, n, wrong := parseHead(c.buf[c.r:c.w], !c.client)
		switch {
		case wrong != nil:
			return h, wrong
		case n > 0 && !h.control():
			c.r += n
			return h, nil
		case n > 0 && c.w-c.r >= n+int(h.size):
			payload := c.buf[c.r+n : c.r+n+int(h.size)]
			mask(payload, h.key)
			c.r += n + int(h.size)
			if err := c.control(h.opcode, payload); err != nil {
				return h, err
			}
			continue
		}
		if err := c.fill(); err != nil {
			return h, err
		}
	}
}

// control handles a control frame.
func (c *Conn) control(opcode byte, payload []byte) error {
	switch opcode {
	case opPing:
		c.sendPong(payload)
	case opClose:
		return readClose(payload)
	}
	return nil
}

// readClose reads the payload of a close frame.
func readClose(b []byte) error {
	if len(b) == 0 {
		return &CloseError{Code: NoStatus}
	}
	if len(b) == 1 {
		return broken("a close frame has half a code")
	}
	code, reason := int(binary.BigEndian.Uint16(b)), b[2:]
	switch {
	case code >= 3000 && code < 5000, code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006:
	default:
		return broken(fmt.Sprintf("a close frame has the code %d", code))
	}
	if !utf8.Valid(reason) {
		return &ProtocolError{BadText, "a close frame's reason is not UTF-8"}
	}
	return &CloseError{code, string(reason)}
}

// refuse ends the connection because of the peer's frame, with the appropriate
// close frame.
func (c *Conn) refuse(err error) error {
	var wrong *ProtocolError
	var closed *CloseError
	switch {
	case errors.As(err, &wrong):
		c.finish(err, wrong.Code, wrong.Reason)
	case errors.As(err, &closed):
		c.finish(err, closed.Code, "")
	}
	return c.failure()
}

// fill waits for more bytes and adds them to the buffer. There is always room
// for what callers wait for: a head, a control frame, or MaxPeek bytes.
func (c *Conn) fill() error {
	if c.r == c.w {
		c.r, c.w = headRoom, headRoom
	}
	if len(c.buf)-c.w < MaxPeek+maxHead && c.r > headRoom {
		c.w = headRoom + copy(c.buf[headRoom:], c.buf[c.r:c.w])
		c.r = headRoom
	}
	n, err := c.read(c.buf[c.w:])
	c.w += n
	return err
}

// read reads at least one byte from the peer. An error ends the connection.
func (c *Conn) read(p []byte) (int, error) {
	var n int
	var err error
	if c.in != nil {
		n, err = c.in.Read(p)
	} else {
		n, err = c.raw.Read(p)
	}
	c.received.Add(int64(n))
	// After Close, sendClose reads, too, and bytes before these may be missing.
	if failed := c.failure(); failed != nil {
		return 0, failed
	}
	if n > 0 {
		return n, nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF // the peer went without a close frame
	}
	if c.hurried && errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, c.refuse(&ProtocolError{PolicyViolation, fmt.Sprintf("a message has not gone on for %v", c.Progress)})
	}
	c.abort(fmt.Errorf("cannot read from the WebSocket: %w", err))
	return 0, c.failure()
}
