//go:build linux

package cmdtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Proxy is a bproxy that runs.
type Proxy struct {
	T    *testing.T
	W    *World
	Cmd  *exec.Cmd
	Errs SyncBuffer
	Addr string
	URL  string
}

// Proxy starts a bproxy; its end is the test's.
func (w *World) Proxy(args ...string) *Proxy {
	w.T.Helper()
	p := &Proxy{T: w.T, W: w}
	command := 0 // the options are after it
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command = 1
	}
	p.Cmd = w.Cmd("bproxy", slices.Insert(slices.Clone(args), command, "--no-input", "--health-timeout",
		Patience.String())...)
	p.Start()
	return p
}

// Start starts what Cmd is, and reads its record.
func (p *Proxy) Start() {
	p.T.Helper()
	var x struct {
		Proxy struct {
			Port    int
			HTTPURL string `json:"http_url"`
		}
	}
	startRecord(p.T, p.Cmd, &p.Errs, p.Stop, &x)
	p.URL, p.Addr = x.Proxy.HTTPURL, "127.0.0.1:"+strconv.Itoa(x.Proxy.Port)
}

// Stop has it end, and asserts that it does so well.
func (p *Proxy) Stop() {
	p.T.Helper()
	if err := Terminate(p.Cmd); err != nil {
		p.T.Errorf("bproxy ended with %v", err)
	}
}

// ProxyStatus is the status of a bproxy.
type ProxyStatus struct {
	Browser  struct{ Type string }
	Instance struct {
		ID            string
		PID, Port     int
		SupervisorPID int `json:"supervisor_pid"`
	}
	Status struct {
		State                string
		WebSockets, Launches int
		LastExit             string `json:"last_exit"`
		LastError            string `json:"last_error"`
	}
}

// Do runs a command of bproxy on it.
func (p *Proxy) Do(args ...string) (s ProxyStatus) {
	p.T.Helper()
	r := p.W.Run("bproxy", append(args, strings.TrimPrefix(p.Addr, "127.0.0.1:"))...)
	if err := json.Unmarshal([]byte(r.Out), &s); err != nil || r.Code != 0 {
		p.T.Fatalf("%v: exit %d %s", args, r.Code, r.Err)
	}
	return s
}

// Socket opens a WebSocket, or what passes for one with the fake browser.
func (p *Proxy) Socket(path string, headers ...string) (net.Conn, *http.Response) {
	p.T.Helper()
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		p.T.Fatal(err)
	}
	p.T.Cleanup(func() { c.Close() })
	head := "GET " + path + " HTTP/1.1\r\nHost: " + p.Addr + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	for _, h := range headers {
		head += h + "\r\n"
	}
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		p.T.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(Patience))
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
	if err != nil {
		p.T.Fatalf("%s: %v", path, err)
	}
	return c, resp
}

// Sessions are the names of the sessions that are there.
func (p *Proxy) Sessions() string {
	p.T.Helper()
	r := p.W.Run("bproxy", "session", "list", "-f", "session.name")
	r.Exits(p.T, 0, "")
	return strings.Join(strings.Fields(r.Out), " ")
}

// AwaitClosed waits for the other side to end a connection.
func AwaitClosed(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(Patience))
	if _, err := io.Copy(io.Discard, c); err != nil && os.IsTimeout(err) {
		t.Error("the connection stays open")
	}
}

// CheckLaunched asserts how many browsers the proxy has launched by now, that the
// last of them is the only one that runs (no client has its own), and how many
// clients it has. One that has just left may take a moment to be seen to.
func (p *Proxy) CheckLaunched(launches, clients int) (s ProxyStatus) {
	p.T.Helper()
	Until(p.T, fmt.Sprintf("%d clients", clients), func() bool {
		s = p.Do("status")
		return s.Status.WebSockets == clients
	})
	if s.Status.State != "ready" || s.Status.Launches != launches {
		p.T.Errorf("want launch %d: %+v", launches, s)
	}
	var browsers []string
	for _, o := range p.W.Processes() {
		if strings.Contains(o, "--user-data-dir") && !strings.Contains(o, "--type=") {
			browsers = append(browsers, o)
		}
	}
	if len(browsers) != 1 || !strings.HasPrefix(browsers[0], strconv.Itoa(s.Instance.PID)+" ") {
		p.T.Errorf("want only the browser %d:\n%s", s.Instance.PID, strings.Join(browsers, "\n"))
	}
	return s
}
