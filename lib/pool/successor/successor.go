// Package successor replaces a running service by a new process of its program, which has the listening
// sockets from it. It says how they start, and what they tell each other by two pipes; what a service does
// before and after that is its own matter.
//
// The service starts a process in between, which starts the successor and ends at once: the successor's
// parent is then that of the service. Who is killed at any moment leaves nothing that waits for ever:
// without its successor the service goes on, and a successor that has lost the service takes its place.
package successor

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"btools/lib/control"
	"btools/lib/proc"
)

// variable tells a process what it is; descriptors from firstFD on are the pipes and the sockets.
const (
	variable = "BTOOLS_SUCCESSOR"
	firstFD  = 3
)

// handed is the value of the variable.
type handed struct {
	Between bool `json:"between,omitempty"`
	Sockets int  `json:"sockets"`
	// Note is for the service.
	Note string `json:"note,omitempty"`
}

// What they say, a line each. The rest of the line is its text.
const (
	pidIs  = "pid "   // the process in between: of the successor
	ready  = "ready"  // the successor
	failed = "error " // the successor
	serve  = "serve"  // the service: the sockets are the successor's
	launch = "launch" // the service: it has stopped what it has no use for
	stay   = "stay"   // the service: it goes on itself
)

// Heir is the successor, as the service sees it.
type Heir struct {
	Process proc.Identity
	to      *os.File
}

// Start starts a program, the first argument, with these sockets as the successor, and returns when it is
// ready. After an error nothing of it is left.
func Start(ctx context.Context, argv, env []string, note string, sockets []net.Listener) (*Heir, error) {
	var files []*os.File // of the successor
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	theirs, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, answers, err := os.Pipe()
	if err != nil {
		theirs.Close()
		to.Close()
		return nil, err
	}
	files = append(files, theirs, answers)
	h := &Heir{to: to}
	err = func() error {
		for _, l := range sockets {
			f, err := dup(l)
			if err != nil {
				return err
			}
			files = append(files, f)
		}
		between := command(ctx, argv, env, handed{true, len(sockets), note}, files)
		if err := between.Run(); err != nil {
			return fmt.Errorf("cannot start %s: %w", argv[0], cmp.Or(context.Cause(ctx), err))
		}
		for _, f := range files {
			f.Close()
		}
		return h.await(ctx, from)
	}()
	from.Close()
	if err != nil {
		h.Refuse()
		return nil, err
	}
	return h, nil
}

// await reads what the successor says until it is ready.
func (h *Heir) await(ctx context.Context, from *os.File) error {
	defer context.AfterFunc(ctx, func() { from.SetReadDeadline(time.Unix(1, 0)) })()
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		line := lines.Text()
		if pid, ok := strings.CutPrefix(line, pidIs); ok {
			n, _ := strconv.Atoi(pid)
			h.Process, _ = proc.Of(n) // if it has ended already, end of file follows
		}
		if why, ok := strings.CutPrefix(line, failed); ok {
			e := &control.Error{}
			if json.Unmarshal([]byte(why), e) != nil {
				return errors.New(why)
			}
			return e
		}
		if line == ready && h.Process.PID != 0 {
			return nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New("it ended before it was ready; its messages say why")
}

// Serve has the successor accept connections.
func (h *Heir) Serve() { io.WriteString(h.to, serve+"\n") }

// Launch has the successor launch its browsers, and is the last word.
func (h *Heir) Launch() {
	io.WriteString(h.to, launch+"\n")
	h.to.Close()
}

// Refuse ends the successor.
func (h *Heir) Refuse() {
	io.WriteString(h.to, stay+"\n")
	h.to.Close()
	if h.Process.PID != 0 {
		h.Process.Signal(syscall.SIGKILL)
	}
}

// command returns the command for a process of the program that has these files.
func command(ctx context.Context, argv, env []string, what handed, files []*os.File) *exec.Cmd {
	value, _ := json.Marshal(what)
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.ExtraFiles = files
	c.Env = append(env, variable+"="+string(value))
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c
}

// Predecessor is the service that runs, as its successor sees it; nil: there is none.
type Predecessor struct {
	Sockets []net.Listener
	Note    string
	// Serve is closed when the sockets are this process's, Launch when it may launch browsers.
	Serve, Launch chan struct{}
	// Stay is closed when the service goes on itself.
	Stay chan struct{}

	to *os.File
}

// Inherit returns the predecessor of this process. In the process in between it starts the successor, and
// does not return.
func Inherit() (*Predecessor, error) {
	value, is := os.LookupEnv(variable)
	if !is {
		return nil, nil
	}
	os.Unsetenv(variable)
	var what handed
	if err := json.Unmarshal([]byte(value), &what); err != nil {
		return nil, fmt.Errorf("%s is %q: %w", variable, value, err)
	}
	var files []*os.File
	for fd := firstFD; fd < firstFD+2+what.Sockets; fd++ {
		files = append(files, os.NewFile(uintptr(fd), "handed-"+strconv.Itoa(fd)))
	}
	from, to := files[0], files[1]
	if what.Between {
		what.Between = false
		c := command(context.Background(), os.Args, os.Environ(), what, files)
		if err := c.Start(); err != nil {
			fmt.Fprintf(to, "%s%v\n", failed, err)
		} else {
			fmt.Fprintf(to, "%s%d\n", pidIs, c.Process.Pid)
		}
		os.Exit(0)
	}
	proc.HideInherited()
	p := &Predecessor{Note: what.Note, to: to,
		Serve: make(chan struct{}), Launch: make(chan struct{}), Stay: make(chan struct{})}
	for _, f := range files[2:] {
		l, err := net.FileListener(f)
		f.Close()
		if err != nil {
			return nil, err
		}
		p.Sockets = append(p.Sockets, l)
	}
	go p.listen(from)
	return p, nil
}

// listen hears what the service says. Its end is its last word.
func (p *Predecessor) listen(from *os.File) {
	defer from.Close()
	lines, serves := bufio.NewScanner(from), false
	for lines.Scan() {
		switch lines.Text() {
		case stay:
			close(p.Stay)
			return
		case serve:
			close(p.Serve)
			serves = true
		}
	}
	if !serves {
		close(p.Serve)
	}
	close(p.Launch)
}

// Ready says that this process is ready, and returns when the sockets are its own.
func (p *Predecessor) Ready(ctx context.Context) error {
	io.WriteString(p.to, ready+"\n") // a service that has ended needs no word
	p.to.Close()
	p.to = nil
	select {
	case <-p.Serve:
		return nil
	case <-p.Stay:
		return errors.New("the service that runs goes on without this one")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Fail says why this process will not be ready, if it is not nil. After Ready it says nothing.
func (p *Predecessor) Fail(why error) {
	if p != nil && p.to != nil && why != nil {
		line, _ := json.Marshal(control.ErrorOf(why))
		fmt.Fprintf(p.to, "%s%s\n", failed, line)
	}
}
