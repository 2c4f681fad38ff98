package supply

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/record"
	"btools/lib/sibling"
)

// found returns a browser that somebody else holds: it never ends by itself.
func found(t testing.TB) *sibling.Browser {
	t.Helper()
	r := record.New()
	r.MustSet("instance", record.Instance{Host: "127.0.0.1", Port: 1, Protocol: record.CDP, PID: 7})
	b, err := sibling.Foreign(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// spec is a Spec that launches such a browser.
func spec(t testing.TB) Spec {
	b := found(t)
	return Spec{Log: slog.New(slog.DiscardHandler),
		Launch: func(context.Context) (*sibling.Browser, error) { return b, nil }}
}

// idle runs a browser with an idle time of a minute, on a clock of its own.
func idle(t *testing.T, i Idle, do func(c *Chrome, sleep func(time.Duration))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := spec(t)
		s.Idle, s.Idle.Timeout = i, time.Minute
		c := prepare(s)
		go c.run()
		<-c.Ready()
		do(c, func(d time.Duration) { time.Sleep(d); synctest.Wait() })
		c.End(ToldToStop)
		<-c.Gone()
	})
}

// client is a connection whose client sends something when the test says so.
type client struct {
	last   atomic.Int64
	closed atomic.Bool
}

func (c *client) LastUse() time.Time { return time.Unix(0, c.last.Load()) }
func (c *client) Close()             { c.closed.Store(true) }
func (c *client) send()              { c.last.Store(time.Now().UnixNano()) }

func TestIdleByTraffic(t *testing.T) {
	t.Parallel()
	idle(t, Idle{}, func(c *Chrome, sleep func(time.Duration)) {
		sleep(50 * time.Second)
		conn := &client{}
		if !c.Connect(conn) {
			t.Fatal("the browser is ending")
		}
		sleep(59 * time.Second)
		conn.send()
		sleep(59 * time.Second)
		if c.IsEnding() {
			t.Fatal("the browser was stopped 59 s after a client sent something")
		}
		c.NoteUse() // a request
		sleep(59 * time.Second)
		if c.IsEnding() {
			t.Fatal("the browser was stopped 59 s after a request")
		}
		sleep(time.Second)
		if c.Cause() != Unused || !conn.closed.Load() {
			t.Errorf("a silent WebSocket keeps the browser: %v", c.Cause())
		}
		if c.Connect(conn) || c.Enter() || c.Disconnect(conn) {
			t.Error("an ending browser gets users")
		}
	})
}

func TestIdleByConnections(t *testing.T) {
	t.Parallel()
	idle(t, Idle{ByConnections: true}, func(c *Chrome, sleep func(time.Duration)) {
		conn := &client{}
		c.Connect(conn)
		sleep(10*time.Minute + 30*time.Second)
		if c.IsEnding() {
			t.Fatal("the browser was stopped under a WebSocket")
		}
		if !c.Disconnect(conn) {
			t.Error("it was not the last")
		}
		c.Hold()
		sleep(10 * time.Minute)
		c.Release()
		sleep(59 * time.Second)
		if c.IsEnding() {
			t.Fatal("the browser was stopped 59 s after its last session")
		}
		sleep(time.Second)
		if !c.IsEnding() {
			t.Error("the browser is not stopped")
		}
	})
}

// A browser that downloads is not idle, and neither is one for which somebody waits.
func TestNotIdle(t *testing.T) {
	t.Parallel()
	var free atomic.Bool
	busy := func(pid int) bool { return !free.Load() && pid == 7 }
	idle(t, Idle{Busy: busy}, func(c *Chrome, sleep func(time.Duration)) {
		sleep(10 * time.Minute)
		c.Enter()
		free.Store(true)
		sleep(10 * time.Minute)
		if c.IsEnding() {
			t.Fatal("the browser was stopped in use")
		}
		if c.Leave() {
			t.Error("it waits for the launch")
		}
		c.NoteUse()
		sleep(59 * time.Second)
		if c.IsEnding() {
			t.Fatal("the browser was stopped too early")
		}
		sleep(time.Second)
		if c.Cause() != Unused {
			t.Errorf("%v", c.Cause())
		}
	})
}
