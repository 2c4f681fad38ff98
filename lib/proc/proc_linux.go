package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stat reads the fields of /proc/PID/stat that follow the command's name,
// which may itself hold spaces and parentheses: [0] is the state.
func stat(pid int) ([]string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return nil, fmt.Errorf("cannot read /proc/%d/stat", pid)
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 20 {
		return nil, fmt.Errorf("cannot read /proc/%d/stat", pid)
	}
	return f, nil
}

func startOf(pid int) (uint64, error) {
	f, err := stat(pid)
	if err != nil {
		return 0, err
	}
	if f[0] == "Z" || f[0] == "X" {
		return 0, ErrGone
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// IsSuspended reports whether a signal has stopped a process, which may be continued.
func IsSuspended(pid int) bool {
	f, err := stat(pid)
	return err == nil && (f[0] == "T" || f[0] == "t")
}

// Boot names this boot and PID namespace.
var Boot = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	ns, _ := os.Readlink("/proc/self/ns/pid")
	return strings.TrimSpace(string(b)) + "/" + strings.Trim(ns, "pid:[]")
})

func sameBoot(boot string) bool {
	theirs, _, _ := strings.Cut(boot, "/")
	ours, _, _ := strings.Cut(Boot(), "/")
	return theirs == ours
}

// open returns a descriptor of exactly this process: opened first, compared
// after, so that the number can't have changed hands in between.
func (id Identity) open() (int, error) {
	if !id.Local() {
		return -1, ErrGone
	}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		if err == unix.ESRCH {
			err = ErrGone
		}
		return -1, err
	}
	if !id.Alive() {
		unix.Close(fd)
		return -1, ErrGone
	}
	return fd, nil
}

// wait parks the goroutine until the descriptor is readable, as a connection's
// reader is: a wait takes one descriptor and no thread, of which Go allows
// 10000.
func wait(ctx context.Context, id Identity) error {
	fd, err := id.open()
	if err == ErrGone {
		return nil
	}
	if err != nil { // a kernel before 5.3, or a sandbox that forbids it
		return poll(ctx, id)
	}
	// NewFile hands only what doesn't block to the runtime's poller.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return poll(ctx, id)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return poll(ctx, id)
	}
	defer context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })()
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil || id.Alive():
		return poll(ctx, id)
	}
	return nil
}

// Signal sends a signal to exactly this process.
func (id Identity) Signal(sig syscall.Signal) error {
	fd, err := id.open()
	if err == ErrGone {
		return err
	}
	if err != nil {
		if !id.Alive() {
			return ErrGone
		}
		return syscall.Kill(id.PID, sig)
	}
	defer unix.Close(fd)
	err = unix.PidfdSendSignal(fd, unix.Signal(sig), nil, 0)
	if err == unix.ESRCH {
		return ErrGone
	}
	return err
}

// Subreaper makes the orphans below this process its children.
func Subreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// each calls f for every process that can be seen.
func each(f func(pid int)) {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			f(pid)
		}
	}
}

// Usable tells why processes can't be told apart here, nil if they can.
var Usable = sync.OnceValue(func() error {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return fmt.Errorf("/proc is not mounted here: %w", err)
	}
	if self != strconv.Itoa(os.Getpid()) {
		return errors.New("the /proc that is mounted here belongs to another PID namespace: mount its own " +
			"(unshare --mount-proc)")
	}
	return nil
})

// KillDescendants sends SIGKILL to every process below this one and returns
// their numbers. As a subreaper's orphans stay below it, none escapes by
// forking; one that forks while it is looked for is met by the next call.
func KillDescendants() []int {
	type process struct {
		Identity
		parent int
	}
	all := map[int]process{}
	each(func(pid int) {
		f, err := stat(pid)
		if err != nil || f[0] == "Z" {
			return
		}
		p := process{Identity: Identity{PID: pid, Boot: Boot()}}
		p.parent, _ = strconv.Atoi(f[1])
		p.Start, _ = strconv.ParseUint(f[19], 10, 64)
		all[pid] = p
	})
	self := os.Getpid()
	var killed []int
	for pid, p := range all {
		for at := pid; at > 1; at = all[at].parent {
			if all[at].parent == self {
				if p.Signal(syscall.SIGKILL) == nil {
					killed = append(killed, pid)
				}
				break
			}
		}
	}
	return killed
}

// Marked finds the processes whose environment holds the assignment, such as
// "BTOOLS_INSTANCE=inst_…": an unguessable value names its processes even
// after their parents, group and session are gone. Chromium's helpers have
// overwritten their environment with a title: they are known by their working
// directory dir, if that is not "".
func Marked(assignment, dir string) []Identity {
	want := []byte("\x00" + assignment + "\x00")
	var found []Identity
	each(func(pid int) {
		id, err := Of(pid)
		if err != nil {
			return
		}
		at := "/proc/" + strconv.Itoa(pid)
		env, err := os.ReadFile(at + "/environ")
		if err != nil {
			return
		}
		if !bytes.Contains(append([]byte{0}, env...), want) {
			cwd, _ := os.Readlink(at + "/cwd")
			if dir == "" || strings.TrimSuffix(cwd, " (deleted)") != dir || isEnvironment(env) {
				return
			}
			if args, err := os.ReadFile(at + "/cmdline"); err != nil || !bytes.Contains(args, []byte("--type=")) {
				return
			}
		}
		if id.Alive() { // the same one all the time
			found = append(found, id)
		}
	})
	return found
}

// isEnvironment reports whether what /proc shows as a process's environment
// begins as one, with a variable, and not with the rest of a title. Somebody's
// shell in a directory has one.
func isEnvironment(env []byte) bool {
	name, _, ok := bytes.Cut(env, []byte("="))
	return ok && len(name) > 0 && !bytes.ContainsAny(name, "\x00 /-")
}

// KillMarked ends the processes that Marked finds, and returns the numbers of
// those that it had to kill. It gives up after the bound.
func KillMarked(assignment, dir string, bound time.Duration) ([]int, error) {
	var killed []int
	seen := map[int]bool{}
	for end := time.Now().Add(bound); ; time.Sleep(2 * time.Millisecond) {
		left := Marked(assignment, dir)
		if len(left) == 0 {
			return killed, nil
		}
		for _, id := range left {
			if id.Signal(syscall.SIGKILL) == nil && !seen[id.PID] {
				seen[id.PID] = true
				killed = append(killed, id.PID)
			}
		}
		if time.Now().After(end) {
			return killed, fmt.Errorf("process %d does not die", left[0].PID)
		}
	}
}

// Uptime is the time since some moment in the past, the machine's sleep
// included.
func Uptime() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // since Linux 2.6.39
	return time.Duration(t.Nano())
}

// StartTime is when the process began, to about 10 ms.
func StartTime(id Identity) (time.Time, bool) {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	return time.Now().Add(time.Duration(id.Start)*tick - Uptime()), true
}

// Childless reports whether this process has no children, not even from
// before it became this program by exec.
func Childless() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == unix.ECHILD
}
