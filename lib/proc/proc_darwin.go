package proc

import (
	"context"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const zombie = 5 // SZOMB of <sys/proc.h>

func startOf(pid int) (uint64, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil && err != unix.EIO && err != unix.ESRCH { // EIO: the answer is empty
		return 0, err
	}
	if err != nil || int(k.Proc.P_pid) != pid || k.Proc.P_stat == zombie {
		return 0, ErrGone
	}
	t := k.Proc.P_starttime
	return uint64(t.Sec)*1e6 + uint64(t.Usec), nil
}

// Boot names this boot.
var Boot = sync.OnceValue(func() string {
	tv, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return ""
	}
	return strconv.FormatInt(tv.Sec, 10)
})

func sameBoot(string) bool { return false }

func wait(ctx context.Context, id Identity) error {
	kq, err := unix.Kqueue()
	if err != nil {
		return poll(ctx, id)
	}
	defer unix.Close(kq)
	change := unix.Kevent_t{Ident: uint64(id.PID), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD, Fflags: unix.NOTE_EXIT}
	if _, err := unix.Kevent(kq, []unix.Kevent_t{change}, nil, nil); err != nil || !id.Alive() {
		return poll(ctx, id)
	}
	for {
		timeout := unix.NsecToTimespec(int64(100 * time.Millisecond))
		n, err := unix.Kevent(kq, nil, make([]unix.Kevent_t, 1), &timeout)
		if n > 0 {
			return nil
		}
		if err != nil && err != unix.EINTR {
			return poll(ctx, id)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Signal sends a signal to this process, if it is still the one.
func (id Identity) Signal(sig syscall.Signal) error {
	if !id.Local() || !id.Alive() {
		return ErrGone
	}
	return syscall.Kill(id.PID, sig)
}

// Subreaper does nothing: macOS has no subreapers, orphans go to launchd.
func Subreaper() error { return nil }

// KillDescendants does nothing here: the process group is what can be named.
func KillDescendants() []int { return nil }

// KillMarked does nothing here: other processes' environments are not to be
// read.
func KillMarked(string, string, time.Duration) ([]int, error) { return nil, nil }

// StartTime is when the process began.
func StartTime(id Identity) (time.Time, bool) { return time.UnixMicro(int64(id.Start)), true }

// Childless reports whether this process may reap whatever ends below it.
func Childless() bool {
	_, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
	return err == syscall.ECHILD
}

// Usable is nil: processes can always be told apart here.
func Usable() error { return nil }

// Marked finds nothing here: see KillMarked.
func Marked(string, string) []Identity { return nil }

// Uptime is the time since some moment in the past, the machine's sleep
// included: the wall clock's, which somebody may set.
func Uptime() time.Duration { return time.Duration(time.Now().UnixNano()) }
