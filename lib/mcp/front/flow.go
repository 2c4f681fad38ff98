package front

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"btools/lib/jsonrpc"
)

// flow is what all hosts take by HTTP.
type flow struct {
	timeout time.Duration // of each piece
	taken   atomic.Int64  // bytes
	writing atomic.Int64  // responses that wait for their host to take something
}

// await waits for until while hosts take something of what is written, however
// slowly. It is an error if they do not.
func (f *flow) await(until <-chan struct{}, patience time.Duration) error {
	return jsonrpc.Moving(context.Background(), until, patience,
		func() (int64, bool) { return f.taken.Load(), f.writing.Load() > 0 })
}

// to is a response that takes as long as its host reads.
func (f *flow) to(w http.ResponseWriter) *outflow {
	return &outflow{f, w, http.NewResponseController(w)}
}

type outflow struct {
	flow *flow
	w    http.ResponseWriter
	c    *http.ResponseController
}

// Write writes in pieces. The host has the flow's timeout for each.
func (o *outflow) Write(b []byte) (n int, err error) {
	o.flow.writing.Add(1)
	defer o.flow.writing.Add(-1)
	for part := range slices.Chunk(b, jsonrpc.Piece) {
		o.c.SetWriteDeadline(time.Now().Add(o.flow.timeout))
		k, err := o.w.Write(part)
		n += k
		o.flow.taken.Add(int64(k))
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Flush implements eventlog.Writer.
func (o *outflow) Flush() error {
	o.flow.writing.Add(1)
	defer o.flow.writing.Add(-1)
	o.c.SetWriteDeadline(time.Now().Add(o.flow.timeout))
	return o.c.Flush()
}

// end leaves the connection as it was.
func (o *outflow) end() { o.c.SetWriteDeadline(time.Time{}) }
