package coordinator

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"btools/lib/cli"
	"btools/lib/jsonrpc"
	"btools/lib/launcher"
	"btools/lib/proc"
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
	ended chan struct{} // closed when it has ended and every call is answered

	mu    sync.Mutex
	last  int64
	quiet int // the least severe of levels that it does not log, for hosts of the stateless protocol
	calls map[int64]func(*jsonrpc.Message, error)
	why   error // it has ended, or is of no use
	words lastWords
}

// stopGrace is how long a child may take to end after the end of its input,
// and again after TERM.
const stopGrace = 2 * time.Second

// maxWaiting bounds what waits for a child that does not read, in bytes.
const maxWaiting = 64 << 20

// sweepBound is how long what a child has left may take to die.
const sweepBound = 5 * time.Second

// maxChecked is the size in bytes of messages that are checked to be JSON: of
// longer ones that takes longer than all the rest.
const maxChecked = 64 << 10

var errNoJSON = errors.New("it is no JSON")

// errBusy says that a child does not read what it is sent.
var errBusy = errors.New("it does not read what it is sent")

// startProcess runs a child for a browser. It is run by "bmcp hold", which
// ends with us, whatever ends us, and takes what the child has started along.
func startProcess(c *Child, b Browser, caps json.RawMessage, h host, log io.Writer) (*process, error) {
	argv, env := c.command(b)
	if b.Windows {
		var err error
		if argv, err = wsl.Node(context.Background(), os.Getenv, argv); err != nil {
			return nil, fmt.Errorf("cannot run %s on Windows: %w", c.Name, err)
		}
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("cannot run %s: %w", argv[0], err)
	}
	argv[0] = path
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	read, bind, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	p := &process{child: c, browser: b, caps: caps, host: h, bind: bind, ended: make(chan struct{}), quiet: len(levels), calls: map[int64]func(*jsonrpc.Message, error){}}
	p.words.name, p.words.log = c.Name, log
	p.cmd = exec.Command(self, append([]string{"hold", "--bind-fd=3", "--stop-timeout=" + stopGrace.String(), "--"}, argv...)...)
	p.mark = "BTOOLS_CHILD=" + rand.Text()
	p.cmd.Env = append(env, p.mark)
	p.cmd.ExtraFiles = []*os.File{read}
	p.cmd.Stderr = &p.words
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = ownGroup()
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
	widen(inWrite)
	widen(outRead)
	p.cmd.Stdin, p.cmd.Stdout = inRead, outWrite
	wait, err := proc.StartTied(p.cmd, syscall.SIGTERM)
	inRead.Close()
	outWrite.Close()
	if err != nil {
		inWrite.Close()
		outRead.Close()
		bind.Close()
		return nil, fmt.Errorf("cannot run %s: %w", self, err)
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
	err := <-wait
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
	p.fail(p.words.ending(p.child.Name, err))
	p.mu.Lock()
	calls, why := p.calls, p.why
	p.calls = nil
	p.mu.Unlock()
	p.host.childEnded(p) // before somebody hears of it and calls again
	for _, answer := range calls {
		answer(nil, why)
	}
	close(p.ended)
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
		if m != nil && m.Method == "" {
			n, _ := strconv.ParseInt(string(m.ID), 10, 64)
			p.mu.Lock()
			answer = p.calls[n]
			delete(p.calls, n)
			p.mu.Unlock()
		}
		switch {
		case err != nil:
			p.words.say("not a message on standard output: " + clip(line))
			if answer != nil {
				answer(nil, fmt.Errorf("child %s answers what is no JSON", p.child.Name))
			}
		case answer == nil:
			p.words.say("an answer to no question, with the id " + clip(m.ID))
		default:
			answer(m, nil)
		}
	}
}

func clip(b []byte) string {
	if len(b) > 200 {
		return fmt.Sprintf("%q…", b[:200])
	}
	return fmt.Sprintf("%q", b)
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

// newID is an ID for a request to the child.
func (p *process) newID() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	return p.last
}

// relay sends a request as it is, but for its ID, which is a new one, and has
// its answer answered once.
func (p *process) relay(n int64, m *jsonrpc.Message, answer func(*jsonrpc.Message, error)) {
	p.mu.Lock()
	if p.why != nil {
		defer p.mu.Unlock()
		go answer(nil, p.why)
		return
	}
	p.calls[n] = answer
	p.mu.Unlock()
	if !p.in.Write(m.WithID(strconv.AppendInt(nil, n, 10)), false) {
		p.mu.Lock()
		_, open := p.calls[n]
		delete(p.calls, n)
		p.mu.Unlock()
		if open {
			go answer(nil, fmt.Errorf("child %s: %w", p.child.Name, errBusy))
		}
	}
}

// forget has the answer to a request dropped; it tells the child, which need
// not heed it.
func (p *process) forget(n int64, reason string) {
	p.mu.Lock()
	_, open := p.calls[n]
	if open {
		p.calls[n] = func(*jsonrpc.Message, error) {} // it may still come
	}
	p.mu.Unlock()
	if open {
		params, _ := json.Marshal(map[string]any{"requestId": n, "reason": reason})
		p.notify("notifications/cancelled", params)
	}
}

func (p *process) notify(method string, params json.RawMessage) {
	p.in.Write(jsonrpc.Request(nil, method, params), false)
}

// tell makes a request whose answer is of no interest, but to the log.
func (p *process) tell(method string, params json.RawMessage) {
	m, err := jsonrpc.Parse(jsonrpc.Request(json.RawMessage("0"), method, params))
	if err != nil {
		return
	}
	p.relay(p.newID(), m, func(m *jsonrpc.Message, err error) {
		if err == nil {
			err = errorOf(m)
		}
		if err != nil {
			p.words.say("it does not answer " + method + ": " + err.Error())
		}
	})
}

// logs has the child log messages of a level too.
func (p *process) logs(level int) {
	p.mu.Lock()
	more := level < p.quiet && jsonrpc.Get(p.can, "logging") != nil
	if more {
		p.quiet = level
	}
	p.mu.Unlock()
	if more {
		p.tell("logging/setLevel", jsonrpc.Set(nil, "level", quote(levels[level])))
	}
}

// call makes a request of our own, and returns its result. An error of the
// child is a *jsonrpc.Error.
func (p *process) call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	type reply struct {
		m   *jsonrpc.Message
		err error
	}
	got := make(chan reply, 1)
	m, err := jsonrpc.Parse(jsonrpc.Request(json.RawMessage("0"), method, params))
	if err != nil {
		return nil, err
	}
	n := p.newID()
	p.relay(n, m, func(m *jsonrpc.Message, err error) { got <- reply{m, err} })
	select {
	case r := <-got:
		if r.err != nil {
			return nil, r.err
		}
		return r.m.Result, errorOf(r.m)
	case <-ctx.Done():
		p.forget(n, context.Cause(ctx).Error())
		return nil, context.Cause(ctx)
	}
}

// errorOf is the error of a response, nil if it is none.
func errorOf(m *jsonrpc.Message) error {
	if m.Error == nil {
		return nil
	}
	e := &jsonrpc.Error{}
	if err := json.Unmarshal(m.Error, e); err != nil {
		e.Code, e.Message = jsonrpc.InternalError, string(m.Error)
	}
	return e
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

// lastWords passes a child's messages on, with its name in front, and keeps
// the last ones.
type lastWords struct {
	name string
	log  io.Writer
	mu   sync.Mutex
	tail []byte // at most 4 KiB, whole lines but for the last
	part []byte // of a line that has not ended
}

const maxPart = 8 << 10

func (w *lastWords) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tail = append(w.tail, b...)
	if len(w.tail) > 4<<10 {
		w.tail = append([]byte(nil), w.tail[len(w.tail)-4<<10:]...)
	}
	w.part = append(w.part, b...)
	for {
		i := bytes.IndexByte(w.part, '\n')
		if i < 0 && len(w.part) < maxPart {
			return len(b), nil
		}
		if i < 0 {
			i = maxPart - 1
		}
		fmt.Fprintf(w.log, "%s: %s\n", w.name, strings.TrimRight(string(w.part[:i+1]), "\r\n"))
		w.part = w.part[i+1:]
	}
}

func (w *lastWords) say(line string) { fmt.Fprintf(w, "%s\n", line) }

// ending says how a child ended, with the last thing that it said.
func (w *lastWords) ending(name string, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	how := "exited with 0"
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		how = exit.String()
		if n := exit.ExitCode() - cli.Signalled; n > 0 && n < 65 {
			how = fmt.Sprintf("killed by signal %d, %v", n, syscall.Signal(n))
		}
	}
	var said []string
	for _, l := range strings.Split(string(w.tail), "\n") {
		if l = strings.TrimSpace(l); l != "" {
			said = append(said, l)
		}
	}
	if len(said) > 3 {
		said = said[len(said)-3:]
	}
	if len(said) == 0 {
		return fmt.Errorf("child %s ended (%s)", name, how)
	}
	return fmt.Errorf("child %s ended (%s): %s", name, how, strings.Join(said, " | "))
}
