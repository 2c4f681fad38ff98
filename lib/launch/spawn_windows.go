package launch

import (
	"io"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// child is the browser's main process and, in its job, everything below it.
type child struct {
	pid    int
	job    windows.Handle // the kernel ends all in it when this is closed
	exited chan struct{}
	gone   chan struct{}
	code   int
}

// hold is empty: a job object that ends with us holds the browser.
func (s *Spec) hold() []string { return nil }

func spawn(s *Spec, argv, env []string, dir string, out *os.File) (*child, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, err
	}
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		windows.CloseHandle(job)
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		windows.CloseHandle(job)
		return nil, err
	}
	defer null.Close()
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Dir: dir, Env: env, Files: []*os.File{null, out, out}})
	if err != nil {
		windows.CloseHandle(job)
		return nil, err
	}
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(p.Pid))
	if err == nil {
		err = windows.AssignProcessToJobObject(job, h)
		windows.CloseHandle(h)
	}
	if err != nil {
		p.Kill()
		p.Wait()
		windows.CloseHandle(job)
		return nil, err
	}
	c := &child{pid: p.Pid, job: job, exited: make(chan struct{}), gone: make(chan struct{})}
	go func() {
		st, err := p.Wait()
		c.code = -1
		if err == nil {
			c.code = st.ExitCode()
		}
		close(c.exited)
		windows.TerminateJobObject(job, 1)
		close(c.gone)
	}()
	return c, nil
}

// devtools returns nothing: there is no pipe.
func (c *child) devtools() (in io.Reader, out io.Writer) { return nil, nil }

func (c *child) close() { windows.CloseHandle(c.job) }

// ask has no gentle way for a process without a window.
func (c *child) ask(bool, time.Duration) { c.kill() }

func (c *child) kill() { windows.TerminateJobObject(c.job, 1) }

func (c *child) ending() (code, sig int, words string) {
	return c.code, 0, "exited with code " + strconv.Itoa(c.code)
}

func smallShm() bool { return false }
