package front

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// patience is how long a test waits before it says that something hangs: a busy
// machine is slow.
const patience = time.Minute

// limitedServer serves at most that many connections; a request of /busy is
// answered when the test or its client ends.
func limitedServer(t *testing.T, most int) (*Limit, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limit := &Limit{Max: most, Flag: "max"}
	done := make(chan struct{})
	s := &http.Server{ConnState: limit.state, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/busy" {
			http.NewResponseController(w).Flush()
			select {
			case <-done:
			case <-r.Context().Done():
			}
		}
	})}
	go s.Serve(limit.listener(l))
	t.Cleanup(func() {
		close(done)
		s.Close()
	})
	return limit, l.Addr().String()
}

// get opens a connection and returns the status of what it asks for there.
func get(t *testing.T, addr, path string) (net.Conn, int) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, getOn(t, c, path)
}

// getOn asks on a connection; 0 says that it was closed.
func getOn(t *testing.T, c net.Conn, path string) int {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Fatal(err)
	}
	if err != nil {
		return 0
	}
	return r.StatusCode
}

// waitIdle waits until the server knows that so many connections are idle: a
// client may have its answer before that.
func waitIdle(t *testing.T, l *Limit, want int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		n := 0
		l.mu.Lock()
		for _, since := range l.conns {
			if since != 0 {
				n++
			}
		}
		l.mu.Unlock()
		if n == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d are idle, not %d", n, want)
		}
	}
}

// Idle connections lock nobody out: the one that has been idle for longest
// makes room.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	limit, addr := limitedServer(t, 2)
	first, a := get(t, addr, "/")
	second, b := get(t, addr, "/")
	waitIdle(t, limit, 2)
	getOn(t, first, "/") // so that the second is idle for longer
	waitIdle(t, limit, 2)
	third, c := get(t, addr, "/")
	if a != 200 || b != 200 || c != 200 {
		t.Errorf("%d %d %d", a, b, c)
	}
	if a, b, c := getOn(t, first, "/"), getOn(t, second, "/"), getOn(t, third, "/"); a != 200 || b != 0 || c != 200 {
		t.Errorf("first %d, second %d, third %d", a, b, c)
	}
	// One that has never asked is no better.
	silent, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for range 3 {
		waitIdle(t, limit, 2)
		if _, got := get(t, addr, "/"); got != 200 {
			t.Error(got)
		}
	}
	silent.SetDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(silent); err != nil {
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Error("it is kept")
		}
	}
}

// Where all are busy, one more is told so; of very many, only some are, and
// the rest are closed at once.
func TestTooManyConnections(t *testing.T) {
	limit, addr := limitedServer(t, 2)
	busy, a := get(t, addr, "/busy")
	if _, b := get(t, addr, "/busy"); a != 200 || b != 200 {
		t.Errorf("%d %d", a, b)
	}
	if _, got := get(t, addr, "/"); got != 503 || limit.Count() != 2 {
		t.Errorf("%d, %d connections", got, limit.Count())
	}
	before := runtime.NumGoroutine()
	for range 200 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() // it reads nothing
	}
	last, _ := net.Dial("tcp", addr)
	defer last.Close()
	last.SetDeadline(time.Now().Add(patience))
	io.ReadAll(last) // all before it were accepted
	if n := runtime.NumGoroutine() - before; n > maxRefusing+5 {
		t.Errorf("%d goroutines", n)
	}
	busy.Close()
	for end := time.Now().Add(patience); ; {
		c, got := get(t, addr, "/")
		if c.Close(); got == 200 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("there is no room again")
		}
	}
}
