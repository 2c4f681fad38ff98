package child

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"btools/lib/nowait"
	"btools/lib/owned"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/wsl"
)

// Program is a child MCP server that runs, as its streams and its end: a process,
// or a goroutine.
type Program interface {
	Input() io.WriteCloser // what it reads
	Output() io.ReadCloser
	// TryWrite is what writes to its input without waiting, or nil.
	TryWrite() func([]byte) (int, error)
	// Ended has one value when it has ended: an error as of exec.Cmd.Wait.
	Ended() <-chan error
	// End asks it, and what it has started, to end.
	End()
	Kill()
	// Sweep kills what it has left behind, after its end.
	Sweep() error
	// Free lets go what was only for it, after its end.
	Free()
	PID() int
}

// Starter starts a child for a browser. What it says on standard error goes to stderr.
type Starter func(ctx context.Context, spec *Spec, b Endpoint, stderr io.Writer) (Program, error)

// execution is a program that is a process.
type execution struct {
	proc *owned.Process
	mark string // in the environment of all that it starts
	in   *os.File
	out  *os.File
	port *sibling.Browser // bproxy, whose port is the browser's for it alone; nil: it needs none
	wide *atomic.Int32    // counts it, as its pipes are wide; nil: they are not
}

func (x *execution) Input() io.WriteCloser { return x.in }
func (x *execution) Output() io.ReadCloser { return x.out }
func (x *execution) Ended() <-chan error   { return x.proc.Ended }
func (x *execution) Kill()                 { x.proc.Kill() }
func (x *execution) PID() int              { return x.proc.PID() }

func (x *execution) TryWrite() func([]byte) (int, error) {
	if w := nowait.NewWriter(x.in); w != nil {
		return w.Write
	}
	return nil
}

// End has hold end it, and what it has started.
func (x *execution) End() { x.proc.Release() }

// Sweep finds nothing, unless hold was killed.
func (x *execution) Sweep() error {
	_, err := proc.KillMarked(x.mark, "", sweepBound)
	return err
}

func (x *execution) Free() {
	if x.wide != nil {
		x.wide.Add(-1)
	}
	if x.port != nil {
		x.port.Stop()
	}
}

// Programs starts children as processes, which are bound to this one. The zero value has
// no directory for npx, and so no packages.
type Programs struct {
	NpxDir string          // that npx runs in; "": there is none
	Env    func() []string // what children find in their environment besides ours
	Stop   time.Duration   // as of Limits
	Stderr io.Writer       // what npx says
	Log    *slog.Logger

	wide atomic.Int32 // children with wide pipes
	npm  npm
}

// maxWide is how many children have wide pipes. What pipes take is bounded for
// all that a user runs: more would leave too little to others (see
// pipe-user-pages-soft in pipe(7)).
const maxWide = 32

// sweepBound is how long what a child has left may take to die.
const sweepBound = 5 * time.Second

// Start is a Starter.
func (p *Programs) Start(ctx context.Context, spec *Spec, b Endpoint, stderr io.Writer) (Program, error) {
	if spec.URL != "" {
		return connect(spec)
	}
	var port *sibling.Browser
	var err error
	if spec.needsPort() && b.isBelow() {
		if port, b, err = p.portFor(ctx, b); err != nil {
			return nil, err
		}
	}
	x, err := p.run(ctx, spec, b, stderr)
	if err != nil {
		if port != nil {
			port.Stop()
		}
		return nil, err
	}
	x.port = port
	return x, nil
}

// portFor is a port for a browser whose endpoint is below another port's root,
// and the browser there.
func (p *Programs) portFor(ctx context.Context, b Endpoint) (*sibling.Browser, Endpoint, error) {
	port, err := sibling.Service(ctx, p.Stderr, "bproxy", "--target="+b.HTTPURL, "--listen=127.0.0.1:0",
		"--health-interval=0", "--log-level=warn")
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

func (p *Programs) run(ctx context.Context, spec *Spec, b Endpoint, stderr io.Writer) (*execution, error) {
	argv, env, dir, err := p.commandFor(ctx, spec, b)
	if err != nil {
		return nil, err
	}
	x := &execution{mark: "BTOOLS_CHILD=" + rand.Text()}
	cmd, err := hold(argv, append(env, x.mark), p.Stop)
	if err != nil {
		return nil, err
	}
	cmd.Dir, cmd.Stderr = dir, stderr
	// Pipes of our own: exec's are closed before what is in them is read.
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		inRead.Close()
		inWrite.Close()
		return nil, err
	}
	cmd.Stdin, cmd.Stdout = inRead, outWrite
	x.proc, err = owned.Start(cmd, false)
	inRead.Close()
	outWrite.Close()
	if err != nil {
		inWrite.Close()
		outRead.Close()
		return nil, fmt.Errorf("cannot run %s: %w", cmd.Path, err)
	}
	if p.wide.Add(1) <= maxWide {
		x.wide = &p.wide
		nowait.Widen(inWrite)
		nowait.Widen(outRead)
	} else {
		p.wide.Add(-1)
	}
	x.in, x.out = inWrite, outRead
	return x, nil
}

// commandFor is the command that runs a child, and the directory that it runs
// in; "" is the host's.
func (p *Programs) commandFor(ctx context.Context, spec *Spec, b Endpoint) (argv, env []string, dir string,
	err error) {
	argv, at := spec.command(b)
	env = append(os.Environ(), quietNpm)
	if p.Env != nil {
		env = append(env, p.Env()...)
	}
	env = append(env, at...)
	switch {
	case b.Windows:
		if spec.Package { // whose npx does without the host's directory, and so must the child
			argv = slices.Concat([]string{"npx", "-y"}, argv)
			if dir, err = p.npmDirectory(); err != nil {
				return nil, nil, "", err
			}
		}
		if argv, err = wsl.Node(ctx, os.Getenv, argv); err != nil {
			return nil, nil, "", fmt.Errorf("cannot run %s on Windows: %w", spec.Name, err)
		}
	case spec.Package:
		argv[0], err = p.packageProgram(ctx, spec.Argv[0], &stderrTail{name: spec.Name, log: p.Stderr})
	}
	return argv, env, dir, err
}

// hold is what runs a command by "bmcp hold", which takes along what the
// command has started when it ends.
func hold(argv, env []string, stop time.Duration) (*exec.Cmd, error) {
	path, err := lookPath(argv[0])
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, slices.Concat([]string{"hold"}, owned.BindArgs(),
		[]string{"--stop-timeout=" + stop.String(), "--", path}, argv[1:])...)
	cmd.Env = env
	return cmd, nil
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
