package proxy

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/launch/options"
	"btools/lib/record"
)

// idle runs a proxy with an idle time of a minute and its browser, without a
// listener, on a clock of its own.
func idle(t *testing.T, byConnections bool, do func(b *backend, g *generation, sleep func(time.Duration))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &Proxy{Idle: time.Minute, IdleByConnections: byConnections, Log: slog.New(slog.DiscardHandler)}
		p.Launch = launches(browserAt(t, "127.0.0.1:1", record.CDP))
		p.Start()
		if err := p.Relaunch(t.Context(), options.Options{}, false); err != nil {
			t.Fatal(err)
		}
		do(&p.backend, p.backend.current, func(d time.Duration) { time.Sleep(d); synctest.Wait() })
		p.backend.close()
	})
}

// open adds a WebSocket whose client sends something when the test says so.
func open(t *testing.T, b *backend, g *generation) (send, end func()) {
	client, _ := net.Pipe()
	browser, _ := net.Pipe()
	in := newStamped(client)
	x := &tunnel{client: client, browser: browser, done: make(chan struct{}), lastUse: in.lastUse}
	if !b.addTunnel(g, x, b.epochAt(time.Now())) {
		t.Fatal("the browser is ending")
	}
	return func() { in.last.Store(time.Now().UnixNano()) }, func() { b.removeTunnel(g, x) }
}

func (b *backend) ended(g *generation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return g.ending
}

func TestIdleByTraffic(t *testing.T) {
	t.Parallel()
	idle(t, false, func(b *backend, g *generation, sleep func(time.Duration)) {
		sleep(50 * time.Second)
		send, end := open(t, b, g)
		defer end()
		sleep(59 * time.Second)
		send()
		sleep(59 * time.Second)
		if b.ended(g) {
			t.Fatal("the browser was stopped 59 s after a client sent something")
		}
		b.noteUse(g) // a request
		sleep(59 * time.Second)
		if b.ended(g) {
			t.Fatal("the browser was stopped 59 s after a request")
		}
		sleep(time.Second)
		if !b.ended(g) || g.why != Unused {
			t.Errorf("a silent WebSocket keeps the browser: %v", g.why)
		}
	})
}

func TestIdleByConnections(t *testing.T) {
	t.Parallel()
	idle(t, true, func(b *backend, g *generation, sleep func(time.Duration)) {
		_, end := open(t, b, g)
		sleep(10*time.Minute + 30*time.Second)
		if b.ended(g) {
			t.Fatal("the browser was stopped under a WebSocket")
		}
		end()
		b.addSession(g)
		sleep(10 * time.Minute)
		b.removeSession(g)
		sleep(59 * time.Second)
		if b.ended(g) {
			t.Fatal("the browser was stopped 59 s after its last session")
		}
		sleep(time.Second)
		if !b.ended(g) {
			t.Error("the browser is not stopped")
		}
	})
}

// The time of the client's last bytes is known although the kernel splices
// them; what the browser sends does not change it.
func TestObserved(t *testing.T) {
	t.Parallel()
	pair := func() (near, far net.Conn) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if far, err = net.Dial("tcp", l.Addr().String()); err == nil {
			near, err = l.Accept()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { near.Close(); far.Close() })
		return near, far
	}
	client, clientEnd := pair()
	browser, browserEnd := pair()
	in, lastUse := observed(client)
	x := &tunnel{client: client, browser: browser, in: in, lastUse: lastUse}
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.run()
	}()
	const some = 100 * time.Millisecond
	began := time.Now()
	b := make([]byte, 1)
	until(t, "the time of the client's bytes advances", func() bool {
		io.WriteString(clientEnd, "x")
		io.ReadFull(browserEnd, b)
		return lastUse().After(began.Add(some))
	})
	was := time.Now()
	until(t, "the browser has sent something for a while", func() bool {
		io.WriteString(browserEnd, "x")
		io.ReadFull(clientEnd, b)
		return time.Since(was) > 3*some
	})
	if last := lastUse(); last.After(was.Add(some)) {
		t.Errorf("what the browser sent has moved the time by %v", last.Sub(was))
	}
	clientEnd.Close()
	browserEnd.Close()
	<-done
}
