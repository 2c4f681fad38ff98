//go:build linux

package nowait

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

func socket(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// A reader waits for what comes later, and is told the end.
func TestRead(t *testing.T) {
	r, w := pipe(t)
	a, b := socket(t)
	for name, x := range map[string]struct {
		from io.Reader
		to   io.WriteCloser
	}{"pipe": {r, w}, "socket": {a, b}} {
		in := NewReader(x.from)
		if in == nil {
			t.Fatalf("%s: no reader", name)
		}
		go func() {
			for _, word := range []string{"one", "two"} {
				time.Sleep(10 * time.Millisecond)
				x.to.Write([]byte(word))
			}
			x.to.Close()
		}()
		got, err := io.ReadAll(in)
		if string(got) != "onetwo" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// Deadlines and Close end a read, and so does a reset.
func TestReadFails(t *testing.T) {
	a, b := socket(t)
	in := NewReader(a)
	a.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := in.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	a.SetReadDeadline(time.Time{})
	b.SetLinger(0)
	b.Close()
	if _, err := in.Read(make([]byte, 10)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after a reset: %v", err)
	}
	read := make(chan error)
	c, _ := socket(t)
	go func() {
		_, err := NewReader(c).Read(make([]byte, 10))
		read <- err
	}()
	time.Sleep(10 * time.Millisecond)
	c.Close()
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A writer writes what there is room for, and does not wait for more.
func TestWrite(t *testing.T) {
	r, w := pipe(t)
	out := NewWriter(w)
	long := bytes.Repeat([]byte("x"), 1<<20)
	n, err := out.Write(long)
	if n == 0 || n == len(long) || err != nil {
		t.Fatalf("a pipe takes %d bytes, %v", n, err)
	}
	if more, err := out.Write(long); more != 0 || err != nil {
		t.Errorf("a full pipe takes %d bytes, %v", more, err)
	}
	if m, err := io.ReadFull(r, make([]byte, n)); m != n || err != nil {
		t.Errorf("read %d bytes, %v", m, err)
	}
	r.Close()
	if _, err := out.Write(long); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("after the reader's end: %v", err)
	}
}

// What might wait is not read or written by such a call.
func TestWaiting(t *testing.T) {
	r, w := pipe(t)
	syscall.SetNonblock(int(r.Fd()), false)
	syscall.SetNonblock(int(w.Fd()), false)
	x, _ := net.Pipe()
	for _, one := range []any{r, w, x, new(bytes.Buffer), nil} {
		if NewReader(one) != nil || NewWriter(one) != nil {
			t.Errorf("%T has a reader or a writer", one)
		}
	}
}

// Reading and writing allocate nothing.
func TestAllocations(t *testing.T) {
	r, w := pipe(t)
	in, out, b := NewReader(r), NewWriter(w), make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() { out.Write(b); in.Read(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
