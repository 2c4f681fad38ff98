package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
)

// MaxLine is the size in bytes of the longest message that is read.
const MaxLine = 256 << 20

// ErrTooLong says that a line is longer than MaxLine; it has been skipped.
var ErrTooLong = errors.New("a message is longer than 256 MiB")

// Reader reads messages, one a line.
type Reader struct{ in *bufio.Reader }

// NewReader returns a reader.
func NewReader(in io.Reader) *Reader { return &Reader{bufio.NewReaderSize(in, 64<<10)} }

// Line is the next line that is not empty. The bytes are the caller's. At the
// end what is no whole line is returned too.
func (r *Reader) Line() ([]byte, error) {
	for {
		var line []byte
		long := false
		for {
			part, err := r.in.ReadSlice('\n')
			if long = long || len(line)+len(part) > MaxLine; long {
				line = nil
			} else {
				line = append(line, part...)
			}
			if err == nil {
				break
			}
			if err != bufio.ErrBufferFull {
				if line = bytes.TrimSpace(line); len(line) > 0 && err == io.EOF {
					return line, nil
				}
				return nil, err
			}
		}
		if long {
			return nil, ErrTooLong
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

// Writer writes messages in the order in which they are given. What can be
// written at once is, the rest by a goroutine of its own: who gives a message
// waits only while too much is waiting already.
type Writer struct {
	out  io.Writer
	try  func([]byte) (int, error)
	most int
	done chan struct{}

	mu   sync.Mutex
	more *sync.Cond // something is to be written, or nothing ever will
	room *sync.Cond
	all  [][]byte // that wait, with their newlines
	size int      // of these
	busy bool     // somebody writes
	err  error
}

// NewWriter returns a writer that has at most so many bytes wait, or one
// message if that is longer. Try, which may be nil, writes what can be written
// without waiting.
func NewWriter(out io.Writer, most int, try func([]byte) (int, error)) *Writer {
	w := &Writer{out: out, try: try, most: most, done: make(chan struct{})}
	w.more, w.room = sync.NewCond(&w.mu), sync.NewCond(&w.mu)
	go w.run()
	return w
}

var errClosed = errors.New("it is closed")

// Write gives a message, whose bytes are the writer's from now on. If there is
// no room it waits, or, with wait false, returns false, as it does when
// nothing can be written any more.
func (w *Writer) Write(message []byte, wait bool) bool {
	message = append(message, '\n')
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && w.size > 0 && w.size+len(message) > w.most {
		if !wait {
			return false
		}
		w.room.Wait()
	}
	if w.err != nil {
		return false
	}
	if w.try != nil && !w.busy && len(w.all) == 0 {
		w.busy = true
		w.mu.Unlock()
		n, err := w.try(message)
		w.mu.Lock()
		w.busy = false
		if err != nil {
			w.failLocked(err)
			w.more.Signal()
			return false
		}
		if message = message[n:]; len(message) == 0 {
			if len(w.all) > 0 || w.err != nil {
				w.more.Signal() // came meanwhile
			}
			return true
		}
		w.all = append([][]byte{message}, w.all...)
	} else {
		w.all = append(w.all, message)
	}
	w.size += len(message)
	w.more.Signal()
	return true
}

func (w *Writer) failLocked(err error) {
	if w.err == nil {
		w.err = err
	}
	w.room.Broadcast()
}

func (w *Writer) run() {
	defer close(w.done)
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for w.busy || len(w.all) == 0 && w.err == nil {
			w.more.Wait()
		}
		if len(w.all) == 0 {
			return
		}
		all := w.all
		w.all, w.size, w.busy = nil, 0, true
		w.mu.Unlock()
		buffers := net.Buffers(all)
		_, err := buffers.WriteTo(w.out)
		w.mu.Lock()
		w.busy = false
		w.room.Broadcast()
		if err != nil {
			w.failLocked(err)
			w.all = nil
		}
	}
}

// Close has nothing more be given; what was given is still written. The
// channel is closed when it is.
func (w *Writer) Close() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLocked(errClosed)
	w.more.Signal()
	return w.done
}
