package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	peer "github.com/coder/websocket"

	"btools/lib/record"
	"btools/lib/websocket"
)

// traced returns a proxy's trace, and a function that reads it.
func traced() (*Trace, func() string) {
	d := &disk{}
	trace := &Trace{Out: d, Log: slog.New(slog.DiscardHandler)}
	return trace, func() string {
		trace.mu.Lock()
		defer trace.mu.Unlock()
		return d.String()
	}
}

// Where messages are read, each side learns how the other one has ended.
func TestEnds(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{record.CDP, record.BiDi} {
		for _, c := range []struct {
			name    string
			browser func(*websocket.Conn) // after the first message
			client  func(*peer.Conn)      // after the first answer
			want    string                // what the client is told, or the browser
		}{
			{"the browser closes", func(c *websocket.Conn) { c.Close(4001, "done") }, nil, "4001 done"},
			{"the browser is gone", func(c *websocket.Conn) { c.Close(websocket.Abnormal, "") }, nil, "-1 "},
			{"the client sends bytes", nil, func(c *peer.Conn) {
				c.Write(context.Background(), peer.MessageBinary, []byte("x"))
			}, "1003 a message is binary"},
			{"the client closes", nil, func(c *peer.Conn) { c.Close(4002, "bye") }, "4002 bye"},
		} {
			t.Run(protocol+" "+c.name, func(t *testing.T) {
				t.Parallel()
				got := make(chan string, 2)
				addr := listenAndServe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					conn, err := websocket.Accept(w, r)
					if err != nil {
						return
					}
					for {
						m, err := conn.Next()
						var closed *websocket.CloseError
						if errors.As(err, &closed) && strings.HasPrefix(c.name, "the client closes") {
							got <- fmt.Sprint(closed.Code, " ", closed.Reason)
						}
						if err != nil {
							return
						}
						b, _ := m.Bytes()
						if bytes.Contains(b, []byte("session.end")) { // of BiDi: the client's end is not passed on
							got <- c.want
							conn.Write([]byte(`{"id":9007199254740991,"result":{}}`))
							return
						}
						conn.Write([]byte(`"answer"`))
						if c.browser != nil {
							c.browser(conn)
						}
					}
				}))
				p := foreign(browserAt(t, addr, protocol))
				trace, text := traced()
				if protocol == record.CDP {
					p.Trace = trace
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				client, _, err := peer.Dial(ctx, "ws://"+serve(t, p)+"/session", nil)
				if err != nil {
					t.Fatal(err)
				}
				defer client.CloseNow()
				client.Write(ctx, peer.MessageText, []byte(`"question"`))
				if _, b, err := client.Read(ctx); string(b) != `"answer"` {
					t.Fatalf("the answer is %q, %v", b, err)
				}
				if c.client != nil {
					c.client(client)
				}
				if c.want != "4002 bye" {
					_, _, err = client.Read(ctx)
					var closed peer.CloseError
					errors.As(err, &closed)
					got <- fmt.Sprint(int(peer.CloseStatus(err)), " ", closed.Reason)
				}
				if g := <-got; g != c.want {
					t.Errorf("it is told %q, not %q", g, c.want)
				}
				if protocol == record.CDP && (!strings.Contains(text(), `"to_browser","message":"question"}`) ||
					!strings.Contains(text(), `"to_client","message":"answer"}`)) {
					t.Errorf("the trace is %s", text())
				}
			})
		}
	}
}

// A long message passes while it comes, though it is traced.
func TestLongMessage(t *testing.T) {
	t.Parallel()
	const size, part = 20 << 20, 4 << 20
	came := make(chan struct{})
	addr := switching(t, "websocket", func(c net.Conn) {
		c.Write(binary.BigEndian.AppendUint64([]byte{0x81, 127}, size))
		c.Write(make([]byte, part))
		<-came
		c.Write(make([]byte, size-part))
	})
	trace, text := traced()
	p := foreign(browserAt(t, addr, record.CDP))
	p.Trace = trace
	_, in := upgrade(t, serve(t, p), "/")
	if got := status(t, in); got != 101 {
		t.Fatal(got)
	}
	if _, err := io.CopyN(io.Discard, in, 10+part); err != nil {
		t.Fatal(err)
	}
	close(came)
	if n, err := io.Copy(io.Discard, in); n != size-part || err != nil {
		t.Errorf("%d bytes came, %v", n, err)
	}
	if want := fmt.Sprintf(`"to_client","bytes":%d}`, size); !strings.Contains(text(), want) {
		t.Errorf("the trace is %.300s", text())
	}
}
