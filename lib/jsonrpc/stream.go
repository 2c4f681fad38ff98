package jsonrpc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/wait"
)

// MaxLine is the size in bytes of the longest message that is read: 64 MiB of
// what it carries, and what is around that. Relaying one costs about three
// times its size in memory.
const MaxLine = 64<<20 + small

// ErrTooLong says that a line is longer than MaxLine; it has been skipped.
var ErrTooLong = errors.New("a message is longer than 64 MiB")

// Reader reads messages, one a line.
type Reader struct {
	in   io.Reader
	buf  []byte // what is read and not given out yet
	next int    // where to look for the end of the line
	skip bool   // the rest of a line that is too long
	size int    // of buffers, by what came
	err  error
}

// small is the size in bytes of lines that are copied out of the buffer; of a
// longer one the buffer itself is given out.
const small = 64 << 10

// NewReader returns a reader.
func NewReader(in io.Reader) *Reader {
	return &Reader{in: in, size: 2 * small}
}

// trimmed returns a line without the spaces around it and without the byte order mark that programs of
// Windows begin a stream with.
func trimmed(line []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff")))
}

// Line is the next line that is not empty. The bytes are the caller's. At the
// end a line without a newline is returned too.
func (r *Reader) Line() ([]byte, error) {
	for {
		if i := bytes.IndexByte(r.buf[r.next:], '\n'); i >= 0 {
			end := r.next + i
			line, rest := r.buf[:end], r.buf[end+1:]
			skipped := r.skip
			r.next, r.skip = 0, false
			if len(line) <= small {
				line = append(make([]byte, 0, len(line)+1), line...)
				r.buf = rest
			} else {
				r.size = max(r.size/2, min(len(line)*5/4, 16<<20), 2*small)
				r.buf = append(make([]byte, 0, max(r.size, len(rest)*2)), rest...)
			}
			if skipped {
				return nil, ErrTooLong
			}
			if line = trimmed(line); len(line) > 0 {
				return line, nil
			}
			continue
		}
		r.next = len(r.buf)
		if r.err != nil {
			line := trimmed(r.buf)
			r.buf, r.next = nil, 0
			if len(line) > 0 && r.err == io.EOF && !r.skip {
				return line, nil
			}
			return nil, r.err
		}
		if len(r.buf) > MaxLine {
			r.skip, r.buf = true, nil
		}
		if r.skip {
			r.buf, r.next = r.buf[:0], 0
		}
		if cap(r.buf)-len(r.buf) < small/2 {
			room := min(2*len(r.buf), MaxLine) + small // no more than the longest message needs
			r.buf = append(make([]byte, 0, max(r.size, room)), r.buf...)
		}
		n, err := r.in.Read(r.buf[len(r.buf):cap(r.buf)])
		r.buf, r.err = r.buf[:len(r.buf)+n], err
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
	all  [][]byte      // that wait, with their newlines
	size int           // of these
	busy bool          // somebody writes
	err  error         // why no more is taken; nil: it is
	lost error         // why something was not written; nil: nothing was lost
	idle chan struct{} // closed when nothing waits; nil: nobody asks

	taken atomic.Int64 // bytes that were written
}

// Piece is how much is written at once, in bytes: that it was taken shows that
// somebody reads.
const Piece = 64 << 10

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
		w.taken.Add(int64(n))
		w.mu.Lock()
		w.busy = false
		if err != nil {
			w.loseLocked(err)
			w.more.Signal()
			return false
		}
		if message = message[n:]; len(message) == 0 {
			if len(w.all) > 0 || w.err != nil {
				w.more.Signal() // came meanwhile
			}
			w.idleLocked()
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

// loseLocked notes that what waits can't be written, nor what comes.
func (w *Writer) loseLocked(err error) {
	w.lost = cmp.Or(w.lost, err)
	w.failLocked(err)
	w.all = nil
	w.idleLocked()
}

// idleLocked tells who asks that nothing waits, if that is so.
func (w *Writer) idleLocked() {
	if w.idle != nil && !w.busy && len(w.all) == 0 {
		close(w.idle)
		w.idle = nil
	}
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
		err := w.write(all)
		w.mu.Lock()
		w.busy = false
		w.room.Broadcast()
		if err != nil {
			w.loseLocked(err)
		}
		w.idleLocked()
	}
}

func (w *Writer) write(all [][]byte) error {
	for _, message := range all {
		for part := range slices.Chunk(message, Piece) {
			n, err := w.out.Write(part)
			w.taken.Add(int64(n))
			if err != nil {
				return err
			}
		}
	}
	return nil
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

// Done is closed when nothing is written any more: after Close, or because it
// can't be.
func (w *Writer) Done() <-chan struct{} { return w.done }

// Idle is closed when nothing waits to be written.
func (w *Writer) Idle() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	idle := w.idle
	w.idleLocked()
	return idle
}

// Lost is why something that was given is not written, nil if all is.
func (w *Writer) Lost() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// ErrUnread says that nobody reads what is written.
var ErrUnread = errors.New("it is not read")

// Await returns when until is closed. While something waits to be written and
// nothing of it is taken for as long as patience says, that is ErrUnread; the
// end of the context is its cause.
func (w *Writer) Await(ctx context.Context, until <-chan struct{}, patience time.Duration) error {
	return Moving(ctx, until, patience, func() (int64, bool) { return w.taken.Load(), !wait.Closed(w.Idle()) })
}

// Moving returns when until is closed, or with ErrUnread when for as long as
// patience says something waited, and the number of bytes that were taken of it
// stayed the same. The end of the context is its cause.
func Moving(ctx context.Context, until <-chan struct{}, patience time.Duration,
	look func() (taken int64, waits bool)) error {
	const looks = 8 // in that time
	tick := time.NewTicker(patience / looks)
	defer tick.Stop()
	before, _ := look()
	for quiet := 0; quiet <= looks; {
		select {
		case <-until:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		taken, waits := look()
		if quiet++; taken != before || !waits {
			before, quiet = taken, 0
		}
	}
	return ErrUnread
}
