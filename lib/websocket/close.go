package websocket

import (
	"errors"
	"fmt"
	"net"
	"time"
	"unicode/utf8"
)

// closeBound is how long Close takes at most: to wait for a writer, for the
// peer to take the close frame, and for its answer.
const closeBound = 250 * time.Millisecond

// Close sends a close frame, waits a moment for the peer to end as well, and
// closes the connection; who reads or waits to write fails at once. If a message is being written that does not come to
// its end in that moment, it is cut off, and the error says so. A second Close
// waits for the first and does nothing. The code NoStatus sends no code; of a
// reason that is too long for a frame the beginning is sent.
func (c *Conn) Close(code int, reason string) error {
	return c.finish(net.ErrClosed, code, reason)
}

// finish ends the connection with a close frame, unless it has ended.
func (c *Conn) finish(cause error, code int, reason string) (err error) {
	c.closing.Do(func() {
		if c.end(cause) {
			err = c.sendClose(code, reason)
		}
		c.raw.Close()
	})
	return err
}

// abort ends the connection without a word.
func (c *Conn) abort(cause error) {
	c.end(cause)
	c.raw.Close()
}

// end stops whoever waits to read or write, and tells them why. It is false if
// something else has done so before.
func (c *Conn) end(cause error) (first bool) {
	c.over.Do(func() {
		c.cause, first = cause, true
		close(c.done)
	})
	return first
}

// failure is why the connection has ended, nil while it goes on.
func (c *Conn) failure() error {
	select {
	case <-c.done:
		return c.cause
	default:
		return nil
	}
}

// sendClose sends a close frame. Unless it answers one, it then reads to the
// peer's end: to close with bytes unread resets the connection, and the peer
// might not get to see the frame. The turn to write is not given away again.
func (c *Conn) sendClose(code int, reason string) error {
	c.raw.SetReadDeadline(time.Unix(1, 0)) // whoever reads is not to wait for the peer, too
	deadline := time.Now().Add(closeBound)
	patience := time.NewTimer(closeBound)
	defer patience.Stop()
	select {
	case c.writing <- struct{}{}:
	case <-patience.C:
		return errors.New("cannot send a close frame: another message is stuck half-written")
	}
	c.raw.SetWriteDeadline(deadline)
	frame := c.closeFrame(code, reason)
	n, err := c.raw.Write(frame)
	c.sent.Add(int64(n))
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
	c.raw.Read(buf[:1]) // fails when whoever reads has left
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

// controlFrame is a whole control frame.
func (c *Conn) controlFrame(opcode byte, payload []byte) []byte {
	h := c.newHead(true, opcode, int64(len(payload)))
	frame := appendHead(make([]byte, 0, maxHead+maxControl), h)
	frame = append(frame, payload...)
	mask(frame[len(frame)-len(payload):], h.key)
	return frame
}
