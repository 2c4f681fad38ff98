//go:build unix

package front

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeBuf is what a pipe that can be written to takes at once, in bytes; see
// pipe(7).
const pipeBuf = 4096

// tryShared writes without waiting to a file that other programs have too, so that it
// may not be made non-blocking: it is asked first whether it takes a little.
func tryShared(f *os.File) func([]byte) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	return func(b []byte) (n int, err error) {
		if len(b) > pipeBuf {
			return 0, nil
		}
		if e := raw.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			if ready, _ := unix.Poll(p, 0); ready == 1 && p[0].Revents == unix.POLLOUT {
				n, err = unix.Write(int(fd), b)
			}
		}); e != nil {
			return 0, e
		}
		if err == unix.EAGAIN || err == unix.EINTR {
			return 0, nil
		}
		return max(n, 0), err
	}
}

// hungUp reports whether nobody can read what is written to a file.
func hungUp(f *os.File) (gone bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		n, _ := unix.Poll(p, 0)
		gone = n == 1 && p[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return gone
}
