//go:build linux

package cmd_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// entrance is the port of a program, with a request that it answers.
type entrance struct {
	name, addr, path string
	socket           string // the path of a WebSocket that it serves itself; "": it has none
}

// entrances starts a program of each kind that has a front.
func entrances(t *testing.T) (all []entrance) {
	w := cmdtest.New(t)
	p := w.Proxy("--browser", cmdtest.Bin+"/fakebrowser", "--stop-timeout", "300ms")
	all = append(all, entrance{"bproxy", p.Addr, "/json/version", ""})
	p = w.Proxy("--isolate")
	all = append(all, entrance{"bproxy share", p.Addr, "/json/list", "/session/a/devtools/browser"})
	p = w.Hub()
	all = append(all, entrance{"bproxy hub", p.Addr, "/healthz", ""})
	pool := w.Shared("_A_INSTANCES=1")
	addr, lease, _ := strings.Cut(strings.TrimPrefix(pool.Lease().Instance.HTTPURL, "http://"), "/")
	all = append(all, entrance{"a lease's session", addr, "/" + lease + "/json/version",
		"/" + lease + "/devtools/browser"})
	other := cmdtest.New(t)
	status := &cmdtest.Pool{T: t, W: other, Cmd: other.Cmd("bpool", "serve", "--http", "127.0.0.1:0")}
	status.Start()
	all = append(all, entrance{"bpool --http", strings.TrimPrefix(status.HTTP, "http://"), "/healthz", ""})
	mcp, _ := w.WebMCP(nil, "--mcp", cmdtest.FakeChild())
	return append(all, entrance{"bmcp --http", strings.TrimSuffix(strings.TrimPrefix(mcp, "http://"), "/mcp"),
		"/healthz", ""})
}

// attacks are requests that no front takes for something else than they are. FIRST
// begins a harmless request without the end of its head, SECOND is a whole one.
var attacks = []struct {
	name, text string
	statuses   []string // of the answers, in their order; 413 also stands for a body that is read
}{
	{"two requests", "FIRST\nSECOND", []string{"200", "200"}},
	{"lines end with LF", "\x00FIRST\nSECOND", []string{"200", "200"}},
	{"two lengths", "FIRSTContent-Length: 0\nContent-Length: 9\n\nSECOND", []string{"400"}},
	{"one length twice", "FIRSTContent-Length: 0\nContent-Length: 0\n\nSECOND", []string{"200", "200"}},
	{"a list of lengths", "FIRSTContent-Length: 0, 9\n\nSECOND", []string{"400"}},
	{"a length with a sign", "FIRSTContent-Length: +0\n\nSECOND", []string{"400"}},
	{"a negative length", "FIRSTContent-Length: -1\n\nSECOND", []string{"400"}},
	{"a hexadecimal length", "FIRSTContent-Length: 0x0\n\nSECOND", []string{"400"}},
	{"a request in a body", "FIRSTContent-Length: LENGTH\n\nSECOND", []string{"413"}},
	{"chunks with a bad size", "FIRSTTransfer-Encoding: chunked\n\nx\nSECOND", []string{"413"}},
	{"another encoding", "FIRSTTransfer-Encoding: xchunked\n\n0\n\nSECOND", []string{"501"}},
	{"two encodings", "FIRSTTransfer-Encoding: identity\nTransfer-Encoding: chunked\n\n0\n\nSECOND", []string{"501"}},
	{"a space before the colon", "FIRSTTransfer-Encoding : chunked\n\n0\n\nSECOND", []string{"400"}},
	{"a space in a name", "FIRSTX Y: 1\n\nSECOND", []string{"400"}},
	{"a folded length", "FIRSTContent-Length: 0\n 9\n\nSECOND", []string{"400"}},
	{"CR in a value", "FIRSTX: a\rTransfer-Encoding: chunked\n\nSECOND", []string{"400"}},
	{"NUL in a value", "FIRSTX: a\x00b\n\nSECOND", []string{"400"}},
	{"two hosts", "FIRSTHost: localhost\n\nSECOND", []string{"400"}},
	{"no host", "GET PATH HTTP/1.1\n\nSECOND", []string{"400"}},
	{"a folded host", "GET PATH HTTP/1.1\nHost: 127.0.0.1\n evil.example\n\nSECOND", []string{"400"}},
	{"the target of a proxy", "GET http://evil.examplePATH HTTP/1.1\nHost: 127.0.0.1\n\nSECOND", []string{"403"}},
	{"our own target of a proxy", "GET http://127.0.0.1PATH HTTP/1.1\nHost: evil.example\n\nSECOND",
		[]string{"200", "200"}},
	{"a space in the target", "GET PATH PATH HTTP/1.1\nHost: 127.0.0.1\n\nSECOND", []string{"400"}},
	{"HTTP/2", "PRI * HTTP/2.0\n\nSM\n\n", []string{"403"}},
	{"no version", "GET PATH\n\nSECOND", []string{"400"}},
	{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", []string{"400"}},
	{"a long head", "FIRSTX: " + strings.Repeat("x", 100<<10) + "\n\nSECOND", []string{"431"}},
	{"upgrade to h2c", "FIRSTConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__\n\n" +
		"SECOND", []string{"200", "200"}},

	{"the name of DNS rebinding", "GET PATH HTTP/1.1\nHost: evil.example\n\nSECOND", []string{"403"}},
	{"a name that begins as ours", "GET PATH HTTP/1.1\nHost: 127.0.0.1.evil.example\n\nSECOND", []string{"403"}},
	{"an address that browsers do not trust", "GET PATH HTTP/1.1\nHost: 0.0.0.0\n\nSECOND", []string{"403"}},
	{"a web page", "FIRSTOrigin: http://evil.example\n\nSECOND", []string{"403"}},
	{"a web page without a name", "FIRSTOrigin: null\n\nSECOND", []string{"403"}},
	{"two origins", "FIRSTOrigin: http://127.0.0.1\nOrigin: http://evil.example\n\nSECOND", []string{"403"}},
	{"an image in a web page", "FIRSTSec-Fetch-Site: cross-site\n\nSECOND", []string{"403"}},
	{"an image in a page of another port", "FIRSTSec-Fetch-Site: same-site\n\nSECOND", []string{"403"}},
	{"a WebSocket of a web page", "FIRSTOrigin: http://evil.example\nConnection: Upgrade\nUpgrade: websocket\n" +
		"Sec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n", []string{"403"}},
	{"a page's question what it may do", "OPTIONS PATH HTTP/1.1\nHost: 127.0.0.1\nOrigin: http://evil.example\n" +
		"Access-Control-Request-Method: GET\n\nSECOND", []string{"403"}},
}

// frames are what no client may send on a WebSocket.
var frames = map[string]string{
	"a frame without a mask":       "\x81\x02{}",
	"a reserved bit":               "\xa1\x80\x00\x00\x00\x00",
	"compression that nobody asks": "\xc1\x80\x00\x00\x00\x00",
	"an unknown kind":              "\x83\x80\x00\x00\x00\x00",
	"a long ping":                  "\x89\xfe\x00\x7e\x00\x00\x00\x00" + strings.Repeat("x", 126),
	"a ping in parts":              "\x09\x80\x00\x00\x00\x00",
	"the rest of nothing":          "\x80\x80\x00\x00\x00\x00",
	"a second beginning":           "\x01\x80\x00\x00\x00\x00\x81\x80\x00\x00\x00\x00",
	"a code that nobody may send":  "\x88\x82\x00\x00\x00\x00\x03\xed",
	"a negative length":            "\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00",
}

// Each program's port withstands what a web page, or whoever splits requests, may send.
func TestFronts(t *testing.T) {
	t.Parallel()
	for _, e := range entrances(t) {
		for _, a := range attacks {
			second := "GET " + e.path + " HTTP/1.1\nHost: 127.0.0.1\nConnection: close\n\n"
			first := "GET " + e.path + " HTTP/1.1\nHost: 127.0.0.1\n"
			text := strings.NewReplacer("FIRST", first, "SECOND", second, "PATH", e.path,
				"LENGTH", fmt.Sprint(len(second)+4)).Replace(a.text)
			text, lf := strings.CutPrefix(text, "\x00")
			if !lf {
				text = strings.ReplaceAll(text, "\n", "\r\n")
			}
			got := e.answers(t, text, len(a.statuses))
			if !slices.EqualFunc(got, a.statuses, func(got, want string) bool {
				return got == want || got == "200" && want == "413"
			}) {
				t.Errorf("%s: %s: answered with %v, want %v", e.name, a.name, got, a.statuses)
			}
		}
		for name, frame := range frames {
			if e.socket != "" && !e.closes(t, frame) {
				t.Errorf("%s: %s: the connection stays open", e.name, name)
			}
		}
	}
}

// dial opens a connection to the program and sends a text.
func (e *entrance) dial(t *testing.T, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, text)
	c.SetReadDeadline(time.Now().Add(cmdtest.Patience))
	return c
}

// answers returns the statuses of the answers to a text. After as many as are wanted, it
// does not wait long for another one.
func (e *entrance) answers(t *testing.T, text string, wanted int) (statuses []string) {
	t.Helper()
	c := e.dial(t, text)
	defer c.Close()
	for in := bufio.NewReader(c); ; {
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			return statuses
		}
		statuses = append(statuses, fmt.Sprint(r.StatusCode))
		io.Copy(io.Discard, r.Body)
		if len(statuses) >= wanted {
			c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		}
	}
}

// closes reports whether the program ends a WebSocket on which a frame comes, with a
// reason.
func (e *entrance) closes(t *testing.T, frame string) bool {
	t.Helper()
	c := e.dial(t, "GET "+e.socket+" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	defer c.Close()
	in := bufio.NewReader(c)
	r, err := http.ReadResponse(in, nil)
	if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%s: %s: %+v, %v", e.name, e.socket, r, err)
	}
	io.WriteString(c, frame)
	said, err := io.ReadAll(in)
	late, _ := err.(net.Error)
	return bytes.HasPrefix(said, []byte{0x88}) && (late == nil || !late.Timeout())
}
