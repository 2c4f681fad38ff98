package proc

import (
	"context"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

const stillActive = 259

func startOf(pid int) (uint64, error) {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err == windows.ERROR_INVALID_PARAMETER || err == windows.ERROR_ACCESS_DENIED { // gone; or not ours
		return 0, ErrGone
	}
	if err != nil {
		return 0, err
	}
	defer windows.CloseHandle(h)
	var code uint32
	if err := windows.GetExitCodeProcess(h, &code); err != nil || code != stillActive {
		return 0, ErrGone
	}
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &created, &exited, &kernel, &user); err != nil {
		return 0, err
	}
	return uint64(created.Nanoseconds() / 1000), nil
}

// Boot is empty: a creation time in microseconds is of one boot anyway.
func Boot() string { return "" }

func sameBoot(string) bool { return false }

func wait(ctx context.Context, id Identity) error {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(id.PID))
	if err != nil {
		return poll(ctx, id)
	}
	defer windows.CloseHandle(h)
	if !id.Alive() {
		return nil
	}
	for ctx.Err() == nil {
		if r, err := windows.WaitForSingleObject(h, 100); err == nil && r == windows.WAIT_OBJECT_0 {
			return nil
		}
	}
	return ctx.Err()
}

// Signal ends this process: Windows has no other signal to give.
func (id Identity) Signal(sig syscall.Signal) error {
	if !id.Alive() {
		return ErrGone
	}
	h, err := windows.OpenProcess(windows.PROCESS_TERMINATE, false, uint32(id.PID))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	return windows.TerminateProcess(h, 1)
}

// Subreaper does nothing: a job object holds the browser's processes.
func Subreaper() error { return nil }

// KillDescendants does nothing: closing the job object ends them.
func KillDescendants() []int { return nil }

// KillMarked does nothing: closing the job object ended them.
func KillMarked(string, string, time.Duration) ([]int, error) { return nil, nil }

// StartTime is when the process began.
func StartTime(id Identity) (time.Time, bool) { return time.UnixMicro(int64(id.Start)), true }

// Childless is true: nothing is reaped on Windows.
func Childless() bool { return true }

// Usable is nil: processes can always be told apart here.
func Usable() error { return nil }

// Marked finds nothing here: see KillMarked.
func Marked(string, string) []Identity { return nil }

// Uptime is the time since some moment in the past, the machine's sleep
// included: the wall clock's, which somebody may set.
func Uptime() time.Duration { return time.Duration(time.Now().UnixNano()) }
