// Package proxytest has proxies with a password, for tests and benchmarks.
package proxytest

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// User and Password are what the proxies accept; Credentials are both as they
// stand in a URL.
const (
	User        = "us:er"
	Password    = "p@ss/wörd%"
	Credentials = "us%3Aer:p%40ss%2Fw%C3%B6rd%25@"
)

// Proxy is a proxy on this machine. It resolves no names: it connects each
// target to one server.
type Proxy struct {
	At   string // host:port
	Open bool   // it asks for no password; set it before use
	// Wrong, if not nil, gets each connection instead.
	Wrong atomic.Pointer[func(net.Conn)]

	listener net.Listener
	server   string // host:port
	mu       sync.Mutex
	targets  []string
	conns    map[net.Conn]bool
	running  sync.WaitGroup
}

// HTTP starts a proxy that speaks HTTP, in front of a server.
func HTTP(t testing.TB, server string) *Proxy {
	p := start(t, server)
	back := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			path, _, _ := strings.Cut(strings.TrimPrefix(r.In.RequestURI, "http://"+r.In.URL.Host), "?")
			r.Out.URL.Host, r.Out.URL.Opaque, r.Out.URL.RawQuery = server, path, r.In.URL.RawQuery
		},
		Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
	}
	h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want := "Basic " + base64.StdEncoding.EncodeToString([]byte(User+":"+Password))
		if !p.Open && r.Header.Get("Proxy-Authorization") != want {
			w.Header().Set("Proxy-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		p.note(r.Host)
		if r.Method != http.MethodConnect {
			back.ServeHTTP(w, r)
			return
		}
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		p.relay(conn, buf.Reader)
	})}
	p.running.Go(func() { h.Serve(p) })
	t.Cleanup(func() { h.Close() })
	return p
}

// SOCKS5 starts a proxy that speaks SOCKS 5, in front of a server.
func SOCKS5(t testing.TB, server string) *Proxy {
	p := start(t, server)
	p.running.Go(func() {
		for {
			c, err := p.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() {
				defer c.Close()
				p.serveSOCKS(c)
			})
		}
	})
	return p
}

func start(t testing.TB, server string) *Proxy {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{At: l.Addr().String(), listener: l, server: server, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		p.Close()
		p.CloseConnections()
		p.running.Wait()
	})
	return p
}

// Targets returns the hosts that clients have asked for, as they wrote them.
func (p *Proxy) Targets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.targets)
}

func (p *Proxy) note(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = append(p.targets, target)
}

// Connections returns the number of open connections of clients.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// CloseConnections closes the connections of all clients.
func (p *Proxy) CloseConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.(*conn).Conn.Close()
	}
}

// Accept, Close and Addr make the proxy a net.Listener of its connections.
func (p *Proxy) Accept() (net.Conn, error) {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return nil, err
		}
		if wrong := p.Wrong.Load(); wrong != nil {
			p.running.Go(func() { (*wrong)(c) })
			continue
		}
		counted := &conn{c, p}
		p.mu.Lock()
		p.conns[counted] = true
		p.mu.Unlock()
		return counted, nil
	}
}

// Close stops to listen.
func (p *Proxy) Close() error { return p.listener.Close() }

// Addr is the address of the listener.
func (p *Proxy) Addr() net.Addr { return p.listener.Addr() }

// conn is a counted connection of a client.
type conn struct {
	net.Conn
	proxy *Proxy
}

func (c *conn) Close() error {
	c.proxy.mu.Lock()
	delete(c.proxy.conns, c)
	c.proxy.mu.Unlock()
	return c.Conn.Close()
}

// relay connects a client to the server.
func (p *Proxy) relay(c net.Conn, in *bufio.Reader) {
	defer c.Close()
	up, err := net.Dial("tcp4", p.server)
	if err != nil {
		return
	}
	defer up.Close()
	p.running.Go(func() {
		io.Copy(up, in)
		up.(*net.TCPConn).CloseWrite()
	})
	io.Copy(c, up)
}

// serveSOCKS serves a client as RFC 1928 and RFC 1929 say.
func (p *Proxy) serveSOCKS(c net.Conn) {
	in := bufio.NewReader(c)
	read := func(n int) string {
		b := make([]byte, n)
		io.ReadFull(in, b)
		return string(b)
	}
	read(1)
	methods := read(int(read(1)[0]))
	want := byte(2) // user and password
	if p.Open {
		want = 0
	}
	if !slices.Contains([]byte(methods), want) {
		c.Write([]byte{5, 0xff})
		return
	}
	c.Write([]byte{5, want})
	if !p.Open {
		read(1)
		user := read(int(read(1)[0]))
		password := read(int(read(1)[0]))
		if user != User || password != Password {
			c.Write([]byte{1, 1})
			return
		}
		c.Write([]byte{1, 0})
	}
	var host string
	switch head := read(4); head[3] {
	case 1:
		host = net.IP(read(4)).String()
	case 3:
		host = read(int(read(1)[0]))
	case 4:
		host = net.IP(read(16)).String()
	}
	port := binary.BigEndian.Uint16([]byte(read(2)))
	p.note(net.JoinHostPort(host, strconv.Itoa(int(port))))
	c.Write([]byte{5, 0, 0, 1, 127, 0, 0, 1, 0, 1})
	p.relay(c, in)
}
