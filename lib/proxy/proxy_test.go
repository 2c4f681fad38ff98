package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"btools/lib/fleet/supply"
	"btools/lib/launch/options"
	"btools/lib/record"
	"btools/lib/sibling"
)

// patience is how long a test waits before it says that something hangs: a busy
// machine is slow.
const patience = time.Minute

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// endpoint is a test's browser: it answers /json/version, and echoes the bytes of
// WebSockets.
type endpoint struct {
	addr string
	mu   sync.Mutex
	seen []*http.Request
}

func newEndpoint(t testing.TB) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.addr = listenAndServe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		e.seen = append(e.seen, r)
		e.mu.Unlock()
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprintf(w, `{"Browser":"Test/1","webSocketDebuggerUrl":"ws://%s/devtools/browser/guid"}`, r.Host)
			return
		}
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
			"Upgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		io.Copy(c, buf)
	}))
	return e
}

// requests returns the requests so far, as "METHOD path".
func (e *endpoint) requests() (got []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.seen {
		got = append(got, r.Method+" "+r.URL.Path)
	}
	return got
}

// browser returns a browser at that endpoint, with this protocol. It never ends
// by itself.
func (e *endpoint) browser(t testing.TB, protocol string) *sibling.Browser {
	t.Helper()
	return browserAt(t, e.addr, protocol)
}

func browserAt(t testing.TB, addr, protocol string) *sibling.Browser {
	t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	r := record.New()
	r.MustSet("instance", map[string]any{"host": host, "port": n, "protocol": protocol,
		"ws_url": "ws://" + addr + "/devtools/browser/guid"})
	b, err := sibling.Foreign(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func listenAndServe(t testing.TB, h http.Handler) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// serve serves a proxy until the test ends.
func serve(t testing.TB, p *Proxy) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	p.Start()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		select {
		case <-served:
		case <-time.After(patience):
			t.Error("the proxy does not stop")
		}
	})
	return l.Addr().String()
}

// launches is a Launch that always finds this browser.
func launches(b *sibling.Browser) func(context.Context, options.Options, string) (*sibling.Browser, error) {
	return func(context.Context, options.Options, string) (*sibling.Browser, error) { return b, nil }
}

// behind returns a proxy that launches this browser.
func behind(b *sibling.Browser) *Proxy { return &Proxy{Runner: supply.Runner{Launch: launches(b)}} }

// foreign returns a proxy whose browser another program owns.
func foreign(b *sibling.Browser) *Proxy {
	p := behind(b)
	p.Spec.Foreign = true
	return p
}

// dial opens a connection to the proxy. It is closed when the test ends, and its
// reads are bounded.
func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(patience))
	t.Cleanup(func() { c.Close() })
	return c
}

const upgradeHeaders = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// upgrade requests a WebSocket, and does not wait for the answer.
func upgrade(t testing.TB, addr, path string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c := dial(t, addr)
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n", path, upgradeHeaders)
	return c, bufio.NewReader(c)
}

// status reads the head of an answer, without its body.
func status(t testing.TB, in *bufio.Reader) int {
	t.Helper()
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode
}

// isClosed waits for the other side to close the connection.
func isClosed(t testing.TB, in io.Reader) {
	t.Helper()
	b, err := io.ReadAll(in)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Errorf("the connection stays open after %q", b)
	}
}

// A list of targets names the front end that the browser itself serves.
func TestFrontEnd(t *testing.T) {
	t.Parallel()
	addr := listenAndServe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `[{"devtoolsFrontendUrl":"https://chrome-devtools-frontend.appspot.com/serve_rev/@a21ce/`+
			`inspector.html?ws=%s/devtools/page/A","url":"https://example.org/serve_rev/x"}]`, r.Host)
	}))
	front := serve(t, foreign(browserAt(t, addr, record.CDP)))
	for _, path := range []string{"/json", "/json/list/"} {
		resp, err := http.Get("http://" + front + path)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		want := `[{"devtoolsFrontendUrl":"/devtools/inspector.html?ws=` + front + `/devtools/page/A",` +
			`"url":"https://example.org/serve_rev/x"}]`
		if string(got) != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
