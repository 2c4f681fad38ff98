// Package owned runs a program that this one holds: it ends with us, whatever
// ends us, and is stopped by asking before it is killed.
package owned

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"btools/lib/proc"
)

// Process is a program that runs in a process group of its own: a terminal's
// signals are for its owner, who decides, and a shell's pipeline ends as a
// whole.
type Process struct {
	// Ended has one value when the program has ended: the error of
	// exec.Cmd.Wait.
	Ended <-chan error

	cmd  *exec.Cmd
	bind *os.File // at whose end the program ends, if it watches it
}

// Start starts a command. Its descriptor 3, or its standard input if asInput
// says so, is a pipe that ends with us; BindArgs have a program of this project
// watch it. The command's ExtraFiles follow it. Where the kernel can, it sends TERM then, too.
func Start(cmd *exec.Cmd, asInput bool) (*Process, error) {
	read, bind, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	cmd.SysProcAttr = group()
	cmd.WaitDelay = time.Second // somebody else may hold its streams
	if asInput {
		cmd.Stdin = read
	} else {
		inherit(cmd, read)
	}
	ended, err := proc.StartTied(cmd, syscall.SIGTERM)
	if err != nil {
		bind.Close()
		return nil, err
	}
	return &Process{Ended: ended, cmd: cmd, bind: bind}, nil
}

// Write writes to the pipe, which a program reads that has it as its input.
func (p *Process) Write(b []byte) (int, error) { return p.bind.Write(b) }

// PID is the number of the program's process, and of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Release ends the pipe: the program is told that its owner is gone.
func (p *Process) Release() { p.bind.Close() }

// Step is one way to have a program end.
type Step struct {
	Do   func()
	Wait time.Duration   // for its end
	Cut  <-chan struct{} // when closed, the wait is over
}

// End takes one step after the other until ended is closed, and reports whether
// it is.
func End(ended <-chan struct{}, steps ...Step) bool {
	for _, s := range steps {
		s.Do()
		select {
		case <-ended:
			return true
		case <-time.After(s.Wait):
		case <-s.Cut:
		}
	}
	return false
}
