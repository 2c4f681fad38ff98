package websocket

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestRefusals has requests refused that ask for a WebSocket wrongly.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const key = "dGhlIHNhbXBsZSBub25jZQ=="
	url := serve(t, func(c *Conn) { c.Close(Normal, "") })
	for name, c := range map[string]struct {
		method string
		change map[string]string
		code   int
	}{
		"right": {"GET", nil, 101},
		"lists": {"GET", map[string]string{"Connection": "keep-alive, upgrade", "Upgrade": "h2c, WebSocket"},
			101},
		"POST":               {"POST", nil, 405},
		"no Upgrade":         {"GET", map[string]string{"Upgrade": ""}, 426},
		"another Upgrade":    {"GET", map[string]string{"Upgrade": "websocket2"}, 426},
		"no Connection":      {"GET", map[string]string{"Connection": "close"}, 426},
		"version 8":          {"GET", map[string]string{"Sec-WebSocket-Version": "8"}, 426},
		"no key":             {"GET", map[string]string{"Sec-WebSocket-Key": ""}, 400},
		"short key":          {"GET", map[string]string{"Sec-WebSocket-Key": "AAAA"}, 400},
		"key of nonsense":    {"GET", map[string]string{"Sec-WebSocket-Key": "!"}, 400},
		"extensions offered": {"GET", map[string]string{"Sec-WebSocket-Extensions": "permessage-deflate"}, 101},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequest(c.method, "http"+strings.TrimPrefix(url, "ws"), nil)
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket",
				"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key} {
				r.Header.Set(k, v)
			}
			for k, v := range c.change {
				r.Header.Set(k, v)
			}
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != c.code {
				t.Errorf("it is answered with %s", resp.Status)
			}
			if c.code == 101 && (resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" ||
				resp.Header.Get("Sec-WebSocket-Extensions") != "") {
				t.Errorf("it is answered with %v", resp.Header)
			}
			if c.code == 426 && resp.Header.Get("Sec-WebSocket-Version") != "13" {
				t.Error("the answer doesn't say which version is spoken")
			}
		})
	}
	if _, err := Accept(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)); err == nil {
		t.Error("a plain request is accepted")
	}
}

// TestEarly has messages come together with the request, and with its answer.
func TestEarly(t *testing.T) {
	t.Parallel()
	url := serve(t, func(c *Conn) {
		m, err := c.Next()
		if err == nil {
			err = c.Relay(m)
		}
		if err != nil {
			t.Error(err)
		}
		c.Close(Normal, "")
	})
	raw, err := net.Dial("tcp", strings.TrimPrefix(url, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	io.WriteString(raw, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"+
		string(frame(0x81, true, "early")))
	all, _ := io.ReadAll(raw)
	if _, rest, _ := strings.Cut(string(all), "\r\n\r\n"); !strings.HasPrefix(rest, "\x81\x05early") {
		t.Errorf("the server answers %q", all)
	}
}

// TestDialRefused has servers that don't answer as they should.
func TestDialRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ answer, want string }{
		"404": {"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nno target", `"404 Not Found": "no target"`},
		"no key": {"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
			"not a WebSocket handshake"},
		"not HTTP": {"hello\r\n\r\n", "malformed HTTP"},
		"nothing":  {"", "EOF"},
		"no end":   {"HTTP/1.1 101 X\r\nX: " + strings.Repeat("x", maxAnswer), "EOF"},
		"extension": {"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
			"Sec-WebSocket-Extensions: x\r\nSec-WebSocket-Accept: KEY\r\n\r\n", "an extension"},
	} {
		t.Run(name, func(t *testing.T) {
			addr := answer(t, c.answer)
			_, err := Dial(t.Context(), "ws://"+addr+"/")
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), addr) {
				t.Errorf("Dial says %v", err)
			}
		})
	}
	for _, bad := range []string{"wss://127.0.0.1/", "http://127.0.0.1/", "127.0.0.1:1", "ws://", "ws://%"} {
		if _, err := Dial(t.Context(), bad); err == nil {
			t.Errorf("Dial(%q) succeeds", bad)
		}
	}
}

// answer is a server that answers one request so.
func answer(t *testing.T, text string) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		io.WriteString(c, strings.Replace(text, "KEY", acceptKey(r.Header.Get("Sec-WebSocket-Key")), 1))
	}()
	return l.Addr().String()
}

// TestDialBound has a server that doesn't answer at all.
func TestDialBound(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, "ws://"+l.Addr().String()); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("Dial says %v", err)
	}
}
