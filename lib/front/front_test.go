package front

import (
	"bufio"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"btools/lib/guard"
	"btools/lib/tokens"
)

func request(t *testing.T, head string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n")))
	if err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	return r
}

// status returns the status with which a front before a browser refuses a request, if it
// allows pages of these origins; 0: it is let through.
func status(r *http.Request, origins ...string) int {
	passed := false
	f := &Front{Guard: guard.Guard{Origins: origins}, Log: slog.New(slog.DiscardHandler),
		Routes: []Route{{Answer: func(_ *Response, r *http.Request) error {
			if _, no := ReadDevTools(r, r.URL.Path, true); no != nil {
				return no
			}
			passed = true
			return nil
		}}}}
	w := httptest.NewRecorder()
	if f.ServeHTTP(w, r); passed {
		return 0
	}
	return w.Code
}

const ws = "\nConnection: keep-alive, Upgrade\nUpgrade: websocket"

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		head   string
	}{
		{0, "GET /json/version HTTP/1.1\nHost: 127.0.0.1:1"},
		{0, "GET /json/version/ HTTP/1.1\nHost: localhost"},
		{0, "GET /json HTTP/1.1\nHost: [::1]:1"},
		{0, "GET /json/list?t=1 HTTP/1.1\nHost: LOCALHOST:1"},
		{0, "GET /json/protocol HTTP/1.1\nHost: 127.9.9.9"},
		{403, "GET /json/protocol HTTP/1.1\nHost: 10.0.0.1"},
		{403, "GET /json/version HTTP/1.1\nHost: 0.0.0.0:1"},
		{403, "GET /json/version HTTP/1.1\nHost: [::]:1"},
		{403, "GET /json/version HTTP/1.1\nHost: [::ffff:127.0.0.1]:1"},
		{403, "GET /json/version HTTP/1.1\nHost: [::ffff:7f00:1]"},
		{403, "GET /json/version HTTP/1.1\nHost: 127.0.0.1:abc"},
		{413, "GET / HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 5" + ws},
		{0, "PUT /json/new?http://x/ HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 0"},
		{0, "GET /json/close/ABC HTTP/1.1\nHost: 127.0.0.1\nSec-Fetch-Site: none"},
		{0, "GET / HTTP/1.1\nHost: 127.0.0.1" + ws},
		{0, "GET /devtools/browser HTTP/1.1\nHost: 127.0.0.1" + ws},
		{0, "GET /devtools/browser/old-guid HTTP/1.1\nHost: 127.0.0.1" + ws},
		{0, "GET /devtools/page/ABC HTTP/1.1\nHost: 127.0.0.1" + ws},
		{0, "GET /session HTTP/1.1\nHost: 127.0.0.1" + ws},
		{0, "GET / HTTP/1.1\nHost: 127.0.0.1\nOrigin: http://good.example" + ws},
		{0, "GET /json HTTP/1.1\nHost: 127.0.0.1\nOrigin: http://good.example\nSec-Fetch-Site: cross-site"},

		{403, "GET /json/version HTTP/1.1\nHost: evil.example"},
		{403, "GET /json/version HTTP/1.1\nHost: 127.0.0.1.evil.example:80"},
		{403, "GET /json/version HTTP/1.1\nHost: localhost.evil.example"},
		{403, "GET /json/version HTTP/1.0"},
		{403, "GET http://evil.example/json/version HTTP/1.1\nHost: 127.0.0.1"},
		{403, "GET / HTTP/1.1\nHost: 127.0.0.1\nOrigin: http://evil.example" + ws},
		{403, "GET / HTTP/1.1\nHost: 127.0.0.1\nOrigin: null" + ws},
		{403, "GET / HTTP/1.1\nHost: 127.0.0.1\nOrigin: http://good.example\nOrigin: http://evil.example" + ws},
		{403, "GET /json/version HTTP/1.1\nHost: 127.0.0.1\nSec-Fetch-Site: cross-site"},
		{403, "GET /json/version HTTP/1.1\nHost: 127.0.0.1\nSec-Fetch-Site: same-site"},
		{403, "GET /json/version HTTP/1.1\nHost: 127.0.0.1\nSec-Fetch-Site: same-origin"},
		{404, "GET / HTTP/1.1\nHost: 127.0.0.1"},
		{404, "GET /favicon.ico HTTP/1.1\nHost: 127.0.0.1"},
		{404, "GET //json/version HTTP/1.1\nHost: 127.0.0.1"},
		{404, "GET /json/close/ HTTP/1.1\nHost: 127.0.0.1"},
		{404, "OPTIONS * HTTP/1.1\nHost: 127.0.0.1"},
		{404, "CONNECT 127.0.0.1:80 HTTP/1.1\nHost: 127.0.0.1"},
		{404, "GET /json/version HTTP/1.1\nHost: 127.0.0.1" + ws},
		{405, "POST /json/version HTTP/1.1\nHost: 127.0.0.1"},
		{405, "DELETE /json/version HTTP/1.1\nHost: 127.0.0.1"},
		{405, "GET /json/new HTTP/1.1\nHost: 127.0.0.1"},
		{405, "POST / HTTP/1.1\nHost: 127.0.0.1" + ws},
		{413, "PUT /json/new HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 5"},
		{413, "PUT /json/new HTTP/1.1\nHost: 127.0.0.1\nTransfer-Encoding: chunked"},
	} {
		if got := status(request(t, c.head), "http://good.example"); got != c.status {
			t.Errorf("%q: %d, want %d", c.head, got, c.status)
		}
	}
}

// local is a Host that DNS rebinding cannot forge.
func local(host string) bool {
	name, ok := guard.HostName(host)
	return ok && (strings.EqualFold(name, "localhost") || strings.HasPrefix(name, "127.") ||
		strings.HasSuffix(name, "1") && strings.Trim(name, "0:1") == "")
}

// No request that a web page can send passes, whatever its head is, and nothing
// panics.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		"GET /json/version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://evil\r\nConnection: Upgrade\r\nUpgrade: " +
			"websocket\r\n\r\n",
		"GET /json?token=x HTTP/1.1\r\nHost: evil.example\r\nSec-Fetch-Site: cross-site\r\nAuthorization: " +
			"Bearer\r\n\r\n",
	} {
		f.Add(s)
	}
	known := file(f, "t")
	f.Fuzz(func(t *testing.T, head string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
		if err != nil {
			return
		}
		origins := len(r.Header.Values("Origin")) // the front removes them
		if status(r) != 0 {
			return
		}
		site := r.Header.Get("Sec-Fetch-Site")
		if origins > 0 || site != "" && site != "none" || !local(r.Host) ||
			r.ContentLength != 0 {
			t.Errorf("let through: %q", head)
		}
		if r.Method != http.MethodGet && r.Method != http.MethodPut {
			t.Errorf("let through: %q", head)
		}
		(&guard.Guard{Tokens: known}).StripCredentials(r)
	})
}

// A client that offers another protocol is answered in this one.
func TestOtherUpgrade(t *testing.T) {
	t.Parallel()
	for upgrade, want := range map[string]int{"h2c": 0, "websocket": 404, "WebSocket": 404, "h2c, websocket": 404} {
		r := request(t, "GET /json/version HTTP/1.1\nHost: 127.0.0.1\nConnection: Upgrade\nUpgrade: "+upgrade)
		if got := status(r); got != want {
			t.Errorf("an upgrade to %s: %d, want %d", upgrade, got, want)
		}
	}
}

// The paths below a browser's address that mean its downloads.
func TestDownloadsPaths(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/downloads": "", "/downloads/": "", "/downloads/x": "x", "": "no",
		"/": "no", "/x": "no", "/downloadsx": "no", "/downloads/x/": "no", "/downloads/x/y": "no"} {
		guid, ok := ParseDownloads(path)
		if !ok {
			guid = "no"
		}
		if guid != want {
			t.Errorf("%q: %q, want %q", path, guid, want)
		}
	}
}

// file returns a file of tokens with one.
func file(t testing.TB, token string) *tokens.File {
	t.Helper()
	path := t.TempDir() + "/token"
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := tokens.Open(path, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f
}
