package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/launcher"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/wsl"
)

// host is what a child's own requests and notifications reach.
type host interface {
	fromChild(p *process, m *jsonrpc.Message)
	childEnded(p *process)
}

// process is a child MCP server that runs.
type process struct {
	child   *Child
	browser Browser
	caps    json.RawMessage // see kid
	host    host

	can   json.RawMessage // its capabilities, once it is initialized
	cmd   *exec.Cmd
	mark  string // in the environment of all that it starts
	bind  *os.File
	input *os.File
	in    *jsonrpc.Writer
	port  *launcher.Browser // bproxy, whose port is the browser's for it alone; nil: it needs none
	wide  chan struct{}     // has a place for its pipes, which are wide; nil: they are not
	ended chan struct{}     // closed when it has ended and every call is answered

	mu    sync.Mutex
	last  int64
	quiet int // the least severe of levels that it does not log, for hosts of the stateless protocol
	calls map[int64]call
	// forgotten are calls that were cancelled and are not answered, in whose
	// course the child may still ask something.
	forgotten idSet
	curious   atomic.Bool // it has asked a host of the stateless protocol
	why       error       // it has ended, or is of no use
	ping      time.Time   // of the last one that it answered
	words     lastWords
}

// stopGrace is how long a child may take to end after the end of its input,
// and again after TERM.
const stopGrace = 2 * time.Second

// maxWaiting bounds what waits for a child that does not read, in bytes.
const maxWaiting = 64 << 20

// maxWide is how many children have wide pipes. What pipes take is bounded for
// all that a user runs: more would leave too little to others (see
// pipe-user-pages-soft in pipe(7)).
const maxWide = 32

// sweepBound is how long what a child has left may take to die.
const sweepBound = 5 * time.Second

// maxChecked is the size in bytes of messages that are checked to be JSON: of
// longer ones that takes longer than all the rest.
const maxChecked = 64 << 10

var errNoJSON = errors.New("it is no JSON")

// errBusy says that a child does not read what it is sent.
var errBusy = errors.New("it does not read what it is sent")

// hold is what runs a command by "bmcp hold", which ends with us, whatever ends
// us, and takes what the command has started along; or when bind is closed. The
// caller closes held once it runs.
func hold(argv, env []string) (cmd *exec.Cmd, bind, held *os.File, err error) {
	path, err := lookPath(argv[0])
	if err != nil {
		return nil, nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	if held, bind, err = os.Pipe(); err != nil {
		return nil, nil, nil, err
	}
	cmd = exec.Command(self, slices.Concat([]string{"hold", "--bind-fd=3", "--stop-timeout=" + stopGrace.String(), "--", path}, argv[1:])...)
	cmd.Env, cmd.ExtraFiles, cmd.SysProcAttr, cmd.WaitDelay = env, []*os.File{held}, ownGroup(), time.Second
	return cmd, bind, held, nil
}

// lookPath finds a program, or says what to do.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	var what *exec.Error
	if errors.As(err, &what) {
		err = what.Err
	}
	var where *fs.PathError
	switch {
	case errors.As(err, &where):
		err = where.Err
	case name == "npx":
		err = errors.New("not found on PATH: install Node.js, which has it")
	case errors.Is(err, exec.ErrNotFound) && !strings.Contains(name, "/"):
		err = fmt.Errorf("not found on PATH; for an npm package, write npx %s", name)
	}
	return "", fmt.Errorf("cannot run %s: %w", name, err)
}

// closedGrace is how long a child may take to end after it has closed its
// input.
const closedGrace = time.Second

// startProcess runs a child for a browser.
func (c *Coordinator) startProcess(ctx context.Context, child *Child, b Browser, caps json.RawMessage, h host) (*process, error) {
	var port *launcher.Browser
	var err error
	if child.needsPort() && b.isBelow() {
		if port, b, err = c.portFor(ctx, b); err != nil {
			return nil, err
		}
	}
	p, err := c.runProcess(ctx, child, b, caps, h, port)
	if err != nil && port != nil {
		port.Stop()
	}
	return p, err
}

// portFor is a port for a browser whose endpoint is below another port's root,
// and the browser there.
func (c *Coordinator) portFor(ctx context.Context, b Browser) (*launcher.Browser, Browser, error) {
	port, err := startService(ctx, c.Stderr, "bproxy", "--target="+b.HTTPURL, "--listen=127.0.0.1:0", "--health-interval=0", "--log-level=warn")
	if err != nil {
		return nil, b, fmt.Errorf("cannot start bproxy: %w", err)
	}
	var at record.Proxy
	if _, err := port.Record.Get("proxy", &at); err != nil {
		port.Stop()
		return nil, b, err
	}
	b.HTTPURL, b.WSURL, b.Port = at.HTTPURL, at.WSURL, at.Port
	return port, b, nil
}

func (c *Coordinator) runProcess(ctx context.Context, child *Child, b Browser, caps json.RawMessage, h host, port *launcher.Browser) (*process, error) {
	argv, env := child.command(b)
	dir := "" // the host's
	var err error
	switch {
	case b.Windows:
		if child.Package { // whose npx does without the host's directory, and so must the child
			argv = slices.Concat([]string{"npx", "-y"}, argv)
			if dir, err = c.npm.directory(); err != nil {
				return nil, err
			}
		}
		if argv, err = wsl.Node(ctx, os.Getenv, argv); err != nil {
			return nil, fmt.Errorf("cannot run %s on Windows: %w", child.Name, err)
		}
	case child.Package:
		if argv[0], err = c.npm.program(ctx, child.Argv[0], &lastWords{name: child.Name, log: c.Stderr}); err != nil {
			return nil, err
		}
	}
	p := &process{child: child, browser: b, caps: caps, host: h, port: port, ended: make(chan struct{}), quiet: len(levels), calls: map[int64]call{}}
	p.words.name, p.words.log = child.Name, c.Stderr
	p.mark = "BTOOLS_CHILD=" + rand.Text()
	var held *os.File
	if p.cmd, p.bind, held, err = hold(argv, append(env, p.mark)); err != nil {
		return nil, err
	}
	defer held.Close()
	bind := p.bind
	p.cmd.Dir, p.cmd.Stderr = dir, &p.words
	// Pipes of our own: exec's are closed before what is in them is read.
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		bind.Close()
		return nil, err
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		inRead.Close()
		inWrite.Close()
		bind.Close()
		return nil, err
	}
	p.cmd.Stdin, p.cmd.Stdout = inRead, outWrite
	wait, err := proc.StartTied(p.cmd, syscall.SIGTERM)
	inRead.Close()
	outWrite.Close()
	if err != nil {
		inWrite.Close()
		outRead.Close()
		bind.Close()
		return nil, fmt.Errorf("cannot run %s: %w", p.cmd.Path, err)
	}
	select {
	case c.wide <- struct{}{}:
		p.wide = c.wide
		widen(inWrite)
		widen(outRead)
	default:
	}
	p.input, p.in = inWrite, jsonrpc.NewWriter(inWrite, maxWaiting, tryWrite(inWrite))
	go p.run(outRead, wait)
	return p, nil
}

// run reads what the child says until it has ended.
func (p *process) run(out *os.File, wait <-chan error) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(jsonrpc.NewReader(out))
		p.bind.Close() // it says nothing any more
	}()
	err := p.wait(wait)
	p.bind.Close()
	// Nothing is left, unless hold was killed.
	if _, err := proc.KillMarked(p.mark, "", sweepBound); err != nil {
		p.words.say(err.Error())
	}
	select {
	case <-read:
	case <-time.After(time.Second): // somebody else has its output
		out.Close()
		<-read
	}
	out.Close()
	p.in.Close()
	p.input.Close()
	if p.wide != nil {
		<-p.wide
	}
	if p.port != nil {
		p.port.Stop()
	}
	p.fail(p.words.ending(p.child.Name, err))
	p.mu.Lock()
	calls, why := p.calls, p.why
	p.calls = nil
	p.mu.Unlock()
	p.host.childEnded(p) // before somebody hears of it and calls again
	for _, c := range calls {
		c.answer(nil, why)
	}
	close(p.ended)
}

// wait waits until the child has ended. One that has only closed its input is
// of no use any more, and is ended.
func (p *process) wait(ended <-chan error) error {
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
	case <-time.After(closedGrace):
	}
	p.fail(fmt.Errorf("child %s has closed its input", p.child.Name))
	p.bind.Close()
	return <-ended
}

func (p *process) read(lines *jsonrpc.Reader) {
	for {
		line, err := lines.Line()
		if errors.Is(err, jsonrpc.ErrTooLong) {
			p.fail(fmt.Errorf("child %s: %w", p.child.Name, err))
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
			p.host.fromChild(p, m)
			continue
		}
		var answer func(*jsonrpc.Message, error)
		ours := false
		if m != nil && m.Method == "" {
			answer, ours = p.answerTo(m.ID)
		}
		switch {
		case err != nil:
			p.words.say("not a message on standard output: " + clip(line))
			if answer != nil {
				answer(nil, fmt.Errorf("child %s answers what is no JSON", p.child.Name))
			}
		case answer != nil:
			answer(m, nil)
		case !ours:
			p.words.say("an answer to no question, with the id " + clip(m.ID))
		}
	}
}

// fail notes why the child is of no use.
func (p *process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == nil {
		p.why = err
	}
}

// gone is why the child is of no use, nil if it lives.
func (p *process) gone() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.why
}

// stop ends the child: it is told by the end of its input, then by TERM, then
// killed. It returns when the child has ended.
func (p *process) stop() {
	p.fail(fmt.Errorf("child %s was stopped", p.child.Name))
	written := p.in.Close()
	select {
	case <-written:
	case <-time.After(stopGrace):
	case <-p.ended:
	}
	p.input.Close()
	select {
	case <-p.ended:
		return
	case <-time.After(stopGrace):
	}
	p.bind.Close() // hold ends it, and what it has started
	select {
	case <-p.ended:
	case <-time.After(2*stopGrace + launcher.Margin):
		p.cmd.Process.Kill()
		<-p.ended
	}
}
