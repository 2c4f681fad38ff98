// Package sibling runs a program that launches a browser and holds it, such
// as "blaunch --wait": the program prints the browser's record, and the
// browser is there until the program ends.
package sibling

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"btools/lib/exit"
	"btools/lib/owned"
	"btools/lib/record"
	"btools/lib/tail"
	"btools/lib/wait"
	"btools/lib/wsl"
)

// Spec says what to run.
type Spec struct {
	Argv    []string        // the program and its arguments
	Input   *record.Record  // on its standard input; nil: none
	Timeout time.Duration   // from its start to the record
	Grace   time.Duration   // from SIGTERM to SIGKILL, to it and its process group
	Now     <-chan struct{} // closed: no grace any more
	Stderr  io.Writer       // gets its messages, and must not block
	Service bool            // it holds something else than a browser: any record will do
	// Once suppresses the program's own messages when the launch fails: the
	// error contains them.
	Once    bool
	Windows bool // it is a program of Windows, started from WSL: see WindowsBlaunch
	// Pipe has blaunch hand over the debugging pipe of the browser, which opens no
	// port then; see HasPipes. A Firefox keeps its port.
	Pipe bool
}

// killBound is how long SIGKILL may take to be seen to work.
const killBound = 5 * time.Second

// Browser is a browser and the program that holds it.
type Browser struct {
	Record   *record.Record
	Instance record.Instance // its host, port and protocol are always set

	spec     Spec
	program  *owned.Process // nil: it is somebody else's
	ended    chan struct{}  // closed when the program has ended
	err      error          // how, valid then
	messages tail.Tail
	pipe     *Pipe // nil: it has a port
}

// Pipe are our ends of the debugging pipe of a browser without a port, whose messages
// end with a byte 0. It ends when Commands is closed.
type Pipe struct{ Answers, Commands *os.File }

func (p *Pipe) close() {
	if p != nil {
		p.Answers.Close()
		p.Commands.Close()
	}
}

// Pipe returns the pipe of a browser without a port, nil if it has a port. It is
// closed when the browser ends.
func (b *Browser) Pipe() *Pipe { return b.pipe }

// HasPipes reports whether browsers can be driven by pipes on this system.
const HasPipes = runtime.GOOS != "windows"

// Sibling finds a program of this project: beside this one, else on PATH.
func Sibling(name string) (string, error) {
	if exe, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(exe), name+filepath.Ext(exe))
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &exit.Error{Code: exit.Unavailable,
			Err:  fmt.Errorf("cannot find %s, neither beside this program nor on PATH", name),
			Hint: "the programs of btools run one another: install all of them in one directory, or add that to PATH"}
	}
	return path, nil
}

// Margin is how much longer a program of this project gets than its own
// bounds, which are to hold first.
const Margin = 5 * time.Second

// Blaunch is the Spec that launches by blaunch --wait, bound to us, with
// these arguments besides; its messages go to stderr. The level "info" is
// raised to "warn": its usual words are ours to say.
func Blaunch(timeout, grace time.Duration, stderr io.Writer, level, format string, args []string) (Spec, error) {
	blaunch, err := Sibling("blaunch")
	if err != nil {
		return Spec{}, err
	}
	return blaunchSpec(blaunch, timeout, grace, stderr, level, format, slices.Concat(owned.BindArgs(), args)), nil
}

func blaunchSpec(path string, timeout, grace time.Duration, stderr io.Writer, level, format string,
	args []string) Spec {
	if level == "info" {
		level = "warn"
	}
	argv := []string{path, "--wait", "--output=json", "--timeout=" + timeout.String(), "--stop-timeout=" +
		grace.String(), "--log-level=" + level, "--log-format=" + format}
	return Spec{Argv: slices.Concat(argv, args), Timeout: timeout + Margin, Grace: grace + Margin, Stderr: stderr,
		Once: level != "debug"}
}

// Foreign is a browser that somebody else holds: it never ends, and Stop does
// nothing.
func Foreign(rec *record.Record) (*Browser, error) {
	i, err := Endpoint(rec)
	if err != nil {
		return nil, err
	}
	return &Browser{Record: rec, Instance: i, ended: make(chan struct{})}, nil
}

// Launch runs the program and returns once it has printed a record. When it
// fails, the time is over, or the context ends, the program is stopped first.
func Launch(ctx context.Context, spec Spec) (*Browser, error) {
	b := &Browser{spec: spec, ended: make(chan struct{})}
	var pipe *Pipe
	var theirs []*os.File
	if spec.Pipe {
		var err error
		if pipe, theirs, err = openPipe(); err != nil {
			return nil, err
		}
		spec.Argv = append(slices.Clone(spec.Argv), "--pipe-fd=4") // 3 is --bind-fd
		b.spec = spec
	}
	cmd := exec.Command(spec.Argv[0], spec.Argv[1:]...)
	cmd.ExtraFiles = theirs
	said := &heldBack{to: spec.Stderr, through: !spec.Once}
	cmd.Stderr = io.MultiWriter(&b.messages, said)
	if spec.Input != nil {
		cmd.Stdin = bytes.NewReader(spec.Input.Line())
	}
	lines := newFirstLine()
	cmd.Stdout = lines
	if ctx.Err() != nil {
		closeAll(theirs)
		pipe.close()
		return nil, context.Cause(ctx)
	}
	var err error
	began := time.Now()
	b.program, err = owned.Start(cmd, spec.Windows)
	closeAll(theirs)
	if err != nil {
		pipe.close()
		return nil, &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("cannot run %s: %w", spec.Argv[0],
			wsl.Explain(err))}
	}
	go func() {
		b.err = <-b.program.Ended
		b.program.Release()
		pipe.close() // the end of a browser that blaunch could not stop
		b.sweep()
		close(b.ended)
	}()
	late := time.NewTimer(spec.Timeout)
	defer late.Stop()
	select {
	case line := <-lines.first:
		err = b.take(line)
	case <-b.ended:
		select {
		case line := <-lines.first:
			if err = b.take(line); err == nil {
				err = b.failure("ended at once")
			}
		default:
			err = b.failure("printed no record")
		}
	case <-late.C:
		err = &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("%s printed no record within %v", b.name(),
			spec.Timeout)}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil && pipe != nil && b.Instance.Port == 0 {
		b.pipe = pipe
		err = b.awaitPipe(ctx, began)
	} else {
		pipe.close()
	}
	if err == nil && spec.Windows {
		err = b.fromWindows(ctx)
	}
	if err != nil {
		b.Stop()
		return nil, err
	}
	said.release()
	return b, nil
}

// openPipe makes a debugging pipe, with the browser's ends.
func openPipe() (*Pipe, []*os.File, error) {
	commands, ours, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	answers, theirs, err := os.Pipe()
	if err != nil {
		commands.Close()
		ours.Close()
		return nil, nil, err
	}
	return &Pipe{Answers: answers, Commands: ours}, []*os.File{commands, theirs}, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// awaitPipe waits until the browser answers on its pipe. It reads the answer and
// nothing else: the browser sends no more before it is asked.
func (b *Browser) awaitPipe(ctx context.Context, began time.Time) error {
	bound := b.spec.Timeout - Margin
	b.pipe.Answers.SetReadDeadline(began.Add(bound))
	defer context.AfterFunc(ctx, func() { b.pipe.Answers.SetReadDeadline(time.Unix(1, 0)) })()
	_, err := b.pipe.Commands.Write([]byte(`{"id":1,"method":"Browser.getVersion"}` + "\x00"))
	for buf := make([]byte, 4096); err == nil; {
		var n int
		if n, err = b.pipe.Answers.Read(buf); n > 0 && buf[n-1] == 0 {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		return b.pipe.Answers.SetReadDeadline(time.Time{})
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &exit.Error{Code: exit.TryAgain,
			Err:  fmt.Errorf("cannot launch: the browser has not answered on its pipe after %v", bound),
			Hint: "a slow machine may need a longer --timeout"}
	}
	select {
	case <-b.ended: // and has said why
		return b.failure("ended at once")
	case <-time.After(b.spec.Grace):
		return fmt.Errorf("cannot launch: the browser has closed its pipe: %w", err)
	}
}

func (b *Browser) name() string { return filepath.Base(b.spec.Argv[0]) }

// take reads the record.
func (b *Browser) take(line []byte) error {
	rec, err := record.Parse(line)
	if err == nil {
		b.Record = rec
		if b.spec.Service {
			return nil
		}
		b.Instance, err = b.instance(rec)
	}
	if err != nil {
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("%s printed no record of a browser: %w", b.name(), err)}
	}
	return nil
}

// instance returns the instance of the record, which may have no port if it has a
// pipe.
func (b *Browser) instance(rec *record.Record) (record.Instance, error) {
	if !b.spec.Pipe {
		return Endpoint(rec)
	}
	var i record.Instance
	if ok, err := rec.Get("instance", &i); err != nil || !ok || i.Port != 0 {
		return Endpoint(rec)
	}
	return i, nil
}

// Endpoint is the instance of a record with its host, port and protocol
// filled in, from its addresses if need be.
func Endpoint(rec *record.Record) (record.Instance, error) {
	var i record.Instance
	if ok, err := rec.Get("instance", &i); err != nil {
		return i, err
	} else if !ok {
		return i, errors.New("it has no instance")
	}
	for _, s := range []string{i.WSURL, i.HTTPURL} {
		if s == "" || i.Port != 0 && i.Host != "" {
			continue
		}
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "ws" && u.Scheme != "http" {
			return i, fmt.Errorf("its instance has the address %q, which is neither ws:// nor http://", s)
		}
		if i.Host == "" {
			i.Host = u.Hostname()
		}
		if i.Port == 0 {
			if i.Port, _ = strconv.Atoi(u.Port()); u.Port() == "" {
				i.Port = 80
			}
		}
	}
	if i.Host == "" {
		i.Host = "127.0.0.1"
	}
	if i.Port < 1 || i.Port > 65535 {
		return i, errors.New("its instance has no port and no ws_url")
	}
	if i.Protocol == "" {
		i.Protocol = record.CDP
	}
	return i, nil
}

// Addr is the host:port of an instance; "": it has no port.
func Addr(i record.Instance) string {
	if i.Port == 0 {
		return ""
	}
	return net.JoinHostPort(i.Host, strconv.Itoa(i.Port))
}

// failure says why the program ended without a browser, by its own messages.
func (b *Browser) failure(what string) error {
	code := exit.Failed
	words := "exited with 0"
	var ended *exec.ExitError
	if errors.As(b.err, &ended) {
		words = ended.Error()
		switch ended.ExitCode() {
		case exit.Unavailable, exit.TryAgain, exit.Config:
			code = ended.ExitCode()
		case exit.Usage, exit.Data:
			code = ended.ExitCode()
		case exit.NotFound, exit.CannotRun: // a shell's
			code = exit.Unavailable
		}
	}
	reason, hint := reasonIn(b.messages.Lines(), b.name())
	if reason == "" {
		reason = fmt.Sprintf("%s %s (%s)", b.name(), what, words)
	}
	return &exit.Error{Code: code, Err: errors.New(reason), Hint: hint}
}

// Ended is closed when the program has ended, and the browser with it.
func (b *Browser) Ended() <-chan struct{} { return b.ended }

// Err is how the program ended, once Ended is closed: nil if well.
func (b *Browser) Err() error {
	var ended *exec.ExitError
	if errors.As(b.err, &ended) {
		if reason, _ := reasonIn(b.messages.Lines(), b.name()); reason != "" && ended.ExitCode() > 0 {
			return errors.New(reason)
		}
	}
	if errors.Is(b.err, exec.ErrWaitDelay) {
		return nil
	}
	return b.err
}

// Stop tells the program to end and returns when it has, or can't be killed.
func (b *Browser) Stop() {
	if b.program == nil {
		return
	}
	defer b.program.Release()
	b.pipe.close()            // its end is the cleanest way for the browser to end
	if wait.Closed(b.ended) { // and its number may be somebody else's
		return
	}
	ask := b.program.Terminate
	if b.spec.Windows {
		ask = b.program.Release // a signal would end it at once
	}
	if owned.End(b.ended, owned.Step{Do: ask, Wait: b.spec.Grace, Cut: b.spec.Now}) {
		return
	}
	// It has a grace of its own, which a second word cuts short.
	if wait.Closed(b.spec.Now) && owned.End(b.ended, owned.Step{Do: b.program.Terminate, Wait: killBound}) {
		return
	}
	b.program.Release()
	owned.End(b.ended, owned.Step{Do: b.program.Kill, Wait: killBound})
}

// sweep ends what the program has left of its process group.
func (b *Browser) sweep() {
	gone := func(within time.Duration) bool {
		for end := time.Now().Add(within); b.program.GroupLives(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				return false
			}
		}
		return true
	}
	if gone(0) {
		return
	}
	b.program.Terminate()
	if !gone(b.spec.Grace) {
		b.program.Kill()
		gone(killBound)
	}
}

// reasonIn is the last messages, in one line, and the hint among them: the last
// one of the program, with what follows it, or the end of what others said.
func reasonIn(lines []string, program string) (reason, hint string) {
	const most = 4 // lines: more is a log
	first := max(0, len(lines)-most)
	for n, l := range lines {
		if strings.HasPrefix(l, program+": ") && !strings.HasPrefix(l, program+": hint: ") {
			first = n
		}
	}
	var said strings.Builder
	for _, l := range lines[first:] {
		l = strings.TrimPrefix(strings.TrimSpace(l), program+": ")
		if _, h, ok := strings.Cut(": "+l, ": hint: "); ok {
			hint = h
		} else if l != "" {
			switch s := said.String(); {
			case s == "":
			case strings.HasSuffix(s, ":"): // what it introduces
				said.WriteString(" ")
			default:
				said.WriteString("; ")
			}
			said.WriteString(l)
		}
	}
	return strings.ToValidUTF8(said.String(), "?"), hint
}

// heldBack keeps messages until they are released.
type heldBack struct {
	to      io.Writer
	mu      sync.Mutex
	kept    [][]byte
	size    int
	through bool
}

// maxHeldBack bounds what is kept, in bytes.
const maxHeldBack = 64 << 10

func (h *heldBack) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.through {
		return h.to.Write(b)
	}
	if h.size += len(b); h.size <= maxHeldBack {
		h.kept = append(h.kept, bytes.Clone(b))
	}
	return len(b), nil
}

func (h *heldBack) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.kept {
		h.to.Write(b)
	}
	h.kept, h.through = nil, true
}

// firstLine hands over the first line that is written to it, and drops the
// rest: the writer never blocks.
type firstLine struct {
	first chan []byte
	line  []byte
	done  bool
}

func newFirstLine() *firstLine { return &firstLine{first: make(chan []byte, 1)} }

func (f *firstLine) Write(p []byte) (int, error) {
	if f.done {
		return len(p), nil
	}
	line, _, found := bytes.Cut(p, []byte("\n"))
	f.line = append(f.line, line...)
	if found && len(bytes.TrimSpace(f.line)) == 0 {
		f.line = nil // a blank line
		rest := p[len(line)+1:]
		_, err := f.Write(rest)
		return len(p), err
	}
	if found || len(f.line) > record.MaxSize {
		f.done = true
		f.first <- f.line
	}
	return len(p), nil
}
