package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	peer "github.com/coder/websocket"
)

// ends is a server's and a client's end of one WebSocket.
func ends(t testing.TB) (server, client *Conn) {
	a, b := pair(t)
	return New(a, false, nil), New(b, true, nil)
}

// narrow is ends between which the system keeps little: a message of much cannot be
// written before it is read.
func narrow(t *testing.T) (server, client *Conn) {
	t.Helper()
	server, client = ends(t)
	for _, c := range []*Conn{server, client} {
		raw := c.raw.(*net.TCPConn)
		if err := errors.Join(raw.SetReadBuffer(64<<10), raw.SetWriteBuffer(64<<10)); err != nil {
			t.Fatal(err)
		}
	}
	return server, client
}

// much is the length of a message that narrow ends do not keep.
const much = 2 << 20

// serve accepts WebSockets and gives them to a function, by a real server.
func serve(t *testing.T, do func(c *Conn)) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Accept(w, r)
		if err != nil {
			return
		}
		do(c)
	}))
	t.Cleanup(s.Close)
	return "ws" + strings.TrimPrefix(s.URL, "http")
}

// echo relays every message back to where it came from.
func echo(c *Conn) {
	for {
		m, err := c.Next()
		if err != nil || c.Relay(m) != nil {
			c.Close(GoingAway, "")
			return
		}
	}
}

func long(n int) []byte { return bytes.Repeat([]byte("0123456789abcdef!"), n/17+1)[:n] }

// frame is a frame with this first byte.
func frame(first byte, masked bool, payload string) []byte {
	h := head{opcode: first & 0x0f, final: first&0x80 != 0, masked: masked, size: int64(len(payload))}
	if masked {
		h.key = 0xdeadbeef
	}
	b := append(appendHead(nil, h), payload...)
	mask(b[len(b)-len(payload):], h.key)
	return b
}

// TestPeer speaks with another implementation, in both roles.
func TestPeer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	sizes := []int{0, 1, 125, 126, 4095, 65535, 65536, 70000, much}
	t.Run("client", func(t *testing.T) {
		c, _, err := peer.Dial(ctx, serve(t, echo), &peer.DialOptions{CompressionMode: peer.CompressionContextTakeover})
		if err != nil {
			t.Fatal(err)
		}
		c.SetReadLimit(-1)
		for _, n := range sizes {
			if err := c.Write(ctx, peer.MessageText, long(n)); err != nil {
				t.Fatal(err)
			}
			kind, b, err := c.Read(ctx)
			if err != nil || kind != peer.MessageText || !bytes.Equal(b, long(n)) {
				t.Fatalf("%d bytes: %v, %d bytes of type %v came back", n, err, len(b), kind)
			}
		}
		// Read answers; Ping returns when the pong has come.
		c.CloseRead(ctx)
		if err := c.Ping(ctx); err != nil {
			t.Error(err)
		}
		if err := c.Close(peer.StatusNormalClosure, "bye"); err != nil {
			t.Error(err)
		}
	})
	t.Run("server", func(t *testing.T) {
		closed := make(chan error, 1)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if o := r.Header.Get("Origin"); o != "" {
				t.Errorf("Dial sent the origin %q", o)
			}
			c, err := peer.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			c.SetReadLimit(-1)
			for {
				kind, b, err := c.Read(ctx)
				if err != nil {
					closed <- err
					return
				}
				c.Write(ctx, kind, b)
			}
		}))
		defer s.Close()
		c, err := Dial(ctx, "ws"+strings.TrimPrefix(s.URL, "http")+"/a?b=c")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range sizes {
			if err := c.Write(long(n)); err != nil {
				t.Fatal(err)
			}
			m, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			if b, err := m.Bytes(); err != nil || !bytes.Equal(b, long(n)) {
				t.Fatalf("%d bytes: %v, %d bytes came back", n, err, len(b))
			}
		}
		if err := c.Close(GoingAway, "had enough"); err != nil {
			t.Error(err)
		}
		var e peer.CloseError
		if err := <-closed; !errors.As(err, &e) || e.Code != GoingAway || e.Reason != "had enough" {
			t.Errorf("the server saw %v", err)
		}
	})
}

// TestViolations has a mistake of the peer answered with the code for it.
func TestViolations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server bool // this end is one
		sent   []byte
		code   int
	}{
		"binary":                    {false, frame(0x82, false, "x"), Unsupported},
		"masked by a server":        {false, frame(0x81, true, "x"), ProtocolBroken},
		"unmasked by a client":      {true, frame(0x81, false, "x"), ProtocolBroken},
		"unmasked ping of a client": {true, frame(0x89, false, "x"), ProtocolBroken},
		"compressed":                {false, []byte{0xc1, 0}, ProtocolBroken},
		"second reserved bit":       {false, []byte{0xa1, 0}, ProtocolBroken},
		"third reserved bit":        {false, []byte{0x91, 0}, ProtocolBroken},
		"opcode 3":                  {false, []byte{0x83, 0}, ProtocolBroken},
		"opcode 11":                 {false, []byte{0x8b, 0}, ProtocolBroken},
		"long ping":                 {false, []byte{0x89, 126, 0, 126}, ProtocolBroken},
		"ping in fragments":         {false, []byte{0x09, 0}, ProtocolBroken},
		"continues nothing":         {false, frame(0x80, false, "x"), ProtocolBroken},
		"message in a message": {false, append(frame(0x01, false, "x"), frame(0x81, false, "y")...),
			ProtocolBroken},
		"binary in a message":       {false, append(frame(0x01, false, "x"), frame(0x82, false, "y")...), Unsupported},
		"length of 16 bits for 125": {false, []byte{0x81, 126, 0, 125}, ProtocolBroken},
		"length of 64 bits for 2^16-1": {false, []byte{0x81, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff},
			ProtocolBroken},
		"length of 2^63": {false, []byte{0x81, 127, 0x80, 0, 0, 0, 0, 0, 0, 0}, ProtocolBroken},
		"too long":       {false, []byte{0x81, 127, 0, 0, 0, 0, 0x06, 0x40, 0, 1}, TooBig},
		"too long in fragments": {false, append(frame(0x01, false, "x"),
			0x80, 127, 0, 0, 0, 0, 0x06, 0x40, 0, 0), TooBig},
		"longest of all in fragments": {false, append(frame(0x01, false, "x"),
			0x80, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), TooBig},
		"close with half a code":   {false, frame(0x88, false, "x"), ProtocolBroken},
		"close with 1005":          {false, frame(0x88, false, "\x03\xed"), ProtocolBroken},
		"close with 999":           {false, frame(0x88, false, "\x03\xe7"), ProtocolBroken},
		"close with a broken text": {false, frame(0x88, false, "\x03\xe8\xff"), BadText},
	} {
		t.Run(name, func(t *testing.T) {
			raw, other := pair(t)
			conn := New(other, !c.server, nil)
			got := make(chan error, 1)
			go func() { got <- sent(raw, c.server) }()
			if _, err := raw.Write(c.sent); err != nil {
				t.Fatal(err)
			}
			m, err := conn.Next()
			if err == nil {
				_, err = m.Bytes()
			}
			var e *ProtocolError
			if !errors.As(err, &e) || e.Code != c.code {
				t.Errorf("it is read with the error %v, not with code %d", err, c.code)
			}
			var told *CloseError
			if err := <-got; !errors.As(err, &told) || told.Code != c.code {
				t.Errorf("the peer was told %v, not %d", err, c.code)
			}
			if _, again := conn.Next(); again == nil || again.Error() != err.Error() {
				t.Errorf("the next call says %v", again)
			}
		})
	}
}

// sent is the error that a peer's connection reads at last, and closes with.
func sent(raw net.Conn, client bool) error {
	c := New(raw, client, nil)
	for {
		if _, err := c.Next(); err != nil {
			return err
		}
	}
}

// TestFragments reads and relays a message in fragments, with control frames
// and empty ones between them.
func TestFragments(t *testing.T) {
	t.Parallel()
	stream := bytes.Join([][]byte{
		frame(0x01, false, "he"), frame(0x89, false, "ping"), frame(0x00, false, ""), frame(0x00, false, "ll"),
		frame(0x8a, false, "pong"), frame(0x80, false, "o"), frame(0x81, false, "next"),
	}, nil)
	for _, peek := range []int{0, 1, 2, 3, 5, 100} {
		t.Run(fmt.Sprint(peek), func(t *testing.T) {
			raw, other := pair(t)
			c := New(other, true, nil)
			toServer, server := ends(t)
			go raw.Write(stream)
			m, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			if m.Size() != -1 {
				t.Errorf("the size of what is not complete is %d", m.Size())
			}
			b, err := m.Peek(peek)
			if want := "hello"[:min(peek, 5)]; err != nil || string(b) != want {
				t.Errorf("Peek(%d) is %q, %v", peek, b, err)
			}
			if peek == 100 && m.Size() != 5 {
				t.Errorf("the size of what is complete is %d", m.Size())
			}
			go func() {
				if err := toServer.Relay(m); err != nil {
					t.Error(err)
				}
				if m, err = c.Next(); err == nil {
					toServer.Relay(m)
				}
			}()
			for _, want := range []string{"hello", "next"} {
				got, err := server.Next()
				if err != nil {
					t.Fatal(err)
				}
				if b, err := got.Bytes(); err != nil || string(b) != want {
					t.Errorf("%q came, not %q: %v", b, want, err)
				}
			}
			pong := make([]byte, 10)
			if _, err := io.ReadFull(raw, pong); err != nil || pong[0] != 0x8a {
				t.Fatalf("the ping is answered with %q, %v", pong, err)
			}
		})
	}
}

// TestMessage reads messages in the ways there are.
func TestMessage(t *testing.T) {
	t.Parallel()
	server, client := ends(t)
	texts := [][]byte{[]byte("short"), nil, long(much), []byte("skipped"), long(10000), []byte("last")}
	written := make(chan error, 1)
	go func() { written <- client.WriteAll(texts...) }()
	for i, text := range texts {
		m, err := server.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Size() != int64(len(text)) {
			t.Errorf("the size of message %d is %d", i, m.Size())
		}
		for _, n := range []int{0, 2, 4096, 1 << 20} {
			if b, err := m.Peek(n); err != nil || !bytes.Equal(b, text[:min(n, MaxPeek, len(text))]) {
				t.Errorf("of message %d, Peek(%d) is %d bytes, %v", i, n, len(b), err)
			}
		}
		if string(text) == "skipped" || i == 4 {
			continue
		}
		if b, err := m.Bytes(); err != nil || !bytes.Equal(b, text) {
			t.Errorf("message %d is %d bytes, %v", i, len(b), err)
		}
		if _, err := m.Bytes(); err == nil {
			t.Error("a message is read twice")
		}
	}
	if err := <-written; err != nil || server.Received() != client.Sent() {
		t.Errorf("%d bytes have come and %d have gone, %v", server.Received(), client.Sent(), err)
	}
}

// TestWithin reads messages that may be too long, in one frame and in fragments.
func TestWithin(t *testing.T) {
	t.Parallel()
	raw, other := pair(t)
	c := New(other, true, nil)
	long := strings.Repeat("a", 1000) + strings.Repeat("b", 100000) + strings.Repeat("c", 1000)
	go raw.Write(bytes.Join([][]byte{
		frame(0x81, false, "short"), frame(0x81, false, long), frame(0x01, false, "sh"), frame(0x80, false, "ort"),
		frame(0x01, false, long[:50000]), frame(0x00, false, ""), frame(0x80, false, long[50000:]),
		frame(0x81, false, "last"),
	}, nil))
	cut := strings.Repeat("a", 10) + strings.Repeat("c", 10)
	for i, want := range []string{"short", cut, "short", cut, "last"} {
		m, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		b, isCut, err := m.Within(1000, 10)
		if isCut {
			b = append(b[:10:10], b[len(b)-10:]...)
		}
		if err != nil || string(b) != want || isCut != (want == cut) {
			t.Errorf("message %d is %q, cut: %v, %v", i, b, isCut, err)
		}
	}
}

// TestStall has a peer that doesn't read. Progress of any kind keeps a write:
// the bound is far longer than a reader is kept off a busy machine's processors.
func TestStall(t *testing.T) {
	t.Parallel()
	server, client := narrow(t)
	server.Stall = 2 * time.Second
	big := long(much)
	go func() {
		m, err := client.Next()
		if err == nil {
			m.Bytes()
		}
	}()
	if err := server.Write(big); err != nil {
		t.Fatalf("a peer that reads: %v", err)
	}
	if err := server.Write(big); err == nil || !strings.Contains(err.Error(), "has read nothing for 2s") {
		t.Fatalf("a peer that does not read: %v", err)
	}
	if err := server.Write([]byte("x")); err == nil {
		t.Error("there is a write after a broken one")
	}
	if _, err := server.Next(); err == nil {
		t.Error("there is a message after a broken write")
	}
}

// TestCloseWhileWriting closes a connection whose writer is stuck.
func TestCloseWhileWriting(t *testing.T) {
	t.Parallel()
	server, client := narrow(t)
	result := make(chan error, 2)
	for range 2 {
		go func() { result <- server.Write(long(much)) }()
	}
	if _, err := client.Next(); err != nil { // it has begun
		t.Fatal(err)
	}
	began := time.Now()
	if err := server.Close(GoingAway, ""); err == nil {
		t.Error("Close doesn't say that a message was cut off")
	}
	if d := time.Since(began); d > time.Minute {
		t.Errorf("Close took %v", d)
	}
	for range 2 {
		if err := <-result; err == nil {
			t.Error("the write succeeded")
		}
	}
	if err := server.Close(Normal, ""); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

// TestClose closes with unread messages on the way, and with a reader waiting:
// the peer gets the close frame, not a reset.
func TestClose(t *testing.T) {
	t.Parallel()
	server, client := ends(t)
	server.closes = time.Minute // a busy machine
	go func() {
		for client.Write(long(1000)) == nil {
		}
	}()
	reader := make(chan error, 1)
	go func() {
		m, err := server.Next()
		for err == nil && m != nil {
			m, err = server.Next()
		}
		reader <- err
	}()
	for server.Received() == 0 {
		time.Sleep(time.Millisecond)
	}
	go server.Close(GoingAway, strings.Repeat("ä", 100))
	var e *CloseError
	if _, err := client.Next(); !errors.As(err, &e) || e.Code != GoingAway || e.Reason != strings.Repeat("ä", 61) {
		t.Errorf("the peer sees %v", err)
	}
	if err := <-reader; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the reader sees %v", err)
	}
}

// TestCloseWhileReading closes a connection whose peer says nothing, not even
// when it is told: the reader leaves before Close stops waiting for the peer.
func TestCloseWhileReading(t *testing.T) {
	t.Parallel()
	server, _ := ends(t)
	reader, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := server.Next()
		reader <- err
	}()
	go func() { closed <- server.Close(GoingAway, "") }()
	select {
	case err := <-reader:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("the reader sees %v", err)
		}
	case <-closed:
		t.Error("the reader still waits when Close returns")
	}
}

// TestNothingAfterClose has a message behind a close frame.
func TestNothingAfterClose(t *testing.T) {
	t.Parallel()
	raw, other := pair(t)
	c := New(other, true, nil)
	raw.Write(append(frame(0x88, false, "\x03\xe8"), frame(0x81, false, "x")...))
	for range 2 {
		var e *CloseError
		if _, err := c.Next(); !errors.As(err, &e) || e.Code != Normal {
			t.Errorf("the end is %v", err)
		}
	}
	answer, _ := io.ReadAll(raw)
	if got := sent(&tape{in: answer, piece: 100}, false); got == nil || !strings.Contains(got.Error(), "1000") {
		t.Errorf("the answer is %q: %v", answer, got)
	}
}

// TestPongDuringMessage has a ping answered after the message that is being
// written, and what comes behind the ping read before that.
func TestPongDuringMessage(t *testing.T) {
	t.Parallel()
	chrome, toChrome := ends(t)
	toClient, client := ends(t)
	go chrome.raw.Write(append(appendHead(nil, head{final: true, opcode: opText, size: 4}), 'h', 'a'))
	relayed := make(chan error, 1)
	go func() {
		m, err := toChrome.Next()
		if err == nil {
			err = toClient.Relay(m)
		}
		relayed <- err
	}()
	m, err := client.Next()
	if err != nil {
		t.Fatal(err)
	}
	client.raw.Write(append(frame(0x89, true, "ping"), frame(0x81, true, "after")...))
	command, err := toClient.Next()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := command.Bytes(); string(b) != "after" {
		t.Fatalf("%q, %v came after the ping", b, err)
	}
	chrome.raw.Write([]byte("lf"))
	if b, err := m.Bytes(); string(b) != "half" {
		t.Fatalf("%q, %v was relayed", b, err)
	}
	if err := <-relayed; err != nil {
		t.Fatal(err)
	}
	pong := make([]byte, 6)
	if _, err := io.ReadFull(client.raw, pong); err != nil || string(pong[2:]) != "ping" {
		t.Errorf("the answer to the ping is %q, %v", pong, err)
	}
}

// TestTrace has each message recorded once: what was read, in fragments or not, and
// what was sent, by each way to send.
func TestTrace(t *testing.T) {
	t.Parallel()
	chrome, toChrome := ends(t)
	toClient, client := ends(t)
	var got []string
	toClient.Trace = func(sent bool, message []byte, size int64) {
		got = append(got, fmt.Sprintf("%v %.9s %d of %d", sent, message, len(message), size))
	}
	read := func(c *Conn, n int) {
		t.Helper()
		m, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := m.Bytes(); err != nil || len(b) != n {
			t.Fatalf("%d bytes came: %v", len(b), err)
		}
	}
	client.raw.Write(append(frame(0x01, true, "frag"), frame(0x80, true, "ment")...))
	read(toClient, 8)
	o := NewOutbox(toClient)
	if o.TryWrite([]byte("short")) {
		t.Error("who must not wait writes the trace")
	}
	if err := o.Write([]byte("written")); err != nil {
		t.Fatal(err)
	}
	read(client, 7)
	fragments := append(frame(0x01, false, "first "), frame(0x00, false, "second ")...)
	go func() {
		chrome.WriteAll(long(1<<20), long(MaxTraced), long(MaxTraced+1))
		chrome.raw.Write(append(append(fragments, frame(0x80, false, "third")...), frame(0x81, false, "")...))
	}()
	for _, n := range []int{1 << 20, MaxTraced, MaxTraced + 1, 18, 0} {
		m, err := toChrome.Next()
		if err != nil {
			t.Fatal(err)
		}
		relayed := make(chan error)
		go func() {
			if n == 18 {
				m.Peek(9) // which takes what it needs out of the frames
			}
			relayed <- o.Relay(m)
		}()
		read(client, n)
		if err := <-relayed; err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"false fragment 8 of 8", "true written 7 of 7", "true 012345678 1048576 of 1048576",
		"true 012345678 16777216 of 16777216", "true  0 of 16777217", "true first sec 18 of 18", "true  0 of 0"}
	if !slices.Equal(got, want) {
		t.Errorf("the trace has %q, not %q", got, want)
	}
}

// TestComplete has the source of a relay fail in the middle, and the target go on.
func TestComplete(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		came string
		want string
	}{
		{string(append(appendHead(nil, head{final: true, opcode: opText, size: 5}), "ab"...)), "ab   "},
		{string(append(appendHead(nil, head{opcode: opText, size: 5}), "ab"...)), "ab   "},
		{string(frame(0x01, false, "abc")), "abc"},
		{string(appendHead(frame(0x01, false, "abc"), head{final: true, opcode: opContinuation, size: 3})), "abc   "},
	} {
		source, from := ends(t)
		target, to := ends(t)
		to.Complete = true
		go func() {
			source.raw.Write([]byte(c.came))
			source.raw.Close()
		}()
		m, err := from.Next()
		if err != nil {
			t.Fatal(err)
		}
		if err := to.Relay(m); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the relay of % x says %v", c.came, err)
		}
		to.Write([]byte("next"))
		for _, want := range []string{c.want, "next"} {
			m, err := target.Next()
			if err != nil {
				t.Fatal(err)
			}
			if b, err := m.Bytes(); err != nil || string(b) != want {
				t.Errorf("% x becomes %q, %v, not %q", c.came, b, err, want)
			}
		}
	}
}

// TestBrokenSource has the source of a relay fail in the middle, and before.
func TestBrokenSource(t *testing.T) {
	t.Parallel()
	chrome, toChrome := ends(t)
	toClient, client := ends(t)
	go func() {
		chrome.raw.Write(append(appendHead(nil, head{final: true, opcode: opText, size: 1 << 20}), 'h', 'a'))
		chrome.raw.Close()
	}()
	m, err := toChrome.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := toClient.Relay(m); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the relay says %v", err)
	}
	if err := toClient.Write(nil); err == nil {
		t.Error("the broken stream is written to")
	}
	got, err := client.Next()
	if err == nil {
		_, err = got.Bytes()
	}
	if err == nil {
		t.Error("the client takes a part for a message")
	}
}

// TestBrokenTarget has a relay's target fail: the source is read on.
func TestBrokenTarget(t *testing.T) {
	t.Parallel()
	chrome, toChrome := ends(t)
	toClient, client := ends(t)
	go chrome.WriteAll(long(much), []byte("next"))
	m, err := toChrome.Next()
	if err != nil {
		t.Fatal(err)
	}
	client.raw.Close()
	if err := toClient.Relay(m); err == nil {
		t.Error("the relay to a closed connection succeeds")
	}
	if m, err = toChrome.Next(); err != nil {
		t.Fatal(err)
	}
	if b, err := m.Bytes(); string(b) != "next" {
		t.Errorf("the next message is %q, %v", b, err)
	}
}

// TestRelayBothWays relays long and short messages between real connections,
// with writers of its own in between.
func TestRelayBothWays(t *testing.T) {
	t.Parallel()
	chrome := serve(t, echo)
	proxy := serve(t, func(client *Conn) {
		up, err := Dial(context.Background(), chrome)
		if err != nil {
			t.Error(err)
			return
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			relay(client, up)
		}()
		relay(up, client)
		<-done
	})
	c, err := Dial(t.Context(), proxy)
	if err != nil {
		t.Fatal(err)
	}
	var texts [][]byte
	for n := range 100 {
		texts = append(texts, long(n*n*n/4))
	}
	go func() {
		for _, text := range texts {
			if err := c.Write(text); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for _, text := range texts {
		m, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := m.Bytes(); err != nil || !bytes.Equal(b, text) {
			t.Fatalf("%d bytes came for %d: %v", len(b), len(text), err)
		}
	}
	c.Close(Normal, "")
}

func relay(to, from *Conn) {
	defer to.Close(GoingAway, "the other end has gone")
	for {
		m, err := from.Next()
		if err != nil {
			return
		}
		if _, err := m.Peek(100); err != nil || to.Relay(m) != nil {
			from.Close(GoingAway, "the other end has gone")
			return
		}
	}
}

// TestWriters has whole messages of many goroutines.
func TestWriters(t *testing.T) {
	t.Parallel()
	server, client := ends(t)
	const writers, each = 8, 100
	for w := range writers {
		go func() {
			for i := range each {
				if err := client.Write(bytes.Repeat([]byte{byte('a' + w)}, i*i)); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for range writers * each {
		m, err := server.Next()
		if err != nil {
			t.Fatal(err)
		}
		b, err := m.Bytes()
		if err != nil || len(b) > 0 && len(bytes.Trim(b, string(b[0]))) > 0 {
			t.Fatalf("messages are mixed: %.100q, %v", b, err)
		}
	}
}
