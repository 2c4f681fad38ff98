package websocket

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// What is put leaves in its order, also between what is written.
func TestOutboxKeepsTheOrder(t *testing.T) {
	t.Parallel()
	server, client := ends(t)
	o := NewOutbox(server)
	done, gone := make(chan struct{}), make(chan struct{})
	go func() { o.Run(done); close(gone) }()
	const n = 2000
	go func() {
		for i := range n {
			if m := []byte(strconv.Itoa(i)); i%3 == 0 {
				o.Write(m)
			} else {
				o.Put(m)
			}
		}
	}()
	for i := range n {
		m, err := client.Next()
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := m.Bytes(); string(b) != strconv.Itoa(i) {
			t.Fatalf("message %d is %s", i, b)
		}
	}
	close(done)
	<-gone
	if err := o.Write([]byte("late")); err == nil {
		t.Error("an outbox takes messages after its end")
	}
}

// A connection whose other side does not read is closed when too much waits.
func TestOutboxIsBounded(t *testing.T) {
	t.Parallel()
	server, client := narrow(t)
	o := NewOutbox(server)
	done, gone := make(chan struct{}), make(chan struct{})
	go func() { o.Run(done); close(gone) }()
	message := make([]byte, 1<<20)
	for begun := time.Now(); ; {
		o.Put(message)
		o.mu.Lock()
		queued, failed := o.queued, o.failed
		o.mu.Unlock()
		if queued > maxQueued {
			t.Fatalf("%d bytes are queued", queued)
		}
		if failed != nil {
			break
		}
		if time.Since(begun) > 10*time.Second {
			t.Fatal("the outbox takes everything")
		}
	}
	for {
		m, err := client.Next()
		if err != nil {
			break
		}
		if _, err := m.Bytes(); err != nil {
			break
		}
	}
	close(done)
	<-gone
	if err := o.Write(message); !errors.Is(err, errStalled) {
		t.Errorf("a closed outbox: %v", err)
	}
}

// What is sent without waiting keeps its place among all else, also when the peer
// reads late and a message is sent in two parts.
func TestOutboxTries(t *testing.T) {
	raw, theirs := pair(t)
	c, peer := New(raw, false, nil), New(theirs, true, nil)
	o, done := NewOutbox(c), make(chan struct{})
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		o.Run(done)
	}()
	defer func() {
		c.Close(Normal, "")
		close(done)
		<-ran
	}()
	const n = 3000
	var tried atomic.Int32
	go func() {
		for i := range n {
			m := fmt.Appendf(nil, "%d %s", i, long(i%5000))
			switch {
			case i%7 == 0:
				o.Put(m)
			case o.TryWrite(m):
				tried.Add(1)
			default:
				o.Write(m)
			}
		}
	}()
	for i := range n {
		m, err := peer.Next()
		if err != nil {
			t.Fatal(err)
		}
		b, err := m.Bytes()
		if want := fmt.Sprintf("%d %s", i, long(i%5000)); err != nil || string(b) != want {
			t.Fatalf("message %d is %.20q, of %d bytes (%v)", i, b, len(b), err)
		}
	}
	if tried.Load() == 0 {
		t.Error("nothing was sent without waiting")
	}
}
