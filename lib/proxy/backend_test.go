package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"btools/lib/fleet/supply"
	"btools/lib/launch/options"
	"btools/lib/record"
	"btools/lib/sibling"
)

// probe is a log that requests the status at every message.
type probe struct {
	slog.Handler
	proxy *Proxy
}

func (h probe) Handle(context.Context, slog.Record) error {
	h.proxy.Status()
	return nil
}

// A log may block, so nothing is logged under the lock.
func TestLogsWithoutLock(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	fail := make(chan bool, 10)
	p := &Proxy{}
	p.Spec.Idle.Timeout = time.Millisecond
	p.Launch = func(context.Context, options.Options, string) (*sibling.Browser, error) {
		if <-fail {
			return nil, errors.New("no such browser")
		}
		return e.browser(t, record.CDP), nil
	}
	p.Log = slog.New(probe{slog.NewTextHandler(io.Discard, nil), p})
	addr := serve(t, p)
	fail <- true
	if code, body := send(t, addr, "/json/version"); code != 502 || !strings.Contains(body, "no such browser") {
		t.Errorf("%d %s", code, body)
	}
	fail <- false
	if code, body := send(t, addr, "/json/version"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	until(t, "the idle browser is stopped", func() bool { s, _ := p.Status(); return s.State != Ready })
}

// send requests a path of the proxy and returns the status and the body.
func send(t testing.TB, addr, path string) (int, string) {
	t.Helper()
	c := http.Client{Timeout: patience}
	r, err := c.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(b)
}

// A request that waits for a browser when all connections are closed does not
// get a later one, which may belong to another user by then.
func TestCutWhileWaiting(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	launched := make(chan struct{})
	p := &Proxy{}
	p.Launch = func(ctx context.Context, _ options.Options, _ string) (*sibling.Browser, error) {
		select {
		case <-launched:
			return e.browser(t, record.CDP), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	addr := serve(t, p)
	go p.Relaunch(t.Context(), options.Options{}, false) // somebody waits for it all the time
	_, socket := upgrade(t, addr, "/")
	plain := make(chan int, 1)
	go func() {
		code, _ := send(t, addr, "/json/version")
		plain <- code
	}()
	users := func() int {
		c := p.Runner.Status().Current
		if c == nil {
			return 0
		}
		return c.Users()
	}
	until(t, "all wait", func() bool { return users() == 3 })
	p.CloseWebSockets()
	if got := status(t, socket); got != 502 {
		t.Errorf("the WebSocket: %d", got)
	}
	if got := <-plain; got != 502 {
		t.Errorf("the request: %d", got)
	}
	_, next := upgrade(t, addr, "/")
	until(t, "the next one waits", func() bool { return users() == 2 })
	close(launched)
	if got := status(t, next); got != 101 {
		t.Errorf("the next one: %d", got)
	}
	if s, _ := p.Status(); s.Launches != 1 || s.WebSockets != 1 {
		t.Errorf("%+v", s)
	}
	p.CloseWebSockets()
	isClosed(t, next)
}

// A request waits for a browser that does not answer completely no longer than
// the bound, whatever the request is.
func TestBrowserWithoutAnswer(t *testing.T) {
	t.Parallel()
	const bound = 100 * time.Millisecond
	accepting := func(answer string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { c.Close() })
				io.WriteString(c, answer)
			}
		}()
		return l.Addr().String()
	}
	for name, answer := range map[string]string{
		"silent":           "",
		"half a head":      "HTTP/1.1 200 OK\r\nContent-Le",
		"half a body":      "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
		"half a long body": "HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			r := record.New()
			// the address of its WebSocket must be requested
			r.MustSet("instance", map[string]string{"http_url": "http://" + accepting(answer)})
			b, err := sibling.Foreign(r)
			if err != nil {
				t.Fatal(err)
			}
			p := foreign(b)
			p.answerTimeout = bound
			addr := serve(t, p)
			for _, host := range []string{"127.0.0.1", "localhost"} { // the second's answer is rewritten
				c := dial(t, addr)
				io.WriteString(c, "GET /json/version HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
				isClosed(t, c)
			}
			_, in := upgrade(t, addr, "/")
			if got := status(t, in); got != 502 {
				t.Errorf("the WebSocket: %d", got)
			}
		})
	}
}

// replacing is a proxy that reports its launches, which wait for an answer.
type replacing struct {
	*Proxy
	addr     string
	launched chan options.Options
	answers  chan error
}

func newReplacing(t *testing.T) *replacing {
	e := newEndpoint(t)
	r := &replacing{launched: make(chan options.Options), answers: make(chan error)}
	r.Proxy = &Proxy{Runner: supply.Runner{Overlap: true}}
	r.Launch = func(ctx context.Context, o options.Options, _ string) (*sibling.Browser, error) {
		select {
		case r.launched <- o:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case err := <-r.answers:
			return e.browser(t, record.CDP), err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r.addr = serve(t, r.Proxy)
	return r
}

// relaunch requests other options; the channel that it returns gets the result.
func (r *replacing) relaunch(o options.Options) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.Relaunch(context.Background(), o, false) }()
	return done
}

// alive reports whether a WebSocket still carries messages.
func alive(t *testing.T, c net.Conn, in *bufio.Reader) bool {
	t.Helper()
	io.WriteString(c, "x")
	_, err := in.ReadByte()
	return err == nil
}

// A browser that is being replaced serves until the new one is ready. If that
// cannot be launched, it keeps serving.
func TestReplaceBeside(t *testing.T) {
	t.Parallel()
	r := newReplacing(t)
	first := r.relaunch(options.Options{})
	<-r.launched
	r.answers <- nil
	<-first
	c, in := upgrade(t, r.addr, "/")
	status(t, in)

	bad := r.relaunch(options.Options{WindowSize: "1,1"})
	<-r.launched
	if s, _ := r.Status(); s.State != Ready || !alive(t, c, in) {
		t.Errorf("while the other one is launched: %+v", s)
	}
	r.answers <- errors.New("no display")
	if err := <-bad; err == nil || err.Error() != "no display" {
		t.Error(err)
	}
	if s, _ := r.Status(); s.State != Ready || s.Options.WindowSize != "" || s.LastError != "no display" ||
		!alive(t, c, in) {
		t.Errorf("after a failure: %+v", s)
	}

	// A request for other options meanwhile gets them.
	one := r.relaunch(options.Options{WindowSize: "2,2"})
	<-r.launched
	two := r.relaunch(options.Options{WindowSize: "3,3"})
	if o := <-r.launched; o.WindowSize != "3,3" {
		t.Errorf("%+v", o)
	}
	if err := <-one; err == nil {
		t.Error("a launch that was replaced succeeds")
	}
	three := r.relaunch(options.Options{WindowSize: "3,3"})
	r.answers <- nil
	if err := errors.Join(<-two, <-three); err != nil {
		t.Error(err)
	}
	isClosed(t, in)
	if s, _ := r.Status(); s.State != Ready || s.Options.WindowSize != "3,3" || s.Launches != 2 {
		t.Errorf("%+v", s)
	}
}

// Two browsers never use the same profile at the same time.
func TestReplaceWithProfile(t *testing.T) {
	t.Parallel()
	r := newReplacing(t)
	first := r.relaunch(options.Options{Profile: "/a"})
	<-r.launched
	r.answers <- nil
	<-first
	_, in := upgrade(t, r.addr, "/")
	status(t, in)
	next := r.relaunch(options.Options{WindowSize: "1,1"})
	isClosed(t, in) // before anything is launched
	<-r.launched
	r.answers <- errors.New("no display")
	if err := <-next; err == nil {
		t.Error("it succeeds")
	}
	if s, _ := r.Status(); s.State != Stopped || s.Options.WindowSize != "" {
		t.Errorf("%+v", s)
	}
}
