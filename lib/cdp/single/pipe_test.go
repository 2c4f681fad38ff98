package single

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
	"btools/lib/websocket"
)

// onPipe is a fake browser on a pipe, as chrome is on a WebSocket, and what shares
// it. sent are the messages that it has got other than to attach and detach.
type onPipe struct {
	*Mux
	t       testing.TB
	answers *os.File
	sent    chan []byte
}

// newOnPipe returns one whose messages have at most limit bytes.
func newOnPipe(t testing.TB, limit int) *onPipe {
	t.Helper()
	commands, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, answers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &onPipe{t: t, answers: answers, sent: make(chan []byte, 100)}
	p.Mux = newMux(newPipe(in, out, limit))
	fake := &chrome{sessions: map[string]bool{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer answers.Close()
		for r := bufio.NewReader(commands); ; {
			m, err := r.ReadBytes(0)
			if err != nil {
				return
			}
			m = m[:len(m)-1]
			if !bytes.Contains(m, []byte("Target.attachTo")) && !bytes.Contains(m, []byte("Target.detachFrom")) {
				select {
				case p.sent <- bytes.Clone(m):
				default:
				}
			}
			for _, answer := range fake.answers(m) {
				answers.Write(append(answer, 0))
			}
		}
	}()
	t.Cleanup(func() {
		p.Close()
		<-ended
		commands.Close()
	})
	return p
}

func (p *onPipe) connect() *Client {
	p.t.Helper()
	c, err := p.Connect(p.t.Context(), "")
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// next is the next message of a connection.
func (p *onPipe) next(c *Client) string {
	p.t.Helper()
	b, err := c.Next()
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

func TestPipe(t *testing.T) {
	t.Parallel()
	p := newOnPipe(t, maxAnswer)
	c, other := p.connect(), p.connect()
	for i, length := range []int{0, 10, 40_000, 70_000, 3_000_000, 5} {
		c.command(fmt.Appendf(nil, `{"id":%d,"method":"Fake.long","params":{"length":%d}}`, i, length))
		if got := p.next(c); got != fmt.Sprintf(`{"id":%d,"result":"%s"}`, i, strings.Repeat("x", length)) {
			t.Errorf("of %d bytes: %.100s, %d bytes", length, got, len(got))
		}
	}
	large := strings.Repeat("y", 2_000_000) // more than the pipe takes at once
	for i := range 3 {
		other.command(fmt.Appendf(nil, `{"id":%d,"method":"Fake.echo","params":{"a":"%s"}}`, i, large))
	}
	for i := range 3 {
		if got := p.next(other); got != fmt.Sprintf(`{"id":%d,"result":{"a":"%s"}}`, i, large) {
			t.Errorf("command %d: %.100s, %d bytes", i, got, len(got))
		}
	}
}

// What would end a message on the pipe, or the browser, does not get there.
func TestPipeRefuses(t *testing.T) {
	t.Parallel()
	p := newOnPipe(t, maxAnswer)
	c := p.connect()
	for message, want := range map[string]string{
		"{\"id\":1,\"method\":\"Fake.echo\",\"params\":{\"a\":\"\x00{}\x00\"}}": "JSON",
		"{\"id\":1,\"method\":\"Fake.echo\"}\x00{\"id\":2,\"method\":\"b\"}":    "JSON",
	} {
		c.command([]byte(message))
		if got := p.next(c); !strings.Contains(got, want) {
			t.Errorf("%.40q: %s", message, got)
		}
	}
	p.mu.Lock()
	c.below["BELOW"] = c.session // such a command goes as it is: to change 96 MiB takes long
	p.mu.Unlock()
	c.Write(policy.Command{ID: []byte("1"), Session: "BELOW"}, bytes.Repeat([]byte(" "), MaxCommand+1))
	if got := p.next(c); !strings.Contains(got, fmt.Sprint("longer than ", MaxCommand)) {
		t.Errorf("one that is too long: %s", got)
	}
	c.Put([]byte("{\"id\":-4,\"method\":\"Fake.echo\",\"params\":{\"a\":\"\x00\"}}"))
	if got := p.next(c); !strings.HasPrefix(got, `{"id":-4,"error":`) {
		t.Errorf("a command of ours: %s", got)
	}
	c.command([]byte(`{"id":5,"method":"Fake.echo"}`))
	if got := p.next(c); got != `{"id":5,"result":{}}` {
		t.Errorf("the next one: %s", got)
	}
	if n := len(p.sent); n != 1 {
		t.Errorf("%d messages have reached the browser", n)
	}
}

// Nobody waits for a client that does not read: it is disconnected at its bound.
func TestPipeUnread(t *testing.T) {
	t.Parallel()
	p := newOnPipe(t, maxAnswer)
	p.mostEach = 700_000
	deaf, other := p.connect(), p.connect()
	for i := range 5 {
		deaf.command(fmt.Appendf(nil, `{"id":%d,"method":"Fake.long","params":{"length":200000}}`, i))
		other.command(fmt.Appendf(nil, `{"id":%d,"method":"Fake.echo"}`, i))
		if got := p.next(other); got != fmt.Sprintf(`{"id":%d,"result":{}}`, i) {
			t.Errorf("the other client: %s", got)
		}
	}
	select {
	case <-deaf.Done():
	case <-time.After(patience):
		t.Fatal("it is still connected")
	}
	var end *websocket.CloseError
	if _, err := deaf.Next(); !errors.As(err, &end) || end.Code != websocket.PolicyViolation ||
		end.Reason != notReading {
		t.Errorf("its end: %v", err)
	}
}

// All clients together have a bound, too, at which the one with the most to read goes.
func TestPipeUnreadByAll(t *testing.T) {
	t.Parallel()
	m := &Mux{sessions: map[string]*Client{}, most: 250_000, mostEach: maxUnread}
	client := func(name string, sizes ...int) *Client {
		c := &Client{mux: m, session: name, queue: newQueue(m.mostEach, &m.unread)}
		m.sessions[name] = c
		for _, n := range sizes {
			m.route(fmt.Appendf(nil, `{"id":1,"x":"%s","sessionId":%q}`, make([]byte, n), name), false)
		}
		return c
	}
	const part = 40_000
	all := []*Client{client("0", part), client("1", part), client("2", part+1, 1000), client("3", part),
		client("4", part), client("5", part), client("6", part)}
	for i, c := range all {
		select {
		case <-c.Done():
			if i != 2 {
				t.Errorf("client %d is disconnected", i)
			}
		default:
			if i == 2 {
				t.Error("the client with the most to read is connected")
			}
		}
	}
	all[0].Next()
	all[0].queue.stop(websocket.Normal, "")
	for _, c := range all[1:] {
		c.queue.stop(websocket.Normal, "")
	}
	if n := m.unread.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

// A message that is too long ends its client, and no other.
func TestPipeLongAnswer(t *testing.T) {
	t.Parallel()
	p := newOnPipe(t, 1<<20)
	c, other := p.connect(), p.connect()
	for _, length := range []int{1<<20 + 1, 5 << 20} {
		c.command(fmt.Appendf(nil, `{"id":1,"method":"Fake.long","params":{"length":%d}}`, length))
		other.command([]byte(`{"id":2,"method":"Fake.echo"}`))
		var end *websocket.CloseError
		if m, err := c.Next(); !errors.As(err, &end) || end.Code != websocket.TooBig {
			t.Errorf("of %d bytes: %v, %.200s, of %d", length, err, m, len(m))
		}
		if got := p.next(other); got != `{"id":2,"result":{}}` {
			t.Errorf("the other client: %s", got)
		}
		c = p.connect()
	}
}

// The end of the pipe ends all connections; the end of the mux ends the pipe.
func TestPipeEnds(t *testing.T) {
	t.Parallel()
	p := newOnPipe(t, maxAnswer)
	c := p.connect()
	p.answers.Close()
	if _, err := c.Next(); err == nil {
		t.Error("the connection goes on")
	}
	<-p.Done()
	if err := p.Check(t.Context()); err != errEnded {
		t.Errorf("the check: %v", err)
	}
	if _, err := p.Connect(t.Context(), ""); err == nil {
		t.Error("one can still connect")
	}
}

// Whatever a client sends, the browser gets at most one message, which is on the
// client's own CDP session and ends with the only byte 0.
func FuzzPipeCommand(f *testing.F) {
	f.Add([]byte(`{"id":1,"method":"Fake.echo"}`))
	f.Add([]byte("{\"id\":1,\"method\":\"Fake.echo\"}\x00{\"id\":1,\"method\":\"Browser.close\"}"))
	f.Add([]byte("{\"id\":1,\"method\":\"Fake.echo\",\"params\":{\"a\":\"\x00\"}}"))
	f.Add([]byte(`{"id":1,"method":"Fake.echo","sessionId":"","params":{}}`))
	f.Add([]byte(`{"id":1,"method":"Fake.echo","session\u0049d":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		to := &recorder{}
		m := &Mux{to: to, out: newSender(to), sessions: map[string]*Client{}}
		c := &Client{mux: m, session: "OWN", queue: newQueue(maxUnread, &m.unread),
			below: map[string]string{"BELOW": "OWN"}}
		c.command(bytes.Clone(b))
		if len(to.sent) == 0 {
			return
		}
		if len(to.sent) > 1 || bytes.Count(to.sent[0], []byte{0}) != 1 || to.sent[0][len(to.sent[0])-1] != 0 {
			t.Fatalf("%q becomes %q", b, to.sent)
		}
		cmd, err := policy.Decode(to.sent[0][:len(to.sent[0])-1])
		if err != nil || cmd.Session != "OWN" && cmd.Session != "BELOW" {
			t.Fatalf("%q becomes %q: %v", b, to.sent[0], err)
		}
		if jsonrpc.GetString(to.sent[0], "sessionId") != cmd.Session {
			t.Fatalf("%q has two sessions", to.sent[0])
		}
	})
}

// recorder is a pipe that keeps what is written to it.
type recorder struct {
	pipe
	sent [][]byte
}

func (r *recorder) try(frame []byte) ([]byte, error) {
	r.sent = append(r.sent, bytes.Clone(frame))
	return nil, nil
}

// The memory of long messages goes back to the system soon after the last one was read, by a slow client, too.
func TestPipeGivesMemoryBack(t *testing.T) {
	p := newOnPipe(t, maxAnswer)
	c := p.connect()
	const most = 48 << 20 // what the other tests have needed is in it
	c.command([]byte(`{"id":1,"method":"Fake.long","params":{"length":30000000}}`))
	b, err := c.Next()
	if err != nil {
		t.Fatal(err)
	}
	read := bytes.Clone(b)
	time.Sleep(3 * tidyAfter / 2)
	runtime.KeepAlive(b)
	runtime.KeepAlive(read)
	c.command([]byte(`{"id":2,"method":"Fake.echo"}`))
	p.next(c)
	var m runtime.MemStats
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		runtime.ReadMemStats(&m)
		if m.HeapSys-m.HeapReleased < most {
			return
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%d MiB are kept", (m.HeapSys-m.HeapReleased)>>20)
		}
	}
}
