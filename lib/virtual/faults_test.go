package virtual

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/chrometest"
)

// attached is a client with a CDP session with its session's page.
func attached(t *testing.T, s *Session) (p *peer, page string) {
	t.Helper()
	p = connect(t, s, "")
	return p, jsonrpc.GetString(p.must("", "Target.attachToTarget",
		map[string]any{"targetId": p.pages()[0], "flatten": true}), "sessionId")
}

// median is that of the time a small command takes.
func (p *peer) median(page string, n int) time.Duration {
	p.t.Helper()
	var all []time.Duration
	for range n {
		begun := time.Now()
		p.must(page, "Runtime.evaluate", map[string]any{"expression": "1"})
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	return all[n/2]
}

// A client that floods, or does not read, is disconnected, and the clients of
// other sessions are served as before.
func TestFloodsAreBounded(t *testing.T) {
	t.Parallel()
	b := openShell(t)
	b.stall = time.Second / 2
	calm, page := attached(t, newSession(t, b, Options{}))
	alone := calm.median(page, 30)
	for _, flood := range []struct {
		what  string
		long  bool // a client reads until its bound is reached
		begin func(p *peer, page string)
		more  func(p *peer, page string) error
	}{
		{"page commands", true, nil, func(p *peer, page string) error {
			return p.conn.Write(wire.Command("5", page, "Runtime.evaluate",
				map[string]any{"expression": "'" + strings.Repeat("x", 1000) + "'"}))
		}},
		{"commands answered here", false, func(p *peer, page string) {
			p.must(page, "Page.navigate", map[string]string{"url": "about:blank#" + strings.Repeat("x", 10_000)})
		}, func(p *peer, _ string) error {
			return p.conn.Write(wire.Command("5", "", "Target.getTargets", nil))
		}},
		{"pages without an answer", false, func(p *peer, page string) {
			p.conn.Write(wire.Command("5", page, "Runtime.evaluate", map[string]any{"expression": "for (;;) {}"}))
		}, func(p *peer, page string) error {
			return p.conn.Write(wire.Command("5", page, "Input.dispatchKeyEvent",
				map[string]any{"type": "keyDown", "nativeVirtualKeyCode": 65}))
		}},
		{"console messages", false, func(p *peer, page string) {
			p.must(page, "Runtime.enable", nil)
			p.conn.Write(wire.Command("5", page, "Runtime.evaluate",
				map[string]any{"expression": "setInterval(() => { " +
					"for (let i = 0; i < 1000; i++) console.log('x'.repeat(1000)) }, 1)"}))
		}, nil},
		{"results of 4 MiB", true, nil, func(p *peer, page string) error {
			return p.conn.Write(wire.Command("5", page, "Runtime.evaluate",
				map[string]any{"expression": "'x'.repeat(4 << 20)"}))
		}},
	} {
		t.Run(flood.what, func(t *testing.T) {
			if flood.long && !long {
				t.Skip("make test LONG=1 runs it")
			}
			s := newSession(t, b, Options{})
			p, own := attached(t, s)
			if flood.begin != nil {
				flood.begin(p, own)
			}
			var work sync.WaitGroup
			work.Go(func() {
				for flood.more != nil && flood.more(p, own) == nil {
				}
			})
			during := calm.median(page, 30)
			t.Logf("another session's round trip: %v, alone %v", during, alone)
			if during > 10*alone+time.Second { // on a busy machine; without bounds it is several
				t.Errorf("another session's round trip took %v, alone it was %v", during, alone)
			}
			for begun := time.Now(); s.Stats().Clients > 0; time.Sleep(10 * time.Millisecond) {
				if time.Since(begun) > patience {
					t.Fatal("the client is still connected")
				}
			}
			work.Wait()
			if err := s.End(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// autoAttach has new targets wait for the client, and returns its page.
func (p *peer) autoAttach(filter ...map[string]any) (page string) {
	p.t.Helper()
	params := map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true}
	if len(filter) > 0 {
		params["filter"] = filter
	}
	p.must("", "Target.setAutoAttach", params)
	return jsonrpc.GetString(p.event("Target.attachedToTarget", ""), "params", "sessionId")
}

// workers serves a page that starts a shared and a service worker, which tell
// that they run.
func workers(t *testing.T) (url string, ran func(path string) bool) {
	t.Helper()
	var seen sync.Map
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.URL.Path+"?"+r.URL.RawQuery, true)
		if strings.HasSuffix(r.URL.Path, ".js") {
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprintf(w, "fetch('/ran%s?' + location.search.slice(1))", r.URL.Path)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<script>
			new SharedWorker('/shared.js' + location.search)
			new Worker('/dedicated.js' + location.search)
			navigator.serviceWorker.register('/service.js' + location.search)
		</script>`)
	}))
	t.Cleanup(s.Close)
	return s.URL, func(path string) bool { _, ok := seen.Load(path); return ok }
}

// Workers start whichever clients are connected.
func TestWorkersStart(t *testing.T) {
	t.Parallel()
	b := sharedBrowser(t)
	url, ran := workers(t)
	wait := func(t *testing.T, query string) {
		t.Helper()
		for _, kind := range []string{"shared", "service", "dedicated"} {
			path := "/ran/" + kind + ".js?" + query
			for begun := time.Now(); !ran(path); time.Sleep(10 * time.Millisecond) {
				if time.Since(begun) > patience {
					t.Fatalf("the %s worker has not started", kind)
				}
			}
		}
	}
	t.Run("no client", func(t *testing.T) {
		if _, err := newSession(t, b, Options{}).NewPage(t.Context(), url+"/?none"); err != nil {
			t.Fatal(err)
		}
		wait(t, "none")
	})
	t.Run("a client that attaches to nothing", func(t *testing.T) {
		p := connect(t, newSession(t, b, Options{}), "")
		p.must("", "Target.createTarget", map[string]any{"url": url + "/?nothing"})
		wait(t, "nothing")
	})
}

// When Chrome dies, every client is disconnected at once, and sessions that are
// being created fail.
func TestChromeDies(t *testing.T) {
	t.Parallel()
	b, process := openProcess(t, chrometest.StartShell)
	var sessions []*Session
	var clients []*peer
	for range 5 {
		s := newSession(t, b, Options{})
		sessions = append(sessions, s)
		for range 4 {
			p := connect(t, s, "")
			p.must("", "Target.setDiscoverTargets", map[string]any{"discover": true})
			clients = append(clients, p)
		}
	}
	var made atomic.Int32
	var making sync.WaitGroup
	for range 3 {
		making.Go(func() {
			for {
				s, err := b.NewSession(t.Context(), Options{})
				if err != nil {
					return
				}
				made.Add(1)
				if k, err := s.Connect(t.Context(), ""); err == nil {
					k.Close()
				}
			}
		})
	}
	for made.Load() < 3 {
		time.Sleep(time.Millisecond)
	}
	// This Chrome has a debugging port, which no session can open.
	_, port, _ := net.SplitHostPort(b.Addr())
	own := map[string]any{"url": "http://localhost.:" + port + "/json/version"}
	if got := clients[0].call("", "Target.createTarget", own); !strings.Contains(string(got), "own debugging port") {
		t.Errorf("a page of the browser's port: %s", got)
	}
	process.Kill()
	begun := time.Now()
	for i, p := range clients {
		for {
			if _, err := p.conn.Next(); err != nil {
				break
			}
		}
		if i == len(clients)-1 {
			t.Logf("%d clients were disconnected in %v", len(clients), time.Since(begun))
		}
	}
	if took := time.Since(begun); took > 10*time.Second { // well under one on an idle machine
		t.Errorf("the clients were disconnected after %v", took)
	}
	making.Wait()
	for _, s := range sessions {
		<-s.Done()
		if err := s.Err(); !errors.Is(err, ErrBrowserEnded) {
			t.Errorf("a session ended: %v", err)
		}
		if err := s.End(t.Context()); err != nil {
			t.Error(err)
		}
	}
	b.Close()
}
