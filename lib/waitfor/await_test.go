package waitfor

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"btools/lib/exit"
)

// patience is how long a test waits before it says that something hangs.
const patience = time.Minute

func parse(t *testing.T, text string) Target {
	t.Helper()
	x, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestParse(t *testing.T) {
	for text, addr := range map[string]string{
		"http://localhost": "localhost:80", "https://localhost/x": "localhost:443", "http://[::1]:3000": "[::1]:3000",
		"localhost:3000": "localhost:3000", "[::1]:3000": "[::1]:3000", "HTTP://a:1": "a:1",
	} {
		if got := parse(t, text); got.addr != addr {
			t.Errorf("%s is at %s, want %s", text, got.addr, addr)
		}
	}
	for text, want := range map[string]string{
		"": "HOST:PORT", "3000": "did you mean localhost:3000?", ":3000": "did you mean localhost:3000?",
		"localhost": "HOST:PORT", "localhost:0": "HOST:PORT", "localhost:65536": "HOST:PORT", "ftp://a": "HOST:PORT",
		"http://": "HOST:PORT", "http://a:x": "HOST:PORT", "http://a:0": "HOST:PORT",
		"localhost:3000/x": "did you mean http://localhost:3000/x?", "tcp://a:1": "did you mean a:1?",
		"tcp://a": "HOST:PORT", "a b:1": "HOST:PORT",
	} {
		if x, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, x, err, want)
		}
	}
	if x := parse(t, "http://me:secret@a/"); strings.Contains(x.name, "secret") ||
		!strings.Contains(x.request(), "Authorization: Basic bWU6c2VjcmV0\r\n") {
		t.Errorf("%s asks %q", x.name, x.request())
	}
}

// A server is ready once it answers with a page, a redirect or a login, and not while it
// answers that it has no such page or that it fails.
func TestReady(t *testing.T) {
	t.Parallel()
	for _, start := range []func(http.Handler) *httptest.Server{httptest.NewServer, httptest.NewTLSServer} {
		for _, code := range []int{200, 204, 302, 304, 401, 403} {
			var asked atomic.Int32
			site := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/health" || r.URL.RawQuery != "a=1" || r.Method != http.MethodGet {
					t.Errorf("it is asked %s %s", r.Method, r.URL)
				}
				w.Header().Set("Location", "/elsewhere")
				switch asked.Add(1) {
				case 1:
					w.WriteHeader(404)
				case 2:
					w.WriteHeader(503)
				case 3:
					panic(http.ErrAbortHandler)
				default:
					w.WriteHeader(http.StatusEarlyHints)
					w.WriteHeader(code)
				}
			}))
			err := All(t.Context(), []Target{parse(t, site.URL+"/health?a=1#b")}, patience, nil)
			if err != nil || asked.Load() != 4 {
				t.Errorf("%s, %d: %v after %d requests", site.URL, code, err, asked.Load())
			}
			site.Close()
		}
	}
}

// What is not ready is named, each with its last reason.
func TestNotReady(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hangs" {
			<-r.Context().Done()
		}
		http.Error(w, "", 500)
	}))
	defer site.Close()
	odd, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer odd.Close()
	go func() {
		for {
			c, err := odd.Accept()
			if err != nil {
				return
			}
			go func() {
				io.WriteString(c, "SSH-2.0-x\r\n")
				c.Read(make([]byte, 1<<10))
				c.Close()
			}()
		}
	}()
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	said := make(chan string, 9)
	err = All(t.Context(), []Target{parse(t, site.URL), parse(t, site.URL+"/hangs?token=s3cret#s3cret"),
		parse(t, "http://"+odd.Addr().String()), parse(t, odd.Addr().String()), parse(t, closed.Addr().String())},
		3*time.Second, func(s string) { said <- s })
	var e *exit.Error
	if !errors.As(err, &e) || e.Code != exit.TryAgain {
		t.Fatalf("%v; want the code 75", err)
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a secret is shown: %v", err)
	}
	for _, want := range []string{site.URL + " is not ready: it answers 500 Internal Server Error",
		site.URL + "/hangs is not ready: no answer yet", `its answer is not HTTP: "SSH-2.0-x"`,
		closed.Addr().String() + " is not ready: connection refused", " after 3s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if strings.Contains(err.Error(), odd.Addr().String()+" is not ready: no") {
		t.Errorf("%v, which accepts connections", err)
	}
	if len(said) == 0 || !strings.HasPrefix(<-said, "waiting for ") {
		t.Error("nothing is said")
	}
}

// The end of its context ends it at once, with its cause.
func TestCancelled(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer site.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("told to stop")
	go func() {
		<-asked
		cancel(why)
	}()
	if err := All(ctx, []Target{parse(t, site.URL)}, patience, nil); err != why {
		t.Errorf("%v, want %v", err, why)
	}
}
