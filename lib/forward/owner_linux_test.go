package forward

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"btools/lib/forward/proxytest"
	"btools/lib/forward/upstream"
)

func TestOnlyTheBrowser(t *testing.T) {
	server := httptest.NewServer(echo)
	defer server.Close()
	p := proxytest.HTTP(t, server.Listener.Addr().String())
	u, err := upstream.Parse("http://" + proxytest.Credentials + p.At)
	if err != nil {
		t.Fatal(err)
	}
	// The browser is a shell with a child that connects, as Chrome's network
	// service is below Chrome.
	sleeper := exec.Command("sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer sleeper.Wait()
	defer sleeper.Process.Kill()
	browser := sleeper.Process.Pid
	log := &lines{}
	f, err := Listen(Options{Upstream: u, Browser: func(context.Context) (int, error) { return browser, nil },
		Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at, _ := url.Parse(f.URL())
	c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at), DisableKeepAlives: true}}
	status, _, err := get(c, "http://name.test/")
	if status != 403 || !strings.Contains(log.String(), "not the browser's") {
		t.Errorf("a process that is not the browser's: %d %v\n%s", status, err, log)
	}
	if len(p.Targets()) > 0 {
		t.Error("its request has reached the proxy")
	}
	f.owner.mu.Lock()
	f.owner.pid = os.Getpid()
	f.owner.mu.Unlock()
	if status, _, err := get(c, "http://name.test/"); status != 200 {
		t.Errorf("the browser itself: %d %v", status, err)
	}
	out, err := exec.Command("curl", "-sS", "-x", f.URL(), "http://name.test/child").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "name.test /child") {
		t.Errorf("a child of the browser: %s (%v)", out, err)
	}
}

func BenchmarkOwner(b *testing.B) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	o := &owner{browser: func(context.Context) (int, error) { return os.Getpid(), nil }}
	for b.Loop() {
		if err := o.check(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
}
