// Package child is one child MCP server: how it is named, started, spoken to and
// stopped. It does not know hosts: who sends a request, who is told what the child
// says, and when a child is started again are the business of its callers.
package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/owned"
	"btools/lib/sibling"
)

// Receiver is what a child tells.
type Receiver interface {
	// FromChild is given each request and notification of the child, in their order.
	FromChild(m *jsonrpc.Message)
	// Ended is called when the child has ended, before its open calls are answered.
	Ended(why error)
}

// Process is a running child MCP server.
type Process struct {
	spec   *Spec
	to     Receiver
	limits Limits

	prog  Program
	in    *jsonrpc.Writer
	ended chan struct{} // closed when it has ended and every call is answered

	mu    sync.Mutex
	last  int64
	calls map[int64]call
	// forgotten are cancelled calls that are not answered, during which the child
	// may still send requests.
	forgotten idSet
	err       error // why it is useless; nil: it is running
	stderr    stderrTail
}

// Limits bound the end of a child.
type Limits struct {
	// Stop is how long it may take after the end of its input, and again after TERM. Closed
	// is the same for one that has closed its input.
	Stop, Closed time.Duration
}

// DefaultLimits are the limits of bmcp.
var DefaultLimits = Limits{Stop: 2 * time.Second, Closed: time.Second}

// maxWaiting is how many bytes wait for a child that does not read.
const maxWaiting = 64 << 20

// maxChecked is the size in bytes up to which messages are checked to be JSON:
// checking longer ones costs more than everything else.
const maxChecked = 64 << 10

var errNoJSON = errors.New("it is not valid JSON")

// errBusy means that a child does not read what it is sent.
var errBusy = errors.New("it does not read what it is sent")

// Start starts a child for a browser. The caller calls Run.
func Start(ctx context.Context, start Starter, spec *Spec, b Endpoint, to Receiver, stderr io.Writer,
	limits Limits) (*Process, error) {
	p := &Process{spec: spec, to: to, limits: limits, ended: make(chan struct{}), calls: map[int64]call{}}
	p.stderr.name, p.stderr.log = spec.Name, stderr
	var err error
	if p.prog, err = start(ctx, spec, b, &p.stderr); err != nil {
		return nil, err
	}
	p.in = jsonrpc.NewWriter(p.prog.Input(), maxWaiting, p.prog.TryWrite())
	return p, nil
}

// Run reads the child's messages until the child has ended.
func (p *Process) Run() {
	out := p.prog.Output()
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(jsonrpc.NewReader(out))
		p.prog.End() // it writes nothing any more
	}()
	err := p.wait()
	p.prog.End()
	if err := p.prog.Sweep(); err != nil {
		p.stderr.writeLine(err.Error())
	}
	select {
	case <-read:
	case <-time.After(time.Second): // somebody else has its output
		out.Close()
		<-read
	}
	out.Close()
	written := p.in.Close()
	p.prog.Input().Close()
	<-written
	p.prog.Free()
	p.fail(p.stderr.ending(p.spec.Name, err))
	p.mu.Lock()
	calls, why := p.calls, p.err
	p.calls = nil
	p.mu.Unlock()
	p.to.Ended(why) // before somebody hears of it and calls again
	for _, c := range calls {
		c.answer(nil, why)
	}
	close(p.ended)
}

// wait waits until the child has ended. A child that only closes its input is
// useless, and is ended.
func (p *Process) wait() error {
	ended := p.prog.Ended()
	select {
	case err := <-ended:
		return err
	case <-p.in.Done():
	}
	if p.in.Lost() == nil { // it is us who have closed it
		return <-ended
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(p.limits.Closed):
	}
	p.fail(fmt.Errorf("child %s has closed its input", p.spec.Name))
	p.prog.End()
	return <-ended
}

func (p *Process) read(lines *jsonrpc.Reader) {
	for {
		line, err := lines.Line()
		if errors.Is(err, jsonrpc.ErrTooLong) {
			p.fail(fmt.Errorf("child %s: %w", p.spec.Name, err))
			return
		}
		if err != nil {
			return
		}
		m, err := jsonrpc.Parse(line)
		if err == nil && len(line) <= maxChecked && !json.Valid(line) {
			err = errNoJSON
		}
		if err == nil && !m.IsResponse() {
			p.to.FromChild(m)
			continue
		}
		var answer func(*jsonrpc.Message, error)
		ours := false
		if m != nil && m.Method == "" {
			answer, ours = p.answerTo(m.ID)
		}
		switch {
		case err != nil:
			p.stderr.writeLine("not a message on standard output: " + jsonrpc.Clip(line))
			if answer != nil {
				answer(nil, fmt.Errorf("the answer of child %s is not valid JSON", p.spec.Name))
			}
		case answer != nil:
			answer(m, nil)
		case !ours:
			p.stderr.writeLine("an answer to no question, with the id " + jsonrpc.Clip(m.ID))
		}
	}
}

// fail notes why the child is useless.
func (p *Process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

// Gone returns why the child is useless, nil if it is running.
func (p *Process) Gone() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Done is closed when the child has ended and every call is answered.
func (p *Process) Done() <-chan struct{} { return p.ended }

func (p *Process) PID() int { return p.prog.PID() }

// Abort answers the open calls with an error and stops the child.
func (p *Process) Abort(err error) {
	p.fail(err)
	p.mu.Lock()
	calls := p.calls
	p.calls = nil
	p.mu.Unlock()
	for _, c := range calls {
		c.answer(nil, err)
	}
	p.Stop(nil)
}

// Stop ends the child: first by closing its input, then by TERM, then by KILL. It
// returns when the child has ended. A reason is what its calls are told; nil: there is none.
func (p *Process) Stop(reason error) {
	err := fmt.Errorf("child %s was stopped", p.spec.Name)
	if reason != nil {
		err = fmt.Errorf("%w: %w", err, reason)
	}
	p.fail(err)
	written := p.in.Close()
	select {
	case <-written:
	case <-time.After(p.limits.Stop):
	case <-p.ended:
	}
	owned.End(p.ended, owned.Step{Do: func() { p.prog.Input().Close() }, Wait: p.limits.Stop},
		owned.Step{Do: p.prog.End, Wait: 2*p.limits.Stop + sibling.Margin}, owned.Step{Do: p.prog.Kill})
	<-p.ended
}
