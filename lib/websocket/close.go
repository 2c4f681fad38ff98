package websocket

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"time"
	"unicode/utf8"
)

// closeBound bounds the time of Close: to wait for a writer, and for the peer
// to take the close frame and answer it.
const closeBound = 250 * time.Millisecond

// Close sends a close frame, waits a moment for the peer to end as well, and
// closes the connection. Readers and waiting writers fail at once. A message
// that is being written and does not end in that moment is cut off, and the
// error says so. A second Close waits for the first and does nothing. The code
// NoStatus sends no code, Abnormal no close frame; a reason that is too long for a
// frame is shortened.
func (c *Conn) Close(code int, reason string) error {
	return c.finish(net.ErrClosed, code, reason)
}

// finish ends the connection with a close frame, unless it has already ended.
func (c *Conn) finish(cause error, code int, reason string) (err error) {
	c.closing.Do(func() {
		if c.end(cause) {
			err = c.sendClose(code, reason)
		}
		c.raw.Close()
	})
	return err
}

// abort ends the connection without a close frame.
func (c *Conn) abort(cause error) {
	c.end(cause)
	c.raw.Close()
}

// end fails all readers and waiting writers with cause. It returns false if the
// connection had already ended.
func (c *Conn) end(cause error) (first bool) {
	c.over.Do(func() {
		c.cause, first = cause, true
		close(c.done)
	})
	return first
}

// failure returns why the connection has ended, nil while it is open.
func (c *Conn) failure() error {
	select {
	case <-c.done:
		return c.cause
	default:
		return nil
	}
}

// sendClose sends a close frame. Unless the frame answers the peer's, it then
// reads until the peer ends: closing with unread bytes would reset the
// connection, and the peer might never see the frame. sendClose keeps the lock
// for writing.
func (c *Conn) sendClose(code int, reason string) error {
	c.raw.SetReadDeadline(time.Unix(1, 0)) // readers do not wait for the peer, either
	bound := cmp.Or(c.closes, closeBound)
	deadline := time.Now().Add(bound)
	patience := time.NewTimer(bound)
	defer patience.Stop()
	select {
	case c.writing <- struct{}{}:
	case <-patience.C:
		return errors.New("cannot send a close frame: another message is stuck half-written")
	}
	c.raw.SetWriteDeadline(deadline)
	var err error
	if code != Abnormal {
		n := 0
		n, err = c.raw.Write(c.closeFrame(code, reason))
		c.sent.Add(int64(n))
	}
	if err != nil {
		return fmt.Errorf("cannot send a close frame: %w", err)
	}
	var closed *CloseError
	if errors.As(c.cause, &closed) {
		return nil
	}
	if half, ok := c.raw.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	buf := blocks.Get().(*block)
	defer blocks.Put(buf)
	c.raw.Read(buf[:1]) // fails once the reader has left
	c.raw.SetReadDeadline(deadline)
	for err == nil {
		_, err = c.raw.Read(buf[:])
	}
	return nil
}

func (c *Conn) closeFrame(code int, reason string) []byte {
	var payload []byte
	if code != NoStatus {
		for len(reason) > maxControl-2 {
			_, n := utf8.DecodeLastRuneInString(reason)
			reason = reason[:len(reason)-n]
		}
		payload = append([]byte{byte(code >> 8), byte(code)}, reason...)
	}
	return c.controlFrame(opClose, payload)
}

// controlFrame returns a complete control frame.
func (c *Conn) controlFrame(opcode byte, payload []byte) []byte {
	h := c.newHead(true, opcode, int64(len(payload)))
	frame := appendHead(make([]byte, 0, maxHead+maxControl), h)
	frame = append(frame, payload...)
	mask(frame[len(frame)-len(payload):], h.key)
	return frame
}
