//go:build unix

package launch

import (
	"io"
	"os"
	"runtime"
	"syscall"
	"time"
)

// child is the browser's main process and everything below it.
type child struct {
	pid    int
	pipe   *os.File      // the browser ends when this is closed; nil: it has none, or another program's
	answer *os.File      // the other direction, which nobody uses
	theirs bool          // the pipe is another program's
	exited chan struct{} // closed when the main process has been reaped
	gone   chan struct{} // closed when nothing of it is left
	status syscall.WaitStatus
	handle handle // of the main process
}

// hold is the argument that makes a Chromium end with our end of a pipe,
// however we end: it reads commands from fd 3 and leaves at end of file.
func (s *Spec) hold() []string { return []string{"--remote-debugging-pipe"} }

// spawn starts the browser in a process group of its own. Its output goes to
// out.
func spawn(s *Spec, argv, env []string, dir string, out *os.File) (*child, error) {
	c := &child{exited: make(chan struct{}), gone: make(chan struct{})}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), out.Fd(), out.Fd()}
	switch {
	case s.Pipe != nil:
		defer s.Pipe.Close() // the browser alone has them from now on
		if c.theirs = s.handsOver(); c.theirs {
			files = append(files, s.Pipe.Commands.Fd(), s.Pipe.Answers.Fd())
		}
	case !s.firefox():
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		r2, w2, err := os.Pipe()
		if err != nil {
			r.Close()
			w.Close()
			return nil, err
		}
		defer r.Close()
		defer w2.Close()
		c.pipe, c.answer = w, r2
		files = append(files, r.Fd(), w2.Fd())
	}
	started := make(chan error, 1)
	sys := groupOfItsOwn(s.Profile == "", c.pipe != nil || c.theirs)
	c.handle.ask(sys)
	go c.run(argv, &syscall.ProcAttr{Dir: dir, Env: env, Files: files, Sys: sys}, started)
	if err := <-started; err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// run starts the process and reaps it and all that it leaves to us. Its
// thread does nothing else and lives as long as they do: the kernel sends the
// death signal when the thread that forked ends, not the process
// (golang/go#27505).
func (c *child) run(argv []string, attr *syscall.ProcAttr, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, err := syscall.ForkExec(argv[0], argv, attr)
	c.pid = pid
	started <- err
	if err != nil {
		return
	}
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(reapFrom(pid), &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // ECHILD: all that was below us is gone
			awaitGroup(pid)
			close(c.gone)
			return
		case got == pid:
			c.status = status
			close(c.exited)
			c.handle.close()
		}
	}
}

// devtools returns the two directions of the browser's pipe, nil without one. ask
// and close close them.
func (c *child) devtools() (in io.Reader, out io.Writer) {
	if c.pipe == nil {
		return nil, nil
	}
	return c.answer, c.pipe
}

func (c *child) close() {
	for _, f := range []*os.File{c.pipe, c.answer} {
		if f != nil {
			f.Close()
		}
	}
}

// ask asks the browser to end: by its pipe, the cleanest way, and by SIGTERM,
// at once if the profile is not to be kept.
func (c *child) ask(keep bool, timeout time.Duration) {
	if c.pipe != nil {
		c.pipe.Close()
	} else if c.theirs && keep {
		c.signal(syscall.SIGINT)
	}
	if keep && (c.pipe != nil || c.theirs) {
		// Chromium takes 0.2 to 0.4 s to end by the pipe or by SIGINT and then leaves
		// nothing in the profile; by SIGTERM it leaves its lock.
		select {
		case <-c.exited:
			return
		case <-time.After(min(2*time.Second, timeout/2)):
		}
	}
	c.signal(syscall.SIGTERM)
}

// kill ends the whole group and whatever has left it. It is to be called
// again until gone is closed.
func (c *child) kill() {
	select {
	case <-c.gone:
		return
	default:
	}
	c.signal(syscall.SIGKILL)
	c.killRest()
}

// ending tells how the main process ended: its code (-1 by a signal), the
// signal, and both in words.
func (c *child) ending() (code, sig int, words string) {
	if c.status.Signaled() {
		s := c.status.Signal()
		return -1, int(s), "was killed by signal " + signalName(s)
	}
	return c.status.ExitStatus(), 0, "exited with code " + itoa(c.status.ExitStatus())
}
