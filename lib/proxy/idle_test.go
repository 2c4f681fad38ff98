package proxy

import (
	"io"
	"net"
	"testing"
	"time"
)

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
