package guard

import (
	"bufio"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

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

// check asserts the status that a request is refused with, 0 if it is let
// through.
func check(t *testing.T, g *Guard, head string, want int) {
	t.Helper()
	got := 0
	no := g.Check(request(t, head))
	if no != nil {
		got = no.Status
	}
	if got != want {
		t.Errorf("tokens %t, origins %q, %q: %d, want %d", g.Tokens != nil, g.Origins, head, got, want)
	}
}

const upgrade = "\nConnection: Upgrade\nUpgrade: websocket"

// Programs of this machine may ask, and no web page: neither by its Origin,
// nor by a name that DNS has changed, nor without either.
func TestOnlyThisMachine(t *testing.T) {
	for head, want := range map[string]int{
		"Host: 127.0.0.1:1":            0,
		"Host: 127.9.9.9":              0,
		"Host: LocalHost:65535":        0,
		"Host: [::1]:1":                0,
		"Host: [::1]":                  0,
		"Host: evil.example":           403,
		"Host: localhost.evil.example": 403,
		"Host: 127.0.0.1.evil.example": 403,
		"Host: 127.0.0.1:http":         403,
		"Host: 127.0.0.1:65536":        403,
		"Host: 0.0.0.0:1":              403,
		"Host: [::ffff:127.0.0.1]:1":   403,
		"Host: ":                       403,

		"Host: 127.0.0.1:1\nOrigin: http://127.0.0.1:1":            0, // a program that gives ours
		"Host: 127.0.0.1:1\nOrigin: http://127.0.0.1:1" + upgrade:  403,
		"Host: 127.0.0.1:1\nOrigin: https://127.0.0.1:1":           403,
		"Host: 127.0.0.1:1\nOrigin: http://127.0.0.1:2":            403,
		"Host: evil.example\nOrigin: http://evil.example":          403,
		"Host: 127.0.0.1\nOrigin: null":                            403,
		"Host: 127.0.0.1\nOrigin: ":                                403,
		"Host: 127.0.0.1\nOrigin: http://evil.example" + upgrade:   403,
		"Host: 127.0.0.1\nSec-Fetch-Site: none":                    0, // a person's address bar
		"Host: 127.0.0.1\nSec-Fetch-Site: cross-site":              403,
		"Host: 127.0.0.1\nSec-Fetch-Site: same-site":               403,
		"Host: 127.0.0.1\nSec-Fetch-Site: same-origin":             403,
		"Host: 127.0.0.1\nSec-Fetch-Site: unheard-of":              403,
		"Host: 127.0.0.1\nAuthorization: Bearer x\nReferer: about": 0,
	} {
		check(t, &Guard{}, "GET / HTTP/1.1\n"+head, want)
	}
}

// A port with a page of its own lets the page alone open WebSockets, and other pages lead to it, and nothing more.
func TestPage(t *testing.T) {
	const own, opened = "Host: 127.0.0.1:1\nOrigin: http://127.0.0.1:1", "\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: "
	for head, want := range map[string]int{
		"/list HTTP/1.1\n" + own + upgrade:                                                      0,
		"/list HTTP/1.1\n" + own + "\nSec-Fetch-Site: same-origin" + upgrade:                    0,
		"/list HTTP/1.1\n" + own + "\nSec-Fetch-Site: same-site" + upgrade:                      403,
		"/list HTTP/1.1\nHost: localhost:1\nOrigin: http://localhost:1" + upgrade:               0,
		"/list HTTP/1.1\nHost: 127.0.0.1:1" + upgrade:                                           403,
		"/list HTTP/1.1\nHost: 127.0.0.1:1\nOrigin: http://127.0.0.1:2" + upgrade:               403,
		"/list HTTP/1.1\nHost: 127.0.0.1:1\nOrigin: http://localhost:1" + upgrade:               403,
		"/list HTTP/1.1\nHost: 127.0.0.1:1\nOrigin: https://127.0.0.1:1" + upgrade:              403,
		"/list HTTP/1.1\nHost: 127.0.0.1:1\nOrigin: null" + upgrade:                             403,
		"/list HTTP/1.1\n" + own + "\nOrigin: http://127.0.0.1:1" + upgrade:                     403,
		"/list HTTP/1.1\nHost: evil.example\nOrigin: http://evil.example" + upgrade:             403,
		"/list HTTP/1.1\nHost: 127.0.0.1.nip.io\nOrigin: http://127.0.0.1.nip.io" + upgrade:     403,
		"/list HTTP/1.1\nHost: [::ffff:127.0.0.1]\nOrigin: http://[::ffff:127.0.0.1]" + upgrade: 403,
		"/list HTTP/1.1\nHost: 0.0.0.0:1\nOrigin: http://0.0.0.0:1" + upgrade:                   403,

		"/ HTTP/1.1\nHost: 127.0.0.1:1":                                                       0,
		"/ HTTP/1.1\nHost: 127.0.0.1:1\nSec-Fetch-Site: none":                                 0,
		"/app.js HTTP/1.1\nHost: 127.0.0.1:1\nSec-Fetch-Site: same-origin":                    0,
		"/app.js HTTP/1.1\nHost: 127.0.0.1:1\nSec-Fetch-Site: cross-site":                     403,
		"/app.js HTTP/1.1\nHost: 127.0.0.1:1\nOrigin: http://evil.example":                    403,
		"/ HTTP/1.1\nHost: evil.example":                                                      403,
		"/ HTTP/1.1\nHost: 127.0.0.1:1\nSec-Fetch-Site: cross-site":                           403,
		"/ HTTP/1.1\nHost: 127.0.0.1:1\nSec-Fetch-Site: cross-site" + opened + "document":     0,
		"/?a HTTP/1.1\nHost: 127.0.0.1:1\nSec-Fetch-Site: cross-site" + opened + "document":   403,
		"/list HTTP/1.1\nHost: 127.0.0.1:1\nSec-Fetch-Site: cross-site" + opened + "document": 403,
		"/ HTTP/1.1\nHost: 127.0.0.1:1\nSec-Fetch-Site: cross-site" + opened + "iframe":       403,
	} {
		check(t, &Guard{Page: true}, "GET "+head, want)
	}
}

// Pages of the origins that are named may ask, alone.
func TestAllowedOrigins(t *testing.T) {
	const good, host = "http://good.example", "GET / HTTP/1.1\nHost: 127.0.0.1\nOrigin: "
	named, all := &Guard{Origins: []string{good}}, &Guard{Origins: []string{"*"}}
	for _, c := range []struct {
		g      *Guard
		origin string
		want   int
	}{
		{named, good, 0},
		{named, good + upgrade, 0},
		{named, good + "\nSec-Fetch-Site: cross-site", 0},
		{named, good + ":80", 403},
		{named, "https://good.example", 403},
		{named, "http://other.example", 403},
		{named, good + "\nOrigin: http://evil.example", 403},
		{named, good + ", http://evil.example", 403},
		{all, "http://other.example" + upgrade, 0},
		{all, "null\nSec-Fetch-Site: cross-site", 0},
		{all, good + "\nOrigin: " + good, 403},
	} {
		check(t, c.g, host+c.origin, c.want)
	}
	check(t, all, "GET / HTTP/1.1\nHost: evil.example\nOrigin: http://evil.example", 403) // it is not on this machine
}

// A page that was loaded from here, such as DevTools' own, may load the rest of
// it if our own origin is allowed.
func TestOwnPage(t *testing.T) {
	const devtools = "GET /devtools/inspector.html HTTP/1.1\nHost: localhost:9222\nSec-Fetch-Site: "
	for _, c := range []struct {
		origin, site string
		want         int
	}{
		{"*", "same-origin", 0},
		{"http://localhost:9222", "same-origin", 0},
		{"http://127.0.0.1:9222", "same-origin", 403},
		{"http://localhost", "same-origin", 403},
		{"", "same-origin", 403},
		{"*", "same-site", 403},
		{"*", "cross-site", 403},
		{"http://localhost:9222", "same-origin\nOrigin: http://evil.example", 403},
	} {
		check(t, &Guard{Origins: []string{c.origin}}, devtools+c.site, c.want)
	}
}

// With a token the Host may be any, and a page needs its permission still.
func TestToken(t *testing.T) {
	g := &Guard{Tokens: file(t, "secret")}
	for head, want := range map[string]int{
		"GET /json HTTP/1.1\nHost: farm.example":                                        401,
		"GET /json HTTP/1.1\nHost: farm.example\nAuthorization: Bearer secreT":          401,
		"GET /json HTTP/1.1\nHost: farm.example\nAuthorization: secret":                 401,
		"GET /json HTTP/1.1\nHost: farm.example\nAuthorization: Basic secret":           401,
		"GET /json?token=secre HTTP/1.1\nHost: farm.example":                            401,
		"GET /json?token= HTTP/1.1\nHost: 127.0.0.1":                                    401,
		"GET /json?xtoken=secret HTTP/1.1\nHost: farm.example":                          401,
		"GET /json HTTP/1.1\nHost: farm.example\nAuthorization: bearer secret":          0,
		"GET /json?a=1&token=secret&b HTTP/1.1\nHost: farm.example":                     0,
		"GET /json?token=%73ecret HTTP/1.1\nHost: farm.example":                         0,
		"GET /json?token=secret HTTP/1.1\nHost: farm.example\nOrigin: http://x.example": 403,
	} {
		check(t, g, head, want)
	}
}

// Nobody behind the guard sees the token, and what is not ours stays.
func TestStripCredentials(t *testing.T) {
	const head = "PUT /json/new?token=secret&http://site/?token=its&x&token=%73ecret HTTP/1.1\nHost: x\n" +
		"Authorization: Bearer secret\nReferer: http://x/?token=secret\nOrigin: y"
	r := request(t, head)
	(&Guard{Tokens: file(t, "secret")}).StripCredentials(r)
	if want := "http://site/?token=its&x"; r.URL.RawQuery != want {
		t.Errorf("query %q, want %q", r.URL.RawQuery, want)
	}
	if len(r.Header) != 0 {
		t.Errorf("headers %v, want none", r.Header)
	}
	r = request(t, head)
	(&Guard{}).StripCredentials(r)
	if r.Header.Get("Authorization") == "" || !strings.Contains(r.URL.RawQuery, "token=secret") ||
		r.Header.Get("Origin") != "" {
		t.Errorf("without a token of ours: query %q, headers %v; want only the Origin gone", r.URL.RawQuery, r.Header)
	}
}

func TestRefusalAsResponse(t *testing.T) {
	for _, c := range []struct {
		g          *Guard
		head       string
		code, hint string
	}{
		{&Guard{}, "Host: 127.0.0.1\nOrigin: http://x", "forbidden", "--allow-origin"},
		{&Guard{NoPages: true}, "Host: 127.0.0.1\nOrigin: http://x", "forbidden", ""},
		{&Guard{}, "Host: x", "forbidden", "--token-file"},
		{&Guard{Tokens: file(t, "t")}, "Host: x", "unauthorized", "Authorization: Bearer"},
	} {
		w := httptest.NewRecorder()
		no := c.g.Check(request(t, "GET / HTTP/1.1\n"+c.head))
		if no == nil {
			t.Errorf("%q is let through", c.head)
			continue
		}
		no.WriteResponse(w)
		var body struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Errorf("%q: %v: %s", c.head, err, w.Body)
		}
		if w.Code != no.Status || body.Error.Code != c.code || !strings.Contains(body.Error.Message, c.hint) ||
			c.g.NoPages && strings.Contains(body.Error.Message, "--") {
			t.Errorf("%q: %d %s, want code %s and %q", c.head, w.Code, w.Body, c.code, c.hint)
		}
		if got := w.Header().Get("WWW-Authenticate"); (got == "Bearer") != (w.Code == 401) {
			t.Errorf("%q: status %d with WWW-Authenticate %q", c.head, w.Code, got)
		}
	}
}

// A browser asks before it lets a page's request go: it is told what the page
// may send, if its origin is allowed, and nothing else.
func TestCORS(t *testing.T) {
	may := CORS{Methods: "GET, POST", Headers: []string{"Content-Type"}, Prefix: "Mcp-", Exposed: "Mcp-Session-Id"}
	const preflight = "OPTIONS / HTTP/1.1\nAccess-Control-Request-Method: POST\nHost: "
	for _, c := range []struct {
		g        *Guard
		head     string
		answered bool
		origin   string
	}{
		{&Guard{Origins: []string{"http://x"}}, preflight + "127.0.0.1\nOrigin: http://x", true, "http://x"},
		{&Guard{Origins: []string{"*"}}, preflight + "127.0.0.1\nOrigin: http://y", true, "http://y"},
		{&Guard{Origins: []string{"http://x"}, Tokens: file(t, "t")}, preflight + "farm\nOrigin: http://x", true,
			"http://x"},
		{&Guard{Origins: []string{"http://x"}}, preflight + "farm\nOrigin: http://x", false, ""},
		{&Guard{Origins: []string{"http://x"}}, preflight + "127.0.0.1\nOrigin: http://y", false, ""},
		{&Guard{Origins: []string{"http://x"}}, preflight + "127.0.0.1", false, ""},
		{&Guard{}, preflight + "127.0.0.1\nOrigin: http://x", false, ""},
		{&Guard{Origins: []string{"http://x"}}, "POST / HTTP/1.1\nHost: 127.0.0.1\nOrigin: http://x", false,
			"http://x"},
		{&Guard{Origins: []string{"http://x"}}, "OPTIONS / HTTP/1.1\nHost: 127.0.0.1\nOrigin: http://x", false,
			"http://x"},
	} {
		w := httptest.NewRecorder()
		r := request(t, c.head)
		r.Header.Set("Access-Control-Request-Headers", "mcp-name, X-Evil")
		answered := c.g.HandleCORS(w, r, may)
		h := w.Header()
		if origin := h.Get("Access-Control-Allow-Origin"); answered != c.answered || origin != c.origin {
			t.Errorf("%q: answered %v for the origin %q, want %v for %q", c.head, answered, origin, c.answered,
				c.origin)
		}
		if got, want := h.Get("Access-Control-Allow-Headers"), "Content-Type, Mcp-Name"; answered && got != want {
			t.Errorf("%q: it may send %q, want %q", c.head, got, want)
		}
		if got := h.Get("Access-Control-Expose-Headers"); !answered && c.origin != "" && got != may.Exposed {
			t.Errorf("%q: it may read %q, want %q", c.head, got, may.Exposed)
		}
		if got := h.Get("Vary"); len(c.g.Origins) > 0 && got != "Origin" {
			t.Errorf("%q: a cache may give this to another page: Vary is %q", c.head, got)
		}
	}
	if len(may.Headers) != 1 {
		t.Errorf("what pages may send has become %q", may.Headers)
	}
}

// file returns a file of tokens with one.
func file(t *testing.T, token string) *tokens.File {
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

// A request has its own token, and not that of an earlier one on its connection: a proxy in front has one connection
// for several clients.
func TestTokenOf(t *testing.T) {
	t.Parallel()
	g := &Guard{Tokens: file(t, "sesame")}
	r := httptest.NewRequestWithContext(ConnContext(t.Context(), nil), "GET", "/?token=sesame", nil)
	no := g.Check(r)
	if _, token := TokenOf(r); no != nil || token == nil {
		t.Errorf("the token is %v, %v", token, no)
	}
	r.URL.RawQuery = ""
	no = g.Check(r)
	if _, token := TokenOf(r); no == nil || token != nil {
		t.Errorf("without one it is %v, %v", token, no)
	}
}
