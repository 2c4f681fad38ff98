package websocket

import (
	"errors"
	"strconv"
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
	server, client := ends(t)
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
