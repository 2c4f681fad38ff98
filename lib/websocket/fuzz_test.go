package websocket

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	peer "github.com/coder/websocket"
)

// errReset ends a tape. With io.EOF, the other implementation takes a message
// that broke off for a whole one.
var errReset = errors.New("connection reset")

// tape is a connection that gives a stream, in pieces of at most so many
// bytes, and keeps what is written.
type tape struct {
	in    []byte
	piece int
	out   bytes.Buffer
}

func (c *tape) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), c.piece)], c.in)
	c.in = c.in[n:]
	if n == 0 {
		return 0, errReset
	}
	return n, nil
}
func (c *tape) Write(p []byte) (int, error)      { return c.out.Write(p) }
func (c *tape) Close() error                     { return nil }
func (c *tape) LocalAddr() net.Addr              { return nil }
func (c *tape) RemoteAddr() net.Addr             { return nil }
func (c *tape) SetDeadline(time.Time) error      { return nil }
func (c *tape) SetReadDeadline(time.Time) error  { return nil }
func (c *tape) SetWriteDeadline(time.Time) error { return nil }

const skipped = "(skipped)"

// readAll reads the messages of a stream, each in a way that the dice choose;
// without dice, all by Bytes.
func readAll(t *testing.T, stream []byte, client bool, dice *rand.Rand) (texts []string, end error) {
	in := &tape{in: slices.Clone(stream), piece: len(stream) + 1}
	if dice != nil {
		in.piece = 1 + dice.IntN(1<<dice.IntN(16))
	}
	c := New(in, client, nil)
	for {
		m, err := c.Next()
		if err != nil {
			return texts, err
		}
		way := 0
		var beginning []byte
		if dice != nil {
			way = dice.IntN(3)
			if dice.IntN(2) == 0 {
				b, err := m.Peek(dice.IntN(2 * MaxPeek))
				if err != nil {
					return texts, err
				}
				beginning = slices.Clone(b)
			}
		}
		var text []byte
		switch way {
		case 0:
			if text, err = m.Bytes(); err != nil {
				return texts, err
			}
		case 1:
			if text, err = relayed(t, m, dice.IntN(2) == 0); err != nil {
				return texts, err
			}
		case 2:
			if m, err = c.Next(); err != nil {
				return texts, err
			}
			texts = append(texts, skipped)
			if text, err = m.Bytes(); err != nil {
				return texts, err
			}
			beginning = nil
		}
		if !bytes.HasPrefix(text, beginning) {
			t.Fatalf("a message that begins with %q is %q", beginning, text)
		}
		texts = append(texts, string(text))
	}
}

// relayed is a message as it comes out of a relay.
func relayed(t *testing.T, m *Message, client bool) ([]byte, error) {
	out := &tape{}
	if err := New(out, client, nil).Relay(m); err != nil {
		return nil, err
	}
	stream := out.out.Bytes()
	c := New(&tape{in: stream, piece: len(stream) + 1}, !client, nil)
	got, err := c.Next()
	if err != nil {
		t.Fatal(err)
	}
	b, err := got.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Next(); !errors.Is(err, errReset) {
		t.Fatalf("behind a message that was relayed there is %v", err)
	}
	return b, nil
}

// RoundTrip makes a tape an answered upgrade.
func (c *tape) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: c, Header: http.Header{
		"Upgrade": {"websocket"}, "Connection": {"Upgrade"},
		"Sec-Websocket-Accept": {acceptKey(r.Header.Get("Sec-WebSocket-Key"))},
	}}, nil
}

// readPeer reads the messages as another implementation does.
func readPeer(t *testing.T, stream []byte) (texts []string) {
	tape := &tape{in: slices.Clone(stream), piece: len(stream) + 1}
	c, _, err := peer.Dial(t.Context(), "ws://tape", &peer.DialOptions{HTTPClient: &http.Client{Transport: tape}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	for {
		kind, b, err := c.Read(t.Context())
		if err != nil || kind == peer.MessageBinary {
			return texts
		}
		texts = append(texts, string(b))
	}
}

// FuzzRead reads streams of a peer in all ways, cut anywhere: they must tell
// the same. Of a server's stream, another implementation must read the same.
func FuzzRead(f *testing.F) {
	for _, masked := range []bool{false, true} {
		for _, frames := range [][][]byte{
			{frame(0x81, masked, "hello"), frame(0x81, masked, "world")},
			{frame(0x01, masked, "hel"), frame(0x89, masked, "p"), frame(0, masked, "l"), frame(0x80, masked, "o")},
			{frame(0x81, masked, string(long(200))), frame(0x81, masked, string(long(70000))),
				frame(0x81, masked, "x")},
			{frame(0x01, masked, string(long(5000))), frame(0x80, masked, string(long(70000))),
				frame(0x88, masked, "")},
			{frame(0x81, masked, ""), frame(0x88, masked, "\x03\xe8bye")},
		} {
			f.Add(bytes.Join(frames, nil), !masked, uint64(1))
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte, client bool, seed uint64) {
		plain, end := readAll(t, stream, client, nil)
		varied, also := readAll(t, stream, client, rand.New(rand.NewPCG(seed, 0)))
		if end.Error() != also.Error() {
			t.Fatalf("the stream ends with %q and with %q", end, also)
		}
		for i, text := range varied {
			if i >= len(plain) || text != skipped && text != plain[i] {
				t.Fatalf("message %d is %.200q of %.200q", i, text, plain)
			}
		}
		if !client {
			return
		}
		theirs := readPeer(t, stream)
		var wrong *ProtocolError
		// They are less strict: what we refuse they may read on.
		if !errors.As(end, &wrong) && len(theirs) != len(plain) ||
			len(theirs) < len(plain) || !slices.Equal(theirs[:len(plain)], plain) {
			t.Fatalf("we read %.200q and then %v, they %.200q", plain, end, theirs)
		}
	})
}
