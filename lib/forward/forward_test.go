package forward

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/forward/proxytest"
	urls "btools/lib/forward/upstream"
)

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// open starts a forwarder for this process and returns a client that uses it.
func open(t *testing.T, upstream string) (*Forwarder, *http.Client, *lines) {
	t.Helper()
	u, err := urls.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	f, err := Listen(Options{Upstream: u, Browser: func(context.Context) (int, error) { return os.Getpid(), nil },
		Log: slog.New(slog.NewTextHandler(log, nil)), answer: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	at, _ := url.Parse(f.URL())
	c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at), TLSClientConfig: insecure},
		Timeout: time.Minute}
	t.Cleanup(c.CloseIdleConnections)
	return f, c, log
}

// get requests a page and returns its body.
func get(c *http.Client, url string) (int, string, error) {
	resp, err := c.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// echo answers with the address of each request.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s %q", r.Host, r.RequestURI, r.Header["Proxy-Authorization"])
})

// insecure accepts the certificate of the test.
var insecure *tls.Config

func TestForward(t *testing.T) {
	plain, secure := httptest.NewServer(echo), httptest.NewTLSServer(echo)
	defer plain.Close()
	defer secure.Close()
	insecure = secure.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	insecure.InsecureSkipVerify = true
	const path = `/a|b"/%2F?x=;|&y`
	for _, start := range []func(testing.TB, string) *proxytest.Proxy{proxytest.HTTP, proxytest.SOCKS5} {
		for _, scheme := range []string{"http", "https"} {
			to := plain.Listener.Addr().String()
			if scheme == "https" {
				to = secure.Listener.Addr().String()
			}
			p := start(t, to)
			kind := "http://"
			if len(p.Targets()) == 0 && fmt.Sprintf("%p", start) == fmt.Sprintf("%p", proxytest.SOCKS5) {
				kind = "socks5://"
			}
			f, c, log := open(t, kind+proxytest.Credentials+p.At)
			u := &url.URL{Scheme: scheme, Host: "name.test", Opaque: "//name.test" + strings.Split(path, "?")[0],
				RawQuery: strings.Split(path, "?")[1]}
			if scheme == "https" {
				u.Opaque = strings.Split(path, "?")[0]
			}
			resp, err := c.Do(&http.Request{Method: "GET", URL: u, Header: http.Header{}})
			if err != nil {
				t.Fatalf("%s through %s: %v\n%s", scheme, kind, err, log)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if want := "name.test " + path + " []"; string(b) != want {
				t.Errorf("%s through %s: the server got %s, want %s", scheme, kind, b, want)
			}
			if got := p.Targets(); len(got) != 1 || !strings.HasPrefix(got[0], "name.test") {
				t.Errorf("%s through %s: the proxy was asked for %q, want the name", scheme, kind, got)
			}
			if s := f.Status(); s != (Status{URL: kind + p.At}) || log.String() != "" {
				t.Errorf("the status is %+v\n%s", s, log)
			}
			f.Close()
			for end := time.Now().Add(time.Minute); p.Connections() > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s through %s: %d connections outlive the forwarder", scheme, kind, p.Connections())
				}
			}
		}
	}
}

// TestHalfClose sends bytes both ways through a tunnel, and an end of one side.
func TestHalfClose(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			b, _ := io.ReadAll(c) // until the client has ended
			c.Write(b)
			c.Close()
		}
	}()
	p := proxytest.HTTP(t, l.Addr().String())
	f, _, _ := open(t, "http://"+proxytest.Credentials+p.At)
	c, err := net.Dial("tcp4", strings.TrimPrefix(f.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, "CONNECT name.test:1 HTTP/1.1\r\nHost: name.test:1\r\n\r\nearly") // before the answer
	const head = "HTTP/1.1 200 Connection established\r\n\r\n"
	got := make([]byte, len(head))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != head {
		t.Fatalf("got %q (%v)", got, err)
	}
	io.WriteString(c, " and late")
	c.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(c)
	if want := "early and late"; string(b) != want || err != nil {
		t.Errorf("got %q (%v), want %q", b, err, want)
	}
}

func TestFaults(t *testing.T) {
	server := httptest.NewServer(echo)
	defer server.Close()
	p := proxytest.HTTP(t, server.Listener.Addr().String())
	q := proxytest.SOCKS5(t, server.Listener.Addr().String())
	dead, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	hang := func(c net.Conn) { io.Copy(io.Discard, c); c.Close() }
	end := func(c net.Conn) { c.Read(make([]byte, 1000)); c.Close() }
	for _, x := range []struct {
		name, upstream string
		proxy          *proxytest.Proxy
		wrong          func(net.Conn)
		want           string
	}{
		{"wrong password", "http://u:s3cret@" + p.At, p, nil, "407"},
		{"no password", "http://" + p.At, p, nil, "407"},
		{"wrong SOCKS password", "socks5://u:s3cret@" + q.At, q, nil, "does not accept the user"},
		{"no SOCKS password", "socks5://" + q.At, q, nil, "does not accept the user"},
		{"closed port", "http://u:s3cret@" + dead.Addr().String(), nil, nil, "connection refused"},
		{"closed SOCKS port", "socks5://u:s3cret@" + dead.Addr().String(), nil, nil, "connection refused"},
		{"no name", "http://u:s3cret@name.invalid:1", nil, nil, "cannot be resolved"},
		{"hangs", "http://u:s3cret@" + p.At, p, hang, "does not answer in time"},
		{"SOCKS hangs", "socks5://u:s3cret@" + q.At, q, hang, "does not answer in time"},
		{"TLS hangs", "https://u:s3cret@" + p.At, p, hang, "does not answer in time"},
		{"closes", "http://u:s3cret@" + p.At, p, end, "closes the connection"},
		{"SOCKS closes", "socks5://u:s3cret@" + q.At, q, end, "closes the connection"},
	} {
		t.Run(x.name, func(t *testing.T) {
			if x.wrong != nil {
				x.proxy.Wrong.Store(&x.wrong)
				defer x.proxy.Wrong.Store(nil)
			}
			f, c, log := open(t, x.upstream)
			for range 2 {
				status, body, err := get(c, "http://name.test/")
				if err != nil || status != 502 && status != 504 || !strings.Contains(body, x.want) {
					t.Errorf("a page is %d %s (%v), want an error with %q", status, body, err, x.want)
				}
				if _, _, err := get(c, "https://name.test/"); err == nil || !strings.Contains(err.Error(), "Gateway") {
					t.Errorf("a tunnel: %v", err)
				}
			}
			if got := f.Status().Error; !strings.Contains(got, x.want) {
				t.Errorf("the status is %q, want %q", got, x.want)
			}
			if n := strings.Count(log.String(), "level=WARN"); n != 1 {
				t.Errorf("%d warnings, want 1:\n%s", n, log)
			}
			if strings.Contains(log.String()+f.Status().Error+f.Status().URL, "s3cret") {
				t.Errorf("the password is in the log or the status:\n%s %+v", log, f.Status())
			}
		})
	}
	f, c, _ := open(t, "http://"+proxytest.Credentials+p.At)
	p.Wrong.Store(&end)
	if get(c, "http://name.test/"); f.Status().Error == "" {
		t.Error("no error in the status")
	}
	p.Wrong.Store(nil)
	if status, _, err := get(c, "http://name.test/"); status != 200 || f.Status().Error != "" {
		t.Errorf("after the proxy has recovered: %d %v, status %+v", status, err, f.Status())
	}
}

func TestNotAServer(t *testing.T) {
	f, _, _ := open(t, "http://name.invalid")
	if status, body, err := get(&http.Client{}, f.URL()+"/http://name.test/"); status != 400 {
		t.Errorf("a request as to a server: %d %s (%v)", status, body, err)
	}
}

// Without a proxy, servers are reached as they are, but for the port that is excepted.
func TestExcept(t *testing.T) {
	server, excepted := httptest.NewServer(echo), httptest.NewServer(echo)
	defer server.Close()
	defer excepted.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	own := excepted.Listener.Addr().(*net.TCPAddr).AddrPort()
	p := proxytest.HTTP(t, server.Listener.Addr().String())
	proxy, err := urls.Parse("http://" + proxytest.Credentials + p.At)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"no proxy": {}, "a proxy": {Upstream: proxy},
		"a proxy for all": {Upstream: proxy, Loopback: true}} {
		log, before := &lines{}, len(p.Targets())
		o.Except, o.Log = own, slog.New(slog.NewTextHandler(log, nil))
		o.Browser = func(context.Context) (int, error) { return os.Getpid(), nil }
		f, err := Listen(o)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		at, _ := url.Parse(f.URL())
		c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at), DisableKeepAlives: true}}
		for _, host := range []string{"127.0.0.1", "localhost", "X.LocalHost.", "0.0.0.0", "[::ffff:127.0.0.1]"} {
			path := "/a%2Fb?x=;&y"
			status, body, err := get(c, "http://"+host+":"+port+path)
			if want := fmt.Sprintf("%s:%s %s []", host, port, path); status != 200 || body != want {
				t.Errorf("%s: %d %s (%v), want %s", name, status, body, err, want)
			}
			own := fmt.Sprintf("%s:%d", host, own.Port())
			if status, body, err := get(c, "http://"+own); err == nil {
				t.Errorf("%s: the port as %s: %d %s", name, own, status, body)
			}
			conn, err := net.Dial("tcp", at.Host)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", own)
			if got, _ := io.ReadAll(conn); len(got) > 0 {
				t.Errorf("%s: a tunnel to %s: %s", name, own, got)
			}
			conn.Close()
		}
		for from, want := range map[string]int{"http://localhost:1": 200, "http://evil.test": 0, "null": 0, "": 0} {
			r, _ := http.NewRequest("GET", server.URL, nil)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Origin", from)
			resp, err := c.Do(r)
			if err == nil {
				resp.Body.Close()
			}
			if got := err == nil; got != (want == 200 || o.Loopback) {
				t.Errorf("%s: a page from %q: %v", name, from, err)
			}
		}
		if !strings.Contains(log.String(), "no page may reach the browser's own debugging port") {
			t.Errorf("%s: the log says\n%s", name, log)
		}
		if n := len(p.Targets()) - before; (n > 0) != (name == "a proxy for all") {
			t.Errorf("%s: the proxy was asked for %q", name, p.Targets())
		}
	}
}
