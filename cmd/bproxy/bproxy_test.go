//go:build linux

package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"btools/lib/cmdtest"
)

func fakeFlags(what string) []string {
	return []string{"--browser", cmdtest.Bin + "/fakebrowser", "--env", "FAKE=" + what, "--stop-timeout", "300ms"}
}

func TestProxyOnRealBrowser(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy()
	if s := p.Do("status"); s.Status.State != "stopped" || s.Status.Launches != 0 || len(w.State().Instances) != 0 {
		t.Errorf("before the first connection: %+v", s)
	}
	_, version := cmdtest.Get(t, "GET", p.URL+"/json/version")
	if !strings.Contains(version, "ws://"+p.Addr+"/devtools/browser/") {
		t.Errorf("/json/version does not show the proxy's address: %s", version)
	}
	if _, list := cmdtest.Get(t, "GET", p.URL+"/json/list"); !strings.Contains(list,
		"ws://"+p.Addr+"/devtools/page/") ||
		!strings.Contains(list, "ws="+p.Addr+"/") {
		t.Errorf("/json/list does not show the proxy's address: %s", list)
	}
	if code, _ := cmdtest.Get(t, "PUT", p.URL+"/json/new?about:blank"); code != 200 {
		t.Errorf("/json/new: %d", code)
	}
	cmdtest.Get(t, "PUT", p.URL+"/json/new?data:text/html;charset=utf-8,a;b")
	if _, list := cmdtest.Get(t, "GET", p.URL+"/json/list"); !strings.Contains(list,
		"data:text/html;charset=utf-8,a;b") {
		t.Errorf("the new page's URL is not what was asked for: %s", list)
	}
	pid := 0
	for round := 1; round <= 3; round++ {
		var conns []net.Conn
		for _, path := range []string{"/", "/devtools/browser", "/devtools/browser/",
			"/devtools/browser/a-guid-of-old?x=y"} {
			c, resp := p.Socket(path)
			if resp.StatusCode != 101 {
				t.Fatalf("a WebSocket to %s got %s, want 101", path, resp.Status)
			}
			conns = append(conns, c)
		}
		if _, resp := p.Socket("/devtools/page/none"); resp.StatusCode == 101 {
			t.Error("a page that is not there is found")
		}
		s := p.Do("status")
		if s.Status.State != "ready" || s.Status.WebSockets != 4 || s.Status.Launches != round ||
			s.Instance.PID == pid {
			t.Errorf("round %d: %+v", round, s)
		}
		pid = s.Instance.PID
		syscall.Kill(pid, syscall.SIGKILL)
		for _, c := range conns {
			cmdtest.AwaitClosed(t, c)
		}
		cmdtest.Until(t, "the status tells the end", func() bool {
			s = p.Do("status")
			return s.Status.State == "stopped" && strings.Contains(s.Status.LastExit, "signal 9")
		})
	}
	p.Stop()
	w.Clean()
	if left, _ := filepath.Glob(w.Dir + "/state/*.sock"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestProxyCommands(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Run("bproxy", "status").Exits(t, 69, "no bproxy is running (looked in "+w.Dir+"/state/state.json)")
	p := w.Proxy("--browser", "chromium")
	if s := p.Do("launch"); s.Status.State != "ready" || s.Browser.Type != "chromium" {
		t.Errorf("after launch: %+v, want a chromium that is ready", s)
	}
	c, _ := p.Socket("/")
	before := p.Do("launch").Instance.ID
	if s := p.Do("launch", "--browser", "chromium"); s.Instance.ID != before {
		t.Error("the same options replace the browser")
	}
	s := p.Do("launch", "--browser", "chrome-headless-shell", "--window-size", "300,200")
	if s.Browser.Type != "chrome-headless-shell" || s.Status.Launches != 2 {
		t.Errorf("launch --browser: %+v, want the second launch, a chrome-headless-shell", s)
	}
	cmdtest.AwaitClosed(t, c)
	args := func() string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Do("launch").Instance.PID))
		return string(b)
	}
	if s := p.Do("restart"); s.Browser.Type != "chrome-headless-shell" || s.Status.Launches != 3 ||
		!strings.Contains(args(), "--window-size=300,200") {
		t.Errorf("a restart changes the browser: %+v", s)
	}
	if s := p.Do("stop"); s.Status.State != "stopped" || len(w.State().Instances) != 0 {
		t.Errorf("after stop: %+v, %d instances; want it stopped, without an instance", s, len(w.State().Instances))
	}
	// What can't be launched takes nothing along, and is told to who asked.
	ready := p.Do("launch")
	c, _ = p.Socket("/")
	r := w.Run("bproxy", "launch", "--browser", "chromium", "--no-headless")
	r.Exits(t, 69, "there is no display")
	if s := p.Do("status"); s.Status.State != "ready" || s.Instance.ID != ready.Instance.ID ||
		s.Status.WebSockets != 1 {
		t.Errorf("after a launch that failed: %+v, want %s ready with 1 WebSocket", s, ready.Instance.ID)
	}
	c.Close()
	if said := p.Errs.String(); strings.Contains(said, "display") || strings.Count(r.Err, "there is no display") != 1 {
		t.Errorf("bproxy says:\n%s\nbproxy launch says:\n%s", said, r.Err)
	}
	p.Do("stop")
	w.Run("bproxy", "launch", "--browser", "edge").Exits(t, 69, "no edge is installed")
	w.Run("bproxy", "launch", "--browser", "netscape").Exits(t, 64, "one of chrome, edge")
	if code, _ := cmdtest.Get(t, "GET", p.URL+"/json/version"); code != 200 ||
		!strings.Contains(args(), "--window-size=300,200") {
		t.Errorf("after a launch that failed: %d", code)
	}
	q := w.Proxy()
	w.Run("bproxy", "status").Exits(t, 64, "name one of these ports")
	w.Run("bproxy", "status", "1").Exits(t, 69, "no bproxy listens on port 1 (looked in "+w.Dir+"/state/state.json)")
	w.Run("bproxy", "watch", "--port", "1").Exits(t, 69, "no bproxy listens on port 1")
	w.Run("bproxy", "status", "x").Exits(t, 64, "not a port")
	elsewhere := w.With("BTOOLS_STATE=" + w.Dir + "/other/state.json")
	port := strings.TrimPrefix(q.Addr, "127.0.0.1:")
	elsewhere.Run("bproxy", "status", port).Exits(t, 69,
		"something listens on port "+port+", but it is not listed in "+w.Dir+"/other/state.json")
	if r := w.Run("bproxy", "list", "-f", "proxy.port,status.state"); len(strings.Fields(r.Out)) != 4 {
		t.Errorf("list: %+v, want a port and a state of 2 proxies", r)
	}
	w.Run("bproxy", "--listen", q.Addr).Exits(t, 75, "is taken")
	w.Run("bproxy", "--listen", "0.0.0.0:0").Exits(t, 64, "--token-file")
	w.Run("bproxy", "--listen", "example.com:1").Exits(t, 64, "IP address")
	w.Run("bproxy", "--target", "wss://x").Exits(t, 64, "--target must be")
	w.Run("bproxy", "--window-size", "big").Exits(t, 64, "--window-size")
}

func TestProxyCommandAfterDashes(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	r := w.Pipe("in", "bproxy", append(fakeFlags(""), "--", "sh", "-c",
		`cat; echo " $BTOOLS_PORT $1 $2 $3 $BTOOLS_CDP_URL $BTOOLS_WS_URL"; bproxy list -f status.state; exit 7`, "sh",
		"{cdp_port}", "{cdp_endpoint}", "{ws_endpoint}")...)
	f := strings.Fields(r.Out)
	if r.Code != 7 || len(f) != 8 || f[0] != "in" || f[1] != f[2] || f[3] != f[5] || f[4] != f[6] || f[7] != "stopped" {
		t.Errorf("exit %d, CMD prints %q; want 7, and the same address in arguments and environment\n%s", r.Code, r.Out,
			r.Err)
	}
	r = w.Run("bproxy", append(fakeFlags(""), "--", "bproxy", "launch", "-f", "status.state")...)
	if r.Code != 0 || r.Out != "ready\n" {
		t.Errorf("bproxy launch in CMD: %+v, want ready", r)
	}
	w.Clean()
	piped := w.Run("sh", "-c", "blaunch --browser "+cmdtest.Bin+"/fakebrowser | bproxy - -- true")
	piped.Exits(t, 0, "goes on: blaunch stop inst_")
	w.Run("blaunch", "stop", "--all").Exits(t, 0, "")
	w.Run("bproxy", "--", w.Dir+"/none").Exits(t, 127, "not found")

	// CMD's user is told at once when the browser ends, not with CMD's end.
	c := w.Cmd("bproxy", append(fakeFlags(""), "--", "sh", "-c",
		`kill -9 $(bproxy launch -f instance.pid); until [ -e "$0" ]; do sleep 0.05; done`, w.Dir+"/told")...)
	var said cmdtest.SyncBuffer
	c.Stderr = &said
	cmdtest.Start(t, c)
	cmdtest.Until(t, "the browser's end is told", func() bool {
		return strings.Contains(said.String(),
			"the browser ended")
	})
	os.WriteFile(w.Dir+"/told", nil, 0o600)
	if err := c.Wait(); err != nil {
		t.Error(err)
	}

	// Of Firefox it is known before the launch what it speaks.
	w.Run("bproxy", "--browser", "firefox", "--", "true", "{cdp_endpoint}").Exits(t, 64, "WebDriver BiDi")
	r = w.Run("bproxy", "--browser", "firefox", "--", "sh", "-c",
		"echo $BTOOLS_PROTOCOL $BTOOLS_CDP_URL $BTOOLS_WS_URL $1; bproxy list -f proxy.protocol,proxy.ws_url", "sh",
		"{ws_endpoint}")
	if f = strings.Fields(r.Out); r.Code != 0 || len(f) != 5 || f[0] != "bidi" ||
		!strings.HasSuffix(f[1], "/session") ||
		f[1] != f[2] || f[3] != "bidi" || f[4] != f[1] {
		t.Errorf("CMD with a Firefox: %+v, want the protocol bidi and one address that ends in /session", r)
	}
}

// However many come first, there is one launch, and one that fails is told to
// each of them.
func TestProxyOneLaunchForMany(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy(fakeFlags("slow")...)
	many := func(want int) (bodies []string) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 100 {
			wg.Go(func() {
				code, body := cmdtest.Get(t, "GET", p.URL+"/json/version")
				mu.Lock()
				defer mu.Unlock()
				if bodies = append(bodies, body); code != want {
					t.Errorf("%d %s", code, body)
				}
			})
		}
		wg.Wait()
		return bodies
	}
	many(200)
	if s := p.Do("status"); s.Status.Launches != 1 {
		t.Errorf("%+v, want 1 launch", s)
	}
	p.Stop()
	p = w.Proxy(append(fakeFlags("hang"), "--timeout", "500ms")...)
	for _, b := range many(502) {
		if !strings.Contains(b, `"code":"try_again"`) || !strings.Contains(b, "no endpoint after 500ms") {
			t.Fatalf("the answer is %s, want try_again, as there is no endpoint after 500ms", b)
		}
	}
}

func TestProxyLaunchers(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	const silent = "sleep 1000"
	for line, want := range map[string]string{
		w.Dir + "/none":                       `"code":"unavailable"`,
		"echo I would rather not >&2; exit 1": `"message":"I would rather not"`,
		"echo garbage; sleep 1000":            "printed no record",
		`echo '{"v":1,"port":7}'; sleep 1000`: "it has no instance",
		"exit 0":                              "printed no record",
		silent:                                "printed no record within 500ms",
		"echo; yes 2>/dev/null":               "printed no record",
		`echo '{"v":1,"instance":{"port":1}}'; exec sleep 1000`: "the browser does not answer",
	} {
		timeout := cmdtest.Patience
		if line == silent {
			timeout = 500 * time.Millisecond
		}
		p := w.Proxy("--launch", line, "--timeout", timeout.String(), "--stop-timeout", "300ms")
		for range 2 { // the next one tries again
			if code, body := cmdtest.Get(t, "GET", p.URL+"/json/version"); code != 502 || !strings.Contains(body,
				want) {
				t.Errorf("%s: %d %s", line, code, body)
			}
		}
		p.Stop()
		w.Clean()
	}
	// Any command will do, a pipeline too.
	p := w.Proxy("--launch", "bfind --type chrome-headless-shell | blaunch --wait --bind-fd 3")
	if code, _ := cmdtest.Get(t, "GET", p.URL+"/json/version"); code != 200 {
		t.Error("a pipeline does not launch")
	}
	p.Cmd.Process.Kill()
	p.Cmd.Wait()
	w.Clean()
	// One that doesn't stay leaves its browser to nobody.
	p = w.Proxy("--launch", "blaunch --browser "+cmdtest.Bin+"/fakebrowser")
	cmdtest.Get(t, "GET", p.URL+"/json/version")
	cmdtest.Until(t, "the browser is stopped",
		func() bool { return strings.Contains(p.Errs.String(), "a launcher must run as long as its browser") })
	p.Stop()
	w.Clean()
}

// Who leaves while the launch is under way takes it along only if nobody else
// waits for it.
func TestProxyClientLeaves(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy(append(fakeFlags("hang"), "--timeout", "60s")...)
	send := func() net.Conn {
		c, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /json/version HTTP/1.1\r\nHost: %s\r\n\r\n", p.Addr)
		return c
	}
	c := send()
	cmdtest.Until(t, "the launch is under way", func() bool {
		return p.Do("status").Status.State == "launching" &&
			len(w.State().Instances) > 0
	})
	c.Close()
	cmdtest.Until(t, "the launch is cancelled", func() bool {
		return p.Do("status").Status.State == "stopped" &&
			len(w.State().Instances) == 0
	})
	p.Stop()

	p = w.Proxy(fakeFlags("slow")...)
	c, d := send(), send()
	cmdtest.Until(t, "the launch is under way", func() bool { return len(w.State().Instances) > 0 })
	c.Close()
	if resp, err := http.ReadResponse(bufio.NewReader(d), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("the other one gets %v, %v", resp, err)
	}
	if s := p.Do("status"); s.Status.Launches != 1 {
		t.Errorf("%+v, want 1 launch", s)
	}
}

func TestProxyBrowserKilled(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy(fakeFlags("")...)
	t.Run("again and again", func(t *testing.T) {
		for i := range map[bool]int{false: 15, true: 50}[cmdtest.IsLong] {
			if code, body := cmdtest.Get(t, "GET", p.URL+"/json/version"); code != 200 {
				t.Fatalf("%d: %d %s", i, code, body)
			}
			syscall.Kill(p.Do("status").Instance.PID, syscall.SIGKILL)
		}
	})
	t.Run("during a message", func(t *testing.T) {
		c, _ := p.Socket("/")
		go c.Write(make([]byte, 64<<20))
		io.ReadFull(c, make([]byte, 1<<20))
		syscall.Kill(p.Do("status").Instance.PID, syscall.SIGKILL)
		cmdtest.AwaitClosed(t, c)
	})
	t.Run("during a launch", func(t *testing.T) {
		q := w.Proxy(fakeFlags("hang")...)
		go func() {
			cmdtest.Until(t, "it is started", func() bool {
				for _, i := range w.State().Instances {
					b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", i.Browser.PID))
					if i.Browser.PID != 0 && strings.Contains(string(b), "FAKE=hang") {
						return syscall.Kill(i.Browser.PID, syscall.SIGKILL) == nil
					}
				}
				return false
			})
		}()
		if code, body := cmdtest.Get(t, "GET", q.URL+"/json/version"); code != 502 || !strings.Contains(body,
			"signal 9") {
			t.Errorf("%d %s", code, body)
		}
	})
}

func TestProxyDeath(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy()
	c, _ := p.Socket("/")
	open, _ := net.Dial("tcp", p.Addr)
	p.Stop()
	cmdtest.AwaitClosed(t, c)
	cmdtest.AwaitClosed(t, open)
	w.Clean()

	for _, launching := range []bool{false, true} {
		p = w.Proxy("--timeout", "60s")
		if launching {
			open, _ := net.Dial("tcp", p.Addr)
			defer open.Close() // not before: without a client, the launch is cancelled
			fmt.Fprintf(open, "GET /json/version HTTP/1.1\r\nHost: %s\r\n\r\n", p.Addr)
			cmdtest.Until(t, "the launch is under way", func() bool { return len(w.State().Instances) > 0 })
		} else {
			c, _ = p.Socket("/")
		}
		p.Cmd.Process.Kill()
		p.Cmd.Wait()
		if !launching {
			cmdtest.AwaitClosed(t, c)
		}
		w.Clean()
		w.Run("bproxy", "list").Exits(t, 0, "")
	}
	// What the killed ones left is swept by who comes next.
	p = w.Proxy()
	if left, _ := filepath.Glob(w.Dir + "/state/*.sock"); len(left) != 1 {
		t.Errorf("left: %v", left)
	}

	// Its own end is that of the shell, and of a descriptor.
	r := w.Run("sh", "-c",
		"bproxy --eager --bind-pid $$ >/dev/null 2>&1 & until bproxy list -f status.state | grep -q ready; do :; done")
	r.Exits(t, 0, "")
	p.Stop()
	w.Clean()
}

// A browser that hangs is replaced, and who waits for its answer gets that of
// the next one. One that is somebody else's is left alone.
func TestProxyBrowserHangs(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy("--browser", "chrome-headless-shell", "--health-interval", "200ms", "--health-timeout", "300ms",
		"--stop-timeout", "300ms")
	pid := p.Do("launch").Instance.PID
	c, _ := p.Socket("/")
	syscall.Kill(pid, syscall.SIGSTOP)
	if code, body := cmdtest.Get(t, "GET", p.URL+"/json/version"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	cmdtest.AwaitClosed(t, c)
	if s := p.Do("status"); s.Instance.PID == pid || !strings.Contains(s.Status.LastExit, "did not answer") {
		t.Errorf("%+v, want another browser than pid %d, which did not answer", s, pid)
	}

	x := cmdtest.Parse(t, w.Run("blaunch", "--browser", "chrome-headless-shell"))
	q := w.Proxy("--target", x.Instance.HTTPURL, "--health-interval", "200ms", "--health-timeout", "300ms")
	state := func(want string) func() bool { return func() bool { return q.Do("status").Status.State == want } }
	cmdtest.Get(t, "GET", q.URL+"/json/version")
	syscall.Kill(x.Instance.PID, syscall.SIGSTOP)
	cmdtest.Until(t, "the status tells it", state("unresponsive"))
	syscall.Kill(x.Instance.PID, syscall.SIGCONT)
	cmdtest.Until(t, "it is well again", state("foreign"))
	w.Run("bproxy", "--health-interval", "1ms").Exits(t, 64, "--health-interval")
}

// A proxy that is stopped keeps nobody waiting who asks how it is.
func TestProxyIsStopped(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy(fakeFlags("")...)
	p.Cmd.Process.Signal(syscall.SIGSTOP)
	defer p.Cmd.Process.Signal(syscall.SIGCONT)
	var wg sync.WaitGroup
	for _, c := range []string{"status", "restart"} {
		wg.Go(func() { w.Run("bproxy", c).Exits(t, 75, "suspended") })
	}
	wg.Wait()
}

func TestProxyStateIsLost(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy(fakeFlags("")...)
	os.RemoveAll(w.Dir + "/state")
	if code, _ := cmdtest.Get(t, "GET", p.URL+"/json/version"); code != 200 {
		t.Fatalf("/json/version: %d, want 200", code)
	}
	cmdtest.Until(t, "the proxy is listed again",
		func() bool { return w.Run("bproxy", "list", "-f", "status.state").Out == "ready\n" })
	p.Do("stop")
}

func TestProxyBadClients(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy(append(fakeFlags(""), "--max-connections", "20")...)
	dial := func(text string) net.Conn {
		c, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, text)
		return c
	}
	answer := func(c net.Conn) string {
		defer c.Close()
		c.SetReadDeadline(time.Now().Add(cmdtest.Patience))
		b, _ := io.ReadAll(c)
		return string(b)
	}
	slow := dial("GET /json/version HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ") // and never more
	silent := dial("")
	one := "GET /json/version HTTP/1.1\r\nHost: 127.0.0.1:1\r\n"
	t.Run("a request that cannot be taken is refused and launches nothing", func(t *testing.T) {
		for text, want := range map[string]string{
			"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n": "400 Bad Request",
			"what?\r\n\r\n": "400 Bad Request",
			"GET /json/version HTTP/1.1\r\nX: " + strings.Repeat("x", 100<<10):        "431 ",
			"GET /json/version HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n":                "400 ",
			"GET /json/version HTTP/1.1\r\nHost: evil.example\r\n\r\n":                "403 ",
			"GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n":                              "404 ",
			"POST /json/new HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n": "413 ",
		} {
			if got := answer(dial(text)); !strings.Contains(got, want) {
				t.Errorf("%.50q got %q, want %q", text, got, want)
			}
		}
		half := dial("GET /json")
		half.(*net.TCPConn).CloseWrite()
		answer(half)
		if s := p.Do("status"); s.Status.Launches != 0 || s.Status.State != "stopped" {
			t.Errorf("bad requests have launched a browser: %+v", s)
		}
	})
	t.Run("pipelined requests are answered one after the other, an upgrade last", func(t *testing.T) {
		c := dial(one + "\r\n" + one + "\r\n" + one + "Connection: close\r\n\r\n")
		if got := answer(c); strings.Count(got, "200 OK") != 3 || !strings.Contains(got, "ws://127.0.0.1:1/") {
			t.Errorf("three pipelined requests got\n%s\nwant three times 200 OK and the address that was asked for",
				got)
		}
		const rest = "and what comes with it"
		c = dial(one + "\r\nGET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n" +
			"Upgrade: websocket\r\n\r\n" + rest)
		c.SetReadDeadline(time.Now().Add(cmdtest.Patience))
		in := bufio.NewReader(c)
		for _, want := range []int{200, 101} {
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != want {
				t.Fatalf("%+v, %v, want %d", resp, err, want)
			}
			io.Copy(io.Discard, resp.Body)
		}
		b := make([]byte, len(rest))
		if _, err := io.ReadFull(in, b); err != nil || string(b) != rest {
			t.Fatalf("behind the upgrade came %q, %v, want %q", b, err, rest)
		}
	})
	t.Run("a client that has sent all still gets its answers", func(t *testing.T) {
		c, _ := p.Socket("/")
		io.WriteString(c, "echo")
		c.(*net.TCPConn).CloseWrite()
		if got := answer(c); got != "echo" {
			t.Errorf("a client that has sent all got %q, want echo", got)
		}
	})
	t.Run("one connection too many is refused until there is room again", func(t *testing.T) {
		var held []net.Conn
		cmdtest.Until(t, "the limit is met", func() bool {
			c, resp := p.Socket("/")
			held = append(held, c)
			return resp.StatusCode == 503
		})
		if len(held) > 21 {
			t.Errorf("%d connections are served, want at most 20", len(held)-1)
		}
		for _, c := range held {
			c.Close()
		}
		cmdtest.Until(t, "there is room again", func() bool {
			return strings.HasPrefix(answer(dial(one+"Connection: close\r\n\r\n")), "HTTP/1.1 200")
		})
	})
	t.Run("silent connections make room", func(t *testing.T) {
		for range 30 {
			dial("")
		}
		if got := answer(dial(one + "Connection: close\r\n\r\n")); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("beside 30 silent connections a request got %q, want 200", got)
		}
	})
	cmdtest.AwaitClosed(t, slow)
	cmdtest.AwaitClosed(t, silent)
	p.Stop()
	w.Clean()
}

// A web page that knows the port can't have a browser started, whatever it
// tries.
func TestProxyAgainstWebPage(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy(fakeFlags("")...)
	tried := make(chan string, 1)
	site := cmdtest.Serve(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tried" {
			select {
			case tried <- r.URL.RawQuery:
			default:
			}
			return
		}
		fmt.Fprintf(rw, `<title>x</title><script>
const port = %q, got = []
const tries = ['127.0.0.1', 'localhost', '0.0.0.0', '[::ffff:127.0.0.1]'].flatMap(host => {
const at = host + ':' + port
return [
	fetch('http://' + at + '/json/version').then(() => got.push('fetch'), () => 0),
	fetch('http://' + at + '/json/version', { mode: 'no-cors' }).then(() => 0, () => 0),
	fetch('http://' + at + '/json/new', { method: 'PUT' }).then(() => got.push('put'), () => 0),
	...['/json/version', '/json/list'].map(u => new Promise(r => {
		const i = new Image(); i.onload = i.onerror = r; i.src = 'http://' + at + u
	})),
	...['script', 'iframe'].map(n => new Promise(r => {
		const e = document.createElement(n); e.onload = e.onerror = r
		e.src = 'http://' + at + '/json/version'; document.head.append(e)
	})),
	...['/', '/devtools/browser', '/session'].map(u => new Promise(r => {
		const s = new WebSocket('ws://' + at + u); s.onopen = () => { got.push(u); r() }; s.onerror = r
	})),
]})
Promise.all(tries).then(() => fetch('/tried?' + got))
</script>`, strings.TrimPrefix(p.Addr, "127.0.0.1:"))
	})
	w.Run("blaunch", "--url", site).Exits(t, 0, "")
	select {
	case got := <-tried:
		if got != "" {
			t.Errorf("the page got %s", got)
		}
	case <-time.After(cmdtest.Patience):
		t.Fatal("the page did not try")
	}
	if s := p.Do("status"); s.Status.Launches != 0 || s.Status.State != "stopped" {
		t.Errorf("the page has launched a browser: %+v", s)
	}
	// Unless it is allowed to.
	q := w.Proxy("--allow-origin", site)
	if _, resp := q.Socket("/", "Origin: "+site); resp.StatusCode != 101 {
		t.Errorf("a page that is allowed got %s, want 101", resp.Status)
	}
	if _, resp := q.Socket("/", "Origin: http://evil.example"); resp.StatusCode != 403 {
		t.Errorf("another page got %s, want 403", resp.Status)
	}
}

func TestProxyToken(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	os.WriteFile(w.Dir+"/token", []byte("abc123\n"), 0o600)
	os.WriteFile(w.Dir+"/empty", nil, 0o600)
	w.Run("bproxy", "--token-file", w.Dir+"/none").Exits(t, 78, "cannot read the token")
	w.Run("bproxy", "--token-file", w.Dir+"/empty").Exits(t, 78, "has no token")
	p := w.Proxy("--listen", "0.0.0.0:0", "--token-file", w.Dir+"/token")
	if code, body := cmdtest.Get(t, "GET", p.URL+"/json/version"); code != 401 || !strings.Contains(body,
		"unauthorized") {
		t.Errorf("without a token: %d %s, want 401 unauthorized", code, body)
	}
	if code, body := cmdtest.Get(t, "GET", p.URL+"/json/version?token=abc123"); code != 200 {
		t.Errorf("with the token in the address: %d %s, want 200", code, body)
	}
	if _, resp := p.Socket("/", "Authorization: Bearer abc123", "Host: x"); resp.StatusCode != 400 {
		t.Errorf("two hosts: %s", resp.Status)
	}
	if _, resp := p.Socket("/?token=abc123"); resp.StatusCode != 101 {
		t.Errorf("a WebSocket with the token got %s, want 101", resp.Status)
	}
	if _, resp := p.Socket("/", "Authorization: Bearer wrong"); resp.StatusCode != 401 {
		t.Errorf("a WebSocket with another token got %s, want 401", resp.Status)
	}
	// With a token a name will do as well, and is what the answers show.
	if _, b := cmdtest.Get(t, "GET", p.URL+"/json/version", "Host: farm.example:99",
		"Authorization: Bearer abc123"); !strings.Contains(b, "ws://farm.example:99/devtools/browser/") {
		t.Errorf("the answer is %s, want the name that was asked, farm.example:99", b)
	}
}

func TestProxyIdleAndEager(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy(append(fakeFlags(""), "--eager", "--idle", "500ms", "--idle-by", "connections")...)
	cmdtest.Until(t, "the browser is launched", func() bool { return p.Do("status").Status.Launches == 1 })
	cmdtest.Until(t, "it is stopped", func() bool { return p.Do("status").Status.State == "stopped" })
	c, _ := p.Socket("/")
	cmdtest.Get(t, "GET", p.URL+"/json/version") // whose connection stays open
	began := time.Now()
	c.SetReadDeadline(began.Add(time.Second))
	if _, err := c.Read(make([]byte, 1)); !os.IsTimeout(err) {
		t.Errorf("in use, the browser was stopped: %v", err)
	}
	c.Close()
	cmdtest.Until(t, "it is stopped again", func() bool { return p.Do("status").Status.State == "stopped" })
	if s := p.Do("status"); s.Status.Launches != 2 {
		t.Errorf("%+v, want 2 launches", s)
	}
	w.Run("bproxy", "--no-input", "--idle-by", "use").Exits(t, 64, "traffic or connections")
}

// A client that is connected and silent does not keep the browser, one that
// sends something does.
func TestProxyIdleByTraffic(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	const idle = 2 * time.Second
	p := w.Proxy(append(fakeFlags(""), "--idle", idle.String())...)
	silent, _ := p.Socket("/")
	busy, _ := p.Socket("/")
	for end := time.Now().Add(2 * idle); time.Now().Before(end); time.Sleep(idle / 20) {
		busy.Write([]byte("x")) // what is tested is that nothing happens meanwhile
	}
	if s := p.Do("status"); s.Status.State != "ready" || s.Status.WebSockets != 2 {
		t.Fatalf("in use, the browser was stopped: %+v", s)
	}
	for _, c := range []net.Conn{silent, busy} {
		c.SetReadDeadline(time.Now().Add(cmdtest.Patience))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("a silent client is still connected: %v", err)
		}
	}
	cmdtest.Until(t, "the browser is stopped", func() bool { return p.Do("status").Status.State == "stopped" })
	if s := p.Do("status"); s.Status.LastExit != "nobody used it" {
		t.Errorf("%+v, want the last exit: nobody used it", s)
	}
	p.Socket("/")
	if s := p.Do("status"); s.Status.State != "ready" || s.Status.Launches != 2 {
		t.Errorf("the next connection has launched no other browser: %+v", s)
	}
}

func TestProxyTargets(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	x := cmdtest.Parse(t, w.Run("blaunch"))
	browser := fmt.Sprintf("127.0.0.1:%d", x.Instance.Port)
	for _, args := range [][]string{{"--target", x.Instance.HTTPURL}, {"--target", x.Instance.WSURL}, nil} {
		p := &cmdtest.Proxy{T: t, W: w, Cmd: w.Cmd("bproxy", append(args, "--trace", w.Dir+"/trace")...)}
		if args == nil {
			p.Cmd.Stdin = strings.NewReader(w.Run("blaunch", "list").Out)
			r, in, _ := os.Pipe()
			io.WriteString(in, w.Run("blaunch", "list").Out)
			in.Close()
			p.Cmd.Stdin = r
		}
		p.Start()
		if _, v := cmdtest.Get(t, "GET", p.URL+"/json/version"); !strings.Contains(v, "ws://"+p.Addr+"/") {
			t.Errorf("%v: %s, want the proxy's own address %s", args, v, p.Addr)
		}
		c, resp := p.Socket("/")
		if resp.StatusCode != 101 {
			t.Errorf("%v: a WebSocket got %s, want 101", args, resp.Status)
		}
		c.Write(append([]byte{0x81, 0x80 | 38, 0, 0, 0, 0}, `{"id":1,"method":"Browser.getVersion"}`...))
		c.Read(make([]byte, 100))
		c.Close()
		w.Run("bproxy", "stop").Exits(t, 64, "does not own its browser")
		w.Run("bproxy", "launch").Exits(t, 64, "does not own its browser")
		p.Stop()
	}
	if b, _ := os.ReadFile(w.Dir + "/trace"); strings.Count(string(b),
		`"direction":"to_browser","message":{"id":1,"method":"Browser.getVersion"}}`) != 3 ||
		strings.Count(string(b), `"direction":"to_client","message":{"id":1,"result":{`) != 3 {
		t.Errorf("trace:\n%s", b)
	}
	p := w.Proxy("--target", x.Instance.HTTPURL, "--direct")
	if _, v := cmdtest.Get(t, "GET", p.URL+"/json/version"); !strings.Contains(v, "ws://"+browser+"/") {
		t.Errorf("with --direct: %s, want the browser's address %s", v, browser)
	}
	w.Run("blaunch", "stop", "--all")
	if code, _ := cmdtest.Get(t, "GET", p.URL+"/json/version"); code != 502 {
		t.Errorf("status %d, want 502", code)
	}
	w.Run("bproxy", "--target", x.Instance.HTTPURL, "--idle", "1s").Exits(t, 64,
		"--idle applies to a browser that bproxy launches")
}

// What systemd does: it listens, starts the service, and hears that it is
// ready.
func TestProxySystemd(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, _ := l.(*net.TCPListener).File()
	defer f.Close()
	defer l.Close()
	socket, told := w.NotifySocket()
	p := &cmdtest.Proxy{T: t, W: w, Cmd: w.Cmd("sh",
		append([]string{"-c", `export LISTEN_PID=$$ LISTEN_FDS=1 NOTIFY_SOCKET="$0"; exec bproxy "$@"`,
			socket}, fakeFlags("")...)...)}
	p.Cmd.ExtraFiles = []*os.File{f}
	p.Start()
	told("READY=1")
	if p.Addr != l.Addr().String() {
		t.Errorf("listens on %s", p.Addr)
	}
	if code, _ := cmdtest.Get(t, "GET", p.URL+"/json/version"); code != 200 {
		t.Errorf("status %d, want 200", code)
	}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.Do("status").Instance.PID))
	if strings.Contains(string(b), "LISTEN_") || strings.Contains(string(b), "NOTIFY_") {
		t.Error("the browser is told of systemd")
	}
	p.Stop()
	told("STOPPING=1")
}

// Launches that nobody waits for any more are not made up for later.
func TestProxyCancelledLaunches(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	count := w.Dir + "/count"
	p := w.Proxy("--launch", `trap "" TERM; echo x >>`+count+`; while :; do sleep 0.1; done`, "--stop-timeout", "0s",
		"--timeout", "60s")
	const clients = 5
	for range clients {
		c, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /json/version HTTP/1.1\r\nHost: %s\r\n\r\n", p.Addr)
		cmdtest.Until(t, "a launch is under way", func() bool {
			b, _ := os.ReadFile(count)
			return len(b) > 0 && p.Do("status").Status.State == "launching"
		})
		c.Close()
		cmdtest.Until(t, "nobody waits for it", func() bool { return p.Do("status").Status.State != "launching" })
	}
	cmdtest.Until(t, "nothing of them is left", func() bool { return p.Do("status").Status.State == "stopped" })
	p.Stop()
	// One, and on a slow machine another one, whose client waited until the first was gone.
	if b, _ := os.ReadFile(count); len(b)/2 >= clients {
		t.Errorf("launched %d times", len(b)/2)
	}
	w.Clean()
}

// What a launcher leaves in its process group goes with it.
func TestProxyLauncherLeaves(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for _, line := range []string{
		`sh -c 'trap "" TERM; sleep 977 & while :; do sleep 1; done' >/dev/null 2>&1 & ` +
			`echo '{"v":1,"instance":{"port":1}}'; wait`,
		`sleep 977 & echo '{"v":1,"instance":{"port":1}}'; sleep 0.1`,
	} {
		p := w.Proxy("--launch", line, "--stop-timeout", "0s")
		p.Do("launch")
		p.Do("stop")
		p.Stop()
		w.Clean()
	}
}

// It ends when it is told to, though somebody holds the state's lock and
// nobody reads its trace.
func TestProxyStopsRegardless(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	fifo := w.Dir + "/fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	unread, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	p := w.Proxy(append(fakeFlags(""), "--trace", fifo)...)
	c, _ := p.Socket("/")
	go func() {
		message := clientFrame(0x81, `"a message"`)
		for range 2000 {
			if _, err := c.Write(message); err != nil {
				return
			}
		}
	}()
	cmdtest.Until(t, "the trace is stuck", func() bool {
		n, _ := unix.IoctlGetInt(int(unread.Fd()), unix.TIOCINQ)
		return n > 60000
	})
	lock, err := os.OpenFile(w.Dir+"/state/state.lock", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	p.Do("stop")
	syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	began := time.Now()
	p.Stop()
	if took := time.Since(began); took > cmdtest.Patience {
		t.Errorf("it took %v", took)
	}
	syscall.Flock(int(lock.Fd()), syscall.LOCK_UN)
}

// A Firefox outlives the leases under which a client has left its session
// open.
func TestFirefoxOutlivesLeases(t *testing.T) {
	// Not beside other browsers: Chrome has itself a higher priority than Firefox has.
	w := cmdtest.New(t)
	p := w.Pool("BROWSER=firefox", "TIMEOUT=60000", "HEALTH_INTERVAL=20s", "_F_INSTANCES=1", "_F_IS_DEFAULT=1")
	pid := 0
	for round := range 3 {
		l := p.Lease()
		q := &cmdtest.Proxy{T: t, W: w, Addr: strings.TrimPrefix(l.Instance.HTTPURL, "http://")}
		c, resp := q.Socket("/session")
		if resp.StatusCode != 101 {
			t.Fatalf("a WebSocket got %s, want 101", resp.Status)
		}
		c.Write(clientFrame(0x81, `{"id":1,"method":"session.new","params":{"capabilities":{}}}`))
		b := make([]byte, 4096)
		if n, err := c.Read(b); !strings.Contains(string(b[:n]), `"sessionId"`) {
			t.Errorf("round %d: %q, %v", round, b[:n], err)
		}
		w.Run("bpool", "release", l.Lease.ID).Exits(t, 0, "")
		cmdtest.AwaitClosed(t, c)
		i := p.Status().Pools[0].Instances[0]
		if pid == 0 {
			pid = i.PID
		}
		if i.PID == 0 || i.PID != pid || i.Restarts != 0 {
			t.Errorf("round %d: %+v, and the first had pid %d", round, i, pid)
		}
	}
}

// clientFrame is a frame as a client sends it, with at most 125 bytes.
func clientFrame(first byte, text string) []byte {
	b := []byte{first, 0x80 | byte(len(text)), 1, 2, 3, 4}
	for i := range len(text) {
		b = append(b, text[i]^byte(i&3+1))
	}
	return b
}

// A client of Firefox that breaks the protocol, or leaves in the middle of a
// message, locks nobody out.
func TestProxyBadBiDiClients(t *testing.T) {
	// Not beside other browsers: Chrome has itself a higher priority than Firefox has.
	w := cmdtest.New(t)
	p := w.Proxy("--browser", "firefox", "--timeout", "60s", "--health-interval", "500ms", "--health-timeout", "20s")
	frame := clientFrame
	all := [][]byte{
		frame(0x01, `{"id":2,`), // a fragment, and no more
		{0x81, 0x02, 'h', 'i'},  // not masked
		frame(0x83, "reserved"),
		frame(0x81, "\xff\xfe"),     // not UTF-8
		frame(0x81, `{"id":2,`)[:9], // half a frame
	}
	if !cmdtest.IsLong { // each costs a session of Firefox
		all = all[:2]
	}
	for _, bad := range all {
		c, resp := p.Socket("/session")
		if resp.StatusCode != 101 {
			t.Fatalf("a WebSocket got %s, want 101", resp.Status)
		}
		c.Write(frame(0x81, `{"id":1,"method":"session.new","params":{"capabilities":{}}}`))
		b := make([]byte, 4096)
		c.SetReadDeadline(time.Now().Add(cmdtest.Patience)) // Firefox may have just started
		n, err := c.Read(b)
		if !strings.Contains(string(b[:n]), `"sessionId"`) {
			t.Errorf("before % x: %q, %v", bad, b[:n], err)
		}
		c.Write(bad)
		c.Close()
		cmdtest.Until(t, "the session is over", func() bool { return p.Do("status").Status.WebSockets == 0 })
	}
}

// The browser of a proxy says whose it is, and who stopped it is told.
func TestProxyOwnsItsBrowser(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy("--eager", "--browser", cmdtest.Bin+"/fakebrowser")
	cmdtest.Until(t, "it has a browser", func() bool {
		_, port, _ := net.SplitHostPort(p.Addr)
		return w.Run("blaunch", "list", "-f", "instance.owner").Out == "bproxy :"+port+"\n"
	})
	w.Run("blaunch", "stop", "--all").Exits(t, 0, "left running for their owners: 1")
	w.Run("blaunch", "stop", "--all", "--force").Exits(t, 0, "")
	cmdtest.Until(t, "the proxy tells it", func() bool {
		return strings.Contains(p.Errs.String(), "it was stopped by blaunch stop or a signal")
	})
}
