package coordinator

import (
	"context"
	"errors"
	"io"
	"os"

	"btools/lib/jsonrpc"
)

// maxUnread bounds what waits for a host that does not read, in bytes.
const maxUnread = 64 << 20

// ServeStdio serves one host on two streams, until its end of file, or until
// the context ends. What is being answered at the end of file is answered
// first, within the context of drain.
func (c *Coordinator) ServeStdio(ctx, drain context.Context, in io.Reader, out *os.File) {
	widen(out)
	w := jsonrpc.NewWriter(out, maxUnread, out.Write)
	s := c.NewSession(func(b []byte) { w.Write(b, true) })
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
		s.Drain(drain)
	case <-ctx.Done():
	}
	written := w.Close()
	s.Close()
	select {
	case <-written:
	case <-drain.Done():
	}
}
