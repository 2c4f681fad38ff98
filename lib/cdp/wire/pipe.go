package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"sync"

	"btools/lib/jsonrpc"
)

// Pipe is a connection to a browser that was started with
// --remote-debugging-pipe: a NUL follows each message.
type Pipe struct {
	*Calls
	out  io.Writer
	done chan struct{} // closed when the browser has closed its end

	mu    sync.Mutex
	queue [][]byte
	wake  chan struct{} // of one element
	work  sync.WaitGroup
}

// NewPipe talks to the browser that reads what is written to out, until the end
// of in. One goroutine calls tell for the browser's events, in their order; it
// must not wait.
func NewPipe(in io.Reader, out io.Writer, tell func(p *Pipe, method, session string, params json.RawMessage)) *Pipe {
	p := &Pipe{out: out, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	p.Calls = NewCalls(p.enqueue)
	p.work.Go(p.write)
	p.work.Go(func() { p.read(in, tell) })
	return p
}

// Done is closed when the browser has closed its end.
func (p *Pipe) Done() <-chan struct{} { return p.done }

// Wait returns when the browser has closed its end and nothing is written any
// more.
func (p *Pipe) Wait() { p.work.Wait() }

func (p *Pipe) enqueue(message []byte) {
	p.mu.Lock()
	p.queue = append(p.queue, append(message, 0))
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// write sends queued messages. A browser that reads no more has ended, which
// its other end tells.
func (p *Pipe) write() {
	for {
		select {
		case <-p.wake:
		case <-p.done:
			return
		}
		p.mu.Lock()
		queue := p.queue
		p.queue = nil
		p.mu.Unlock()
		for _, m := range queue {
			if _, err := p.out.Write(m); err != nil {
				return
			}
		}
	}
}

func (p *Pipe) read(in io.Reader, tell func(p *Pipe, method, session string, params json.RawMessage)) {
	defer p.End()
	defer close(p.done)
	for r := bufio.NewReaderSize(in, 64<<10); ; {
		m, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		m = bytes.TrimSuffix(m, []byte{0})
		if id, ok := IDOf(m); ok {
			p.Answered(id, m)
			continue
		}
		method, params := jsonrpc.GetString(m, "method"), jsonrpc.Get(m, "params")
		if method == "Target.detachedFromTarget" {
			p.FailSession(jsonrpc.GetString(params, "sessionId"))
		}
		tell(p, method, jsonrpc.GetString(m, "sessionId"), params)
	}
}
