package proxy

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// observed returns a connection to read from, and a function that returns when
// the other side last sent anything. The kernel splices what the reader reads,
// so that no read is seen here: the kernel itself is asked for the time.
func observed(c net.Conn) (net.Conn, func() time.Time) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		s := newStamped(c)
		return s, s.lastUse
	}
	return tcp, func() (last time.Time) {
		raw, err := tcp.SyscallConn()
		if err != nil {
			return last // it is closed
		}
		raw.Control(func(fd uintptr) {
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				last = time.Now().Add(-time.Duration(info.Last_data_recv) * time.Millisecond)
			}
		})
		return last
	}
}

// isDownloading reports whether a browser downloads a file: while Chrome does,
// it has the file open under a name that ends with .crdownload, Firefox under
// one with .part.
func isDownloading(pid int) bool {
	if pid <= 0 {
		return false
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	open, _ := os.ReadDir(dir)
	for _, fd := range open {
		path, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err == nil && (strings.HasSuffix(path, ".crdownload") || strings.HasSuffix(path, ".part")) {
			return true
		}
	}
	return false
}
