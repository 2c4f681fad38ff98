package front

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/nowait"
)

// maxUnread bounds what waits for a host that does not read, in bytes.
const maxUnread = 64 << 20

// hungUpEvery is how often it is looked whether the host has gone, once it has
// ended its messages.
const hungUpEvery = 100 * time.Millisecond

// Stdio serves one host on two streams, until its end of file, and until what was
// asked before that is answered and read, or until the context ends or nobody can read
// an answer. What it returns ends the host, and says why something could not be
// written.
func Stdio(ctx context.Context, hosts Hosts, in io.Reader, out *os.File, limits Limits) (end func() error) {
	nowait.Widen(out)
	w := jsonrpc.NewWriter(out, maxUnread, tryShared(out))
	var batches batches
	host := hosts.New(func(to json.RawMessage, last bool, b []byte) {
		if b = batches.hold(string(to), last, b); b != nil {
			w.Write(b, true)
		}
	}, false)
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
			switch {
			case !json.Valid(line):
				w.Write(failure(nil, notJSON(line)), true)
			case line[0] == '[':
				if answer := batches.handle(host, line, limits.Batch); answer != nil {
					w.Write(answer, true)
				}
			default:
				host.Handle(jsonrpc.Parse(line))
			}
		}
	}()
	select {
	case <-read:
		host.Mute()
		reads, stop := whileRead(ctx, out)
		drain, cancel := context.WithTimeout(reads, limits.Drain)
		host.Drain(drain)
		w.Await(reads, w.Idle(), limits.Flush)
		cancel()
		stop()
	case <-w.Done():
	case <-ctx.Done():
	}
	return func() error {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			host.Close()
		}()
		err := w.Await(context.Background(), closed, limits.Flush)
		done := w.Close() // who waits to say something does no more
		<-closed
		if err == nil {
			err = w.Await(context.Background(), done, limits.Flush)
		}
		if err = cmp.Or(err, w.Lost()); err != nil {
			return fmt.Errorf("cannot write the last messages to the host: %w", err)
		}
		return nil
	}
}

// whileRead returns a context that ends when the file's reader has gone. The caller
// must call stop.
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
