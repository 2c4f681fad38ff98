package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"btools/lib/coordinator/pending"
	"btools/lib/jsonrpc"
	"btools/lib/nowait"
)

// maxUnread bounds what waits for a host that does not read, in bytes.
const maxUnread = 64 << 20

// hungUpEvery is how often it is looked whether the host has gone, once it has
// ended its messages.
const hungUpEvery = 100 * time.Millisecond

// ServeStdio serves one host on two streams, until its end of file, and until
// what was asked before that is answered and read, or until the context ends
// or nobody can read an answer. What it returns ends the session, and says why
// something could not be written.
func (c *Coordinator) ServeStdio(ctx context.Context, in io.Reader, out *os.File) (end func() error) {
	nowait.SetPipeSize(out, pipeSize)
	w := jsonrpc.NewWriter(out, maxUnread, tryShared(out))
	var batches batches
	s := c.NewSession(func(to json.RawMessage, last bool, b []byte) {
		if b = batches.hold(string(to), last, b); b != nil {
			w.Write(b, true)
		}
	})
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := jsonrpc.NewReader(in); ; {
			line, err := lines.Line()
			if errors.Is(err, jsonrpc.ErrTooLong) {
				w.Write(jsonrpc.Failure(nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "%v", err)), true)
				continue
			}
			if err != nil {
				return
			}
			if line[0] == '[' && json.Valid(line) {
				if answer := batches.handle(s, line); answer != nil {
					w.Write(answer, true)
				}
				continue
			}
			s.Handle(line)
		}
	}()
	select {
	case <-read:
		s.silent()
		reads, stop := whileRead(ctx, out)
		drain, cancel := context.WithTimeout(reads, c.Limits.Drain)
		s.Drain(drain)
		w.Await(reads, w.Idle(), c.Limits.Flush)
		cancel()
		stop()
	case <-w.Done():
	case <-ctx.Done():
	}
	return func() error {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			s.Close()
		}()
		err := w.Await(context.Background(), closed, c.Limits.Flush)
		done := w.Close() // who waits to say something does no more
		<-closed
		if err == nil {
			err = w.Await(context.Background(), done, c.Limits.Flush)
		}
		if err = cmp.Or(err, w.Lost()); err != nil {
			return fmt.Errorf("cannot write the last messages to the host: %w", err)
		}
		return nil
	}
}

// whileRead is a context that ends when nobody can read what is written to a
// file any more. Who asked stops it.
func whileRead(ctx context.Context, out *os.File) (reads context.Context, stop func()) {
	reads, cancel := context.WithCancel(ctx)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		defer cancel()
		for reads.Err() == nil && !hungUp(out) {
			select {
			case <-reads.Done():
			case <-time.After(hungUpEvery):
			}
		}
	}()
	return reads, func() {
		cancel()
		<-looked
	}
}

// silent says that the host answers nothing any more: what children have asked
// it fails, and what they will.
func (s *Session) silent() {
	var asks []serverRequest
	s.read(func(t *table) { asks = t.Mute() })
	for _, a := range asks {
		a.Child.in.Write(jsonrpc.Failure(a.ID, pending.ErrMuted), false)
	}
}
