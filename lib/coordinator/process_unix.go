//go:build unix

package coordinator

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is what a wide pipe takes, in bytes.
const pipeSize = 256 << 10

// widen has a pipe take more, where that can be asked for: each time that it is
// full costs two changes of the process.
func widen(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { setPipeSize(int(fd), pipeSize) })
	}
}

// pipeBuf is what a pipe that can be written to takes at once, in bytes; see
// pipe(7).
const pipeBuf = 4096

// tryShared is tryWrite for a file that others have too: it can't be made to
// take less than it is given, but asked whether it takes a little.
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

// tryWrite writes to a pipe what it takes without waiting.
func tryWrite(f *os.File) func([]byte) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	return func(b []byte) (n int, err error) {
		if e := raw.Write(func(fd uintptr) bool {
			n, err = unix.Write(int(fd), b)
			return true
		}); e != nil {
			return 0, e
		}
		if err == unix.EAGAIN || err == unix.EINTR {
			return 0, nil
		}
		return max(n, 0), err
	}
}
