// Package nowait reads and writes sockets and pipes by system calls that never
// wait, so that Go's scheduler need not be told of them. In a program that was
// idle, a call that it is told of wakes its monitor thread, which then looks
// every 20 µs whether the call takes long: relaying a short message took six
// switches between threads, and takes two.
package nowait

import "syscall"

// Reader reads from a socket or a pipe. One goroutine at a time uses it.
type Reader struct {
	conn syscall.RawConn
	into []byte
	n    int
	err  error
	try  func(fd uintptr) bool // a method, bound once: reading allocates nothing
}

// Writer writes to a socket or a pipe what it takes at once. One goroutine at a
// time uses it.
type Writer struct {
	conn syscall.RawConn
	from []byte
	n    int
	err  error
	try  func(fd uintptr) bool
}

// NewReader returns a reader of a connection or a file; nil: it can only be read
// as usual.
func NewReader(of any) *Reader {
	conn := open(of)
	if conn == nil {
		return nil
	}
	r := &Reader{conn: conn}
	r.try = r.read
	return r
}

// NewWriter returns a writer to a connection or a file; nil: it can only be
// written as usual.
func NewWriter(to any) *Writer {
	conn := open(to)
	if conn == nil {
		return nil
	}
	w := &Writer{conn: conn}
	w.try = w.write
	return w
}

// open returns what the system calls need; nil: they might wait.
func open(of any) syscall.RawConn {
	c, ok := of.(syscall.Conn)
	if !ok {
		return nil
	}
	conn, err := c.SyscallConn()
	never := false
	if err != nil || conn.Control(func(fd uintptr) { never = neverWaits(fd) }) != nil || !never {
		return nil
	}
	return conn
}

// Read reads as the connection does: it waits for at least one byte, until the
// deadline for reading.
func (r *Reader) Read(into []byte) (int, error) {
	r.into, r.n, r.err = into, 0, nil
	err := r.conn.Read(r.try)
	r.into = nil
	if err == nil {
		err = r.err
	}
	return r.n, err
}

// Write writes as much as is taken at once, perhaps nothing.
func (w *Writer) Write(from []byte) (int, error) {
	w.from, w.n, w.err = from, 0, nil
	err := w.conn.Write(w.try)
	w.from = nil
	if err == nil {
		err = w.err
	}
	return w.n, err
}
