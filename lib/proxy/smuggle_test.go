package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"btools/lib/record"
)

// However a client's bytes are split into requests, the browser gets only
// requests that the proxy has checked.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	const (
		first  = "GET /json/version HTTP/1.1\nHost: 127.0.0.1\n"
		second = "GET /json/list HTTP/1.1\nHost: 127.0.0.1\nConnection: close\n\n"
		put    = "PUT /json/new HTTP/1.1\nHost: 127.0.0.1\n"
	)
	passed := []string{"GET /json/version"}
	both := append(passed, "GET /json/list")
	for _, c := range []struct {
		name, text string
		statuses   []int
		seen       []string
	}{
		{"two requests", first + "\n" + second, []int{200, 200}, both},
		{"lines end with LF", "\x00LF" + first + "\n" + second, []int{200, 200}, both},
		{"two lengths", first + "Content-Length: 0\nContent-Length: 9\n\n" + second, []int{400}, nil},
		{"one length twice", first + "Content-Length: 0\nContent-Length: 0\n\n" + second, []int{200, 200}, both},
		{"a list of lengths", first + "Content-Length: 0, 9\n\n" + second, []int{400}, nil},
		{"a length with a sign", first + "Content-Length: +0\n\n" + second, []int{400}, nil},
		{"a negative length", first + "Content-Length: -1\n\n" + second, []int{400}, nil},
		{"a hexadecimal length", first + "Content-Length: 0x0\n\n" + second, []int{400}, nil},
		{"a request in a body", put + "Content-Length: 70\n\n" + second, []int{413}, nil},
		{"a length, and chunks", put + "Content-Length: 5\nTransfer-Encoding: chunked\n\n0\n\n" + second, []int{413},
			nil},
		{"chunks with extensions", put + "Transfer-Encoding: chunked\n\n0;a=\"\n\"\n\n" + second, []int{413}, nil},
		{"chunks of HTTP/1.0", "PUT /json/new HTTP/1.0\nHost: 127.0.0.1\nTransfer-Encoding: chunked\n\n0\n\n" + second,
			[]int{200}, []string{"PUT /json/new"}},
		{"another encoding", put + "Transfer-Encoding: xchunked\n\n0\n\n" + second, []int{501}, nil},
		{"two encodings", put + "Transfer-Encoding: identity\nTransfer-Encoding: chunked\n\n0\n\n" + second, []int{501},
			nil},
		{"a space before the colon", put + "Transfer-Encoding : chunked\n\n0\n\n" + second, []int{400}, nil},
		{"a space in a name", first + "X Y: 1\n\n" + second, []int{400}, nil},
		{"a folded length", put + "Content-Length: 0\n 9\n\n" + second, []int{400}, nil},
		{"a folded Host", "GET /json/version HTTP/1.1\nHost: 127.0.0.1\n evil.example\n\n" + second, []int{400}, nil},
		{"CR in a value", first + "X: a\rTransfer-Encoding: chunked\n\n" + second, []int{400}, nil},
		{"NUL in a value", first + "X: a\x00b\n\n" + second, []int{400}, nil},
		{"the target of a proxy", "GET http://evil.example/json/version HTTP/1.1\nHost: 127.0.0.1\n\n" + second,
			[]int{403}, nil},
		{"our own target of a proxy", "GET http://127.0.0.1/json/version HTTP/1.1\nHost: evil.example\n\n" + second,
			[]int{200, 200}, both},
		{"a space in the target", "GET /json/version /json/list HTTP/1.1\nHost: 127.0.0.1\n\n" + second, []int{400},
			nil},
		{"HTTP/2", "PRI * HTTP/2.0\n\nSM\n\n", []int{403}, nil},
		{"no version", "GET /json/version\n\n" + second, []int{400}, nil},
		{"upgrade to h2c", first + "Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: " +
			"AAMAAABkAAQAAP__\n\n" +
			second, []int{200, 200}, both},
		{"upgrade with a body",
			"GET / HTTP/1.1\nHost: 127.0.0.1\nConnection: Upgrade\nUpgrade: websocket\nContent-Length: 70\n\n" + second,
			[]int{413}, nil},
		{"a request after an upgrade",
			"GET /devtools/browser HTTP/1.1\nHost: 127.0.0.1\nConnection: Upgrade\nUpgrade: websocket\n\n" + second,
			[]int{101}, []string{"GET /devtools/browser/guid"}},
		{"upgrade to one of two",
			"GET / HTTP/1.1\nHost: 127.0.0.1\nConnection: Upgrade, HTTP2-Settings, X\nX: y\nUpgrade: h2c, " +
				"websocket\nHTTP2-Settings: AAMAAABkAAQAAP__\n\n", []int{101}, []string{"GET /devtools/browser/guid"}},
		{"a line in a path",
			"GET /devtools/page/a%0d%0aX:%20y HTTP/1.1\nHost: 127.0.0.1\nConnection: Upgrade\nUpgrade: websocket\n\n",
			[]int{101}, []string{"GET /devtools/page/a\r\nX: y"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEndpoint(t)
			conn := dial(t, serve(t, foreign(e.browser(t, record.CDP))))
			text, lf := strings.CutPrefix(c.text, "\x00LF")
			if !lf {
				text = strings.ReplaceAll(text, "\n", "\r\n")
			}
			io.WriteString(conn, text)
			var statuses []int
			for in := bufio.NewReader(conn); ; {
				r, err := http.ReadResponse(in, nil)
				if err != nil {
					break
				}
				if statuses = append(statuses, r.StatusCode); r.StatusCode == 101 {
					break
				}
				if _, err := io.ReadAll(r.Body); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(statuses, c.statuses) || !slices.Equal(e.requests(), c.seen) {
				t.Errorf("answered with %v, want %v; the browser got %q, want %q", statuses, c.statuses, e.requests(),
					c.seen)
			}
			for _, r := range e.seen {
				up := r.Header.Get("Upgrade")
				if r.Host != "127.0.0.1" || r.ContentLength != 0 || r.Header.Get("Http2-Settings") != "" ||
					r.Header.Get("X") != "" || up != "" && up != "websocket" {
					t.Errorf("the browser got %s with %v", r.Host, r.Header)
				}
			}
		})
	}
}

// switching starts a server that switches to a protocol, and returns its address. The
// connection is closed after then.
func switching(t *testing.T, protocol string, then func(net.Conn)) (addr string) {
	t.Helper()
	return listenAndServe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
		then(c)
	}))
}

// A browser that switches to another protocol is not joined to the client.
func TestOtherProtocol(t *testing.T) {
	t.Parallel()
	addr := switching(t, "h2c", func(net.Conn) {})
	_, in := upgrade(t, serve(t, foreign(browserAt(t, addr, record.CDP))), "/")
	if got := status(t, in); got != 502 {
		t.Error(got)
	}
}
