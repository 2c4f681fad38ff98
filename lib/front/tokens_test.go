package front

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"btools/lib/guard"
	"btools/lib/tokens"
)

// A token that is added to the file works, and the connections of one that is removed are closed, those of WebSockets
// too. Of a file that is wrong nothing changes.
func TestTokensAreFollowed(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/tokens"
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const ci, night, late = "ci sixteen-characters\n", "night sixteen_characters\n", "late sixteen.characters\n"
	write(ci + night)
	known, err := tokens.Open(path, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f := &Front{Guard: guard.Guard{Tokens: known}, Log: slog.New(slog.DiscardHandler), Routes: []Route{
		{Path: "/held", Answer: func(w *Response, _ *http.Request) error {
			conn, _, err := w.Hijack()
			if err == nil {
				fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
				conn.Read(make([]byte, 1)) // until it is closed
			}
			return nil
		}},
		{Answer: func(w *Response, _ *http.Request) error { w.WriteHeader(http.StatusNoContent); return nil }},
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- f.Serve(ctx, nil, l) }()
	defer func() {
		cancel()
		<-served
	}()
	open := func(path, token string) (net.Conn, int) {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "GET %s?token=%s HTTP/1.1\r\nHost: x\r\n\r\n", path, token)
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c, resp.StatusCode
	}
	isOpen := func(c net.Conn) bool {
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return os.IsTimeout(err)
	}
	held, _ := open("/held", "sixteen-characters")
	kept, _ := open("/", "sixteen-characters")
	other, _ := open("/held", "sixteen_characters")
	write("night")
	write("night short\n" + late) // is invalid
	if _, code := open("/", "sixteen-characters"); code != http.StatusNoContent {
		t.Errorf("with an invalid file a token is answered with %d", code)
	}
	write(night + late)
	for end := time.Now().Add(10 * time.Second); isOpen(held) || isOpen(kept); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("connections of a removed token stay open")
		}
	}
	if _, code := open("/", "sixteen-characters"); code != http.StatusUnauthorized {
		t.Errorf("a removed token is answered with %d", code)
	}
	if _, code := open("/", "sixteen.characters"); code != http.StatusNoContent || !isOpen(other) {
		t.Errorf("a new token is answered with %d; the other's connection is open: %t", code, isOpen(other))
	}
}
