//go:build unix

package successor

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// dup returns the socket of a listener for another process. File of the listener would return one that
// blocks, and with it the listener's own.
func dup(l net.Listener) (*os.File, error) {
	c, err := l.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var n int
	var failed error
	if err := c.Control(func(fd uintptr) { n, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, firstFD) }); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, failed
	}
	return os.NewFile(uintptr(n), "listener"), nil
}
