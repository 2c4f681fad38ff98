package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"btools/lib/jsonrpc"
)

// maxUnread bounds what waits for a host that does not read, in bytes.
const maxUnread = 64 << 20

// drainTimeout is how long requests may take to be answered after the host's
// end of file.
const drainTimeout = 30 * time.Second

// flushTimeout is how long the last messages may take to be read.
const flushTimeout = 2 * time.Second

// ServeStdio serves one host on two streams, until its end of file, and until
// what was asked before that is answered, or until the context ends. What it
// returns ends the session.
func (c *Coordinator) ServeStdio(ctx context.Context, in io.Reader, out *os.File) (end func()) {
	widen(out)
	w := jsonrpc.NewWriter(out, maxUnread, tryShared(out))
	s := c.NewSession(func(_ json.RawMessage, _ bool, b []byte) {
		if b != nil {
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
			s.Handle(line)
		}
	}()
	select {
	case <-read:
		drain, cancel := context.WithTimeout(ctx, drainTimeout)
		defer cancel()
		s.Drain(drain)
	case <-ctx.Done():
	}
	return func() {
		// A host that does not read holds up nothing.
		deaf := time.AfterFunc(flushTimeout, func() { w.Close() })
		s.Close()
		deaf.Stop()
		select {
		case <-w.Close():
		case <-time.After(flushTimeout):
		}
	}
}
