package websocket

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// half sends the first n bytes of a message to a new connection with a budget, and
// reads it.
func half(t *testing.T, b *Budget, message []byte, n int) (c *Conn, got chan error, rest func()) {
	t.Helper()
	raw, theirs := pair(t)
	c = New(raw, false, nil)
	c.Budget = b
	all := frame(0x81, true, string(message))
	if _, err := theirs.Write(all[:n]); err != nil {
		t.Fatal(err)
	}
	got = make(chan error, 1)
	go func() {
		m, err := c.Next()
		if err == nil {
			_, err = m.Bytes()
		}
		got <- err
	}()
	t.Cleanup(func() { c.abort(errUsed) })
	return c, got, func() { theirs.Write(all[n:]) }
}

// refused asserts that a connection has ended with a code.
func refused(t *testing.T, got chan error, code int) {
	t.Helper()
	var wrong *ProtocolError
	select {
	case err := <-got:
		if !errors.As(err, &wrong) || wrong.Code != code {
			t.Errorf("the connection ended with %v, want the code %d", err, code)
		}
	case <-time.After(time.Minute):
		t.Fatal("the connection goes on")
	}
}

// Messages that are never finished take no more memory than the budget of all; what a
// reader has left is given back.
func TestBudget(t *testing.T) {
	b := &Budget{Max: 3 << 20}
	message := long(2 << 20)
	one, first, rest := half(t, b, message, 1900_000)
	for end := time.Now().Add(time.Minute); b.used.Load() < 1<<20; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing is reserved")
		}
	}
	other, second, _ := half(t, b, message, 1900_000)
	refused(t, second, PolicyViolation)
	other.Release()
	rest()
	if err := <-first; err != nil {
		t.Errorf("the first message: %v", err)
	}
	one.Release()
	if n := b.used.Load(); n != 0 {
		t.Errorf("%d bytes are still reserved", n)
	}
	_, third, rest := half(t, b, message, 10)
	rest()
	if err := <-third; err != nil {
		t.Errorf("a later message: %v", err)
	}
}

// A message that does not go on ends its connection; one between messages may wait.
func TestProgress(t *testing.T) {
	raw, theirs := pair(t)
	c := New(raw, false, nil)
	c.Progress = 50 * time.Millisecond
	got := make(chan error, 1)
	go func() {
		for {
			m, err := c.Next()
			if err == nil {
				_, err = m.Bytes()
			}
			if got <- err; err != nil {
				return
			}
		}
	}()
	large := frame(0x81, true, strings.Repeat("x", 100_000))
	theirs.Write(large)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * c.Progress) // nothing is being sent
	theirs.Write(large)
	if err := <-got; err != nil {
		t.Fatalf("a later message: %v", err)
	}
	theirs.Write(large[:90_000])
	refused(t, got, PolicyViolation)
}

// A message may have a limit of its own, which holds for its later fragments.
func TestBound(t *testing.T) {
	for _, fragments := range [][]byte{
		frame(0x81, true, strings.Repeat("x", 100)),
		append(frame(0x01, true, "x"), frame(0x80, true, strings.Repeat("x", 100))...),
	} {
		raw, theirs := pair(t)
		c := New(raw, false, nil)
		theirs.Write(fragments)
		got := make(chan error, 1)
		m, err := c.Next()
		if err == nil {
			if err = m.Bound(50); err == nil {
				_, err = m.Bytes()
			}
		}
		got <- err
		refused(t, got, TooBig)
	}
}
