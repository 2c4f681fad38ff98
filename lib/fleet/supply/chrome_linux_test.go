package supply

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"btools/lib/exit"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/virtual"
	"btools/lib/virtual/chrometest"
	"btools/lib/websocket"
)

// patience is how long a test waits before it says that something hangs: a busy
// machine is slow.
const patience = time.Minute

// begin launches a browser, and ends it with the test.
func begin(t *testing.T, s Spec, b *sibling.Browser) *Chrome {
	t.Helper()
	s.Log = slog.New(slog.DiscardHandler)
	s.Launch = func(context.Context) (*sibling.Browser, error) { return b, nil }
	c := prepare(s)
	go c.run()
	t.Cleanup(func() {
		c.End(ToldToStop)
		<-c.Gone()
	})
	<-c.Ready()
	return c
}

// onPipe launches a chrome-headless-shell without a port.
func onPipe(t *testing.T) *sibling.Browser {
	t.Helper()
	dir, err := os.MkdirTemp("", "bt-supply-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	shell := "/usr/lib/chromium/chromium-headless-shell"
	if _, err := os.Stat(shell); err != nil {
		shell = "chromium-headless-shell"
	}
	b, err := sibling.Launch(t.Context(), sibling.Spec{Pipe: true, Timeout: patience, Grace: 10 * time.Second,
		Stderr: os.Stderr, Argv: []string{"sh", "-c", `exec 3<&4 4>&5; ` +
			`echo "{\"v\":1,\"instance\":{\"pid\":$$}}"; ` +
			`exec ` + shell + ` --no-sandbox --disable-gpu --remote-debugging-pipe --user-data-dir="$0" 2>/dev/null`,
			dir}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// onPort returns a chrome-headless-shell that somebody else holds.
func onPort(t *testing.T) (*sibling.Browser, *os.Process) {
	t.Helper()
	url, process := chrometest.StartShell(t)
	return at(t, map[string]any{"ws_url": url}), process
}

func at(t *testing.T, instance map[string]any) *sibling.Browser {
	t.Helper()
	r := record.New()
	r.MustSet("instance", instance)
	b, err := sibling.Foreign(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A Chrome without a port is opened for sessions once, asked for its health, and ends with its pipe.
func TestChromeOnPipe(t *testing.T) {
	t.Parallel()
	c := begin(t, Spec{Bound: true, Within: patience, Grace: patience}, onPipe(t))
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Ping(t.Context(), patience); err != nil {
		t.Error(err)
	}
	began := time.Now()
	s, err := c.NewSession(t.Context(), virtual.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !c.isActiveSince(began) || c.LastUse().Before(began) {
		t.Error("the session is no activity, or no use")
	}
	s.End(t.Context())
	first, _ := c.Sessions(t.Context())
	if again, err := c.Sessions(t.Context()); again != first || err != nil {
		t.Error("it is opened again:", err)
	}
	if _, err := c.mux.Call(t.Context(), "Browser.close", nil); err != nil {
		t.Log(err)
	}
	<-c.Gone()
	if !c.EndedByItself() || !c.HasClosed() {
		t.Error("it was told to end:", c.Cause())
	}
	if _, err := c.NewSession(t.Context(), virtual.Options{}); err != ErrStopping {
		t.Error(err)
	}
}

// A Chrome of somebody else is lost with the connection of its sessions.
func TestChromeOnPort(t *testing.T) {
	t.Parallel()
	b, process := onPort(t)
	c := begin(t, Spec{Bound: true, Within: patience}, b)
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Ping(t.Context(), patience); err != nil {
		t.Error(err)
	}
	process.Kill()
	<-c.Gone()
	if c.Cause() != errLost {
		t.Error(c.Cause())
	}
}

// A Chrome that is opened at its first session is opened again when the connection is lost.
func TestChromeIsOpenedAgain(t *testing.T) {
	t.Parallel()
	b, _ := onPort(t)
	opened := 0
	c := begin(t, Spec{Within: patience, Opened: func(context.Context, *virtual.Browser) { opened++ }}, b)
	first, err := c.Sessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	<-first.Done()
	if second, err := c.Sessions(t.Context()); err != nil || second == first || opened != 2 || c.IsEnding() {
		t.Error(err, opened)
	}
}

// A Chrome whose user is asked to allow each connection gets one, for the first client and not for a health check.
func TestChromeOfOneConnection(t *testing.T) {
	t.Parallel()
	b, _ := onPort(t)
	found, missing := b.Instance, errors.New("no such file")
	err := missing
	one := NewOneConnection(func() (record.Instance, error) { return found, err })
	t.Cleanup(one.Close)
	opened := 0
	c := begin(t, Spec{Foreign: true, One: one, Within: patience,
		Opened: func(context.Context, *virtual.Browser) { opened++ }}, b)
	if err := c.Ping(t.Context(), patience); err != ErrNotAsked {
		t.Error(err)
	}
	if _, err := c.Sessions(t.Context()); !errors.Is(err, missing) {
		t.Error(err)
	}
	err, found = nil, record.Instance{Host: "127.0.0.1", Port: 1}
	var hint *exit.Error
	if _, err := c.Sessions(t.Context()); !errors.As(err, &hint) || !strings.Contains(hint.Hint, "DevToolsActivePort") {
		t.Error(err)
	}
	found = b.Instance
	if _, err := c.NewSession(t.Context(), virtual.Options{}); err != nil || opened != 1 {
		t.Error(err, opened)
	}
	if err := c.Ping(t.Context(), patience); err != nil {
		t.Error(err)
	}
}

// A Chrome that cannot be opened in time is stopped.
func TestChromeIsNotOpened(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	late := errors.New("too late")
	c := begin(t, Spec{Bound: true, Within: 10 * time.Millisecond, Late: late},
		at(t, map[string]any{"ws_url": "ws://" + silent.Addr().String() + "/devtools/browser/x"}))
	if err := c.Err(); !errors.Is(err, late) || !strings.HasPrefix(err.Error(), "cannot share the browser: ") {
		t.Error(err)
	}
	if _, err := c.NewSession(t.Context(), virtual.Options{}); err != ErrStopping {
		t.Error(err)
	}
}

// A browser that was told to end during its launch is stopped at once.
func TestEndDuringLaunch(t *testing.T) {
	t.Parallel()
	b := farm(t, "exec sleep 1000")
	var c *Chrome
	c = prepare(Spec{Log: slog.New(slog.DiscardHandler), Launch: func(context.Context) (*sibling.Browser, error) {
		c.End(ToldToStop)
		return b, nil
	}})
	c.run()
	if c.Err() != ErrCancelled || c.Failed() || c.WasLaunched() || c.state() != Stopped {
		t.Error(c.Err())
	}
	<-b.Ended()
}

func TestPing(t *testing.T) {
	t.Parallel()
	// It answers the requests of a hub, and pings of BiDi and CDP.
	asked := make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		switch {
		case r.URL.Path == "/json/version":
			w.Write([]byte(`{"webSocketDebuggerUrl":"ws://x/devtools/browser/guid"}`))
		case r.Header.Get("Upgrade") == "":
			w.Write([]byte(`{}`))
		default:
			conn, err := websocket.Accept(w, r)
			if err != nil {
				t.Error(err)
				return
			}
			m, err := conn.Next()
			if err != nil {
				return
			}
			b, _ := m.Bytes()
			if strings.Contains(r.URL.Path, "odd") {
				b = []byte("odd")
			}
			conn.Write(b)
			conn.Next()
		}
	}))
	defer s.Close()
	addr := strings.TrimPrefix(s.URL, "http://")
	for _, c := range []struct {
		instance map[string]any
		path     string // of the last request
		want     string // of the error; "": none
	}{
		{map[string]any{"ws_url": "ws://" + addr + "/devtools/browser/one"}, "/devtools/browser/one", ""},
		{map[string]any{"http_url": s.URL}, "/devtools/browser/guid", ""},
		{map[string]any{"ws_url": "ws://" + addr + "/session", "protocol": "bidi"}, "/session", ""},
		{map[string]any{"http_url": s.URL + "/session/a"}, "/session/a/devtools/browser", ""},
		{map[string]any{"http_url": s.URL + "/session/a/session/b", "source": record.FromExtension},
			"/session/a/json/version", ""},
		{map[string]any{"ws_url": "ws://" + addr + "/devtools/browser/odd"}, "/devtools/browser/odd", `answered "odd"`},
		{map[string]any{"http_url": "http://127.0.0.1:1"}, "", "refused"},
		{map[string]any{"ws_url": "ws://127.0.0.1:1/devtools/browser/x"}, "", "refused"},
	} {
		err := Ping(t.Context(), at(t, c.instance).Instance, patience)
		if err == nil && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.instance, err, c.want)
		}
		path := ""
		for len(asked) > 0 {
			path = <-asked
		}
		if path != c.path {
			t.Errorf("%v: it asks %s", c.instance, path)
		}
	}
	silent, _ := net.Listen("tcp", "127.0.0.1:0")
	defer silent.Close()
	mute := at(t, map[string]any{"ws_url": "ws://" + silent.Addr().String() + "/devtools/browser/x"}).Instance
	err := Ping(t.Context(), mute, 10*time.Millisecond)
	if err == nil || err.Error() != "no answer within 10ms" {
		t.Error(err)
	}
}
