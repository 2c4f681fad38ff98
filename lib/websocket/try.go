package websocket

// maxTry bounds the messages that are sent at once or not at all, in bytes.
const maxTry = 16 << 10

// tryWrite sends a short message if the kernel takes it at once. It returns false if
// nothing was sent. A Trace may have to wait.
func (c *Conn) tryWrite(message []byte) bool {
	if len(message) > maxTry || c.client || c.Trace != nil {
		return false
	}
	select {
	case c.writing <- struct{}{}:
	default:
		return false
	}
	if c.failure() != nil {
		<-c.writing
		return false
	}
	c.renewDeadline()
	buf := blocks.Get().(*block)
	defer blocks.Put(buf)
	out := append(appendHead(buf[:0], c.newHead(true, opText, int64(len(message)))), message...)
	n := c.writeNow(out)
	c.sent.Add(int64(n))
	if n == 0 || n == len(out) {
		c.unlockAtOnce()
		return n > 0
	}
	rest := append([]byte(nil), out[n:]...)
	go func() { // an error ends the connection
		c.send(rest)
		c.unlock()
	}()
	return true
}

// unlockAtOnce is unlock for those who must not wait until a pending pong is sent.
func (c *Conn) unlockAtOnce() {
	if c.pong.Load() != nil {
		go c.unlock()
		return
	}
	<-c.writing
	if c.pong.Load() == nil {
		return
	}
	select {
	case c.writing <- struct{}{}:
		go c.unlock()
	default: // the next one sends it
	}
}

// writeNow writes as much as the kernel takes at once; 0: nothing.
func (c *Conn) writeNow(b []byte) (n int) {
	if c.out != nil {
		n, _ = c.out.Write(b) // a later write tells why
	}
	return n
}
