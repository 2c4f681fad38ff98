package nowait

import (
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func neverWaits(fd uintptr) bool {
	flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
	return err == nil && flags&unix.O_NONBLOCK != 0
}

// SetPipeSize has the kernel keep as many bytes that are written to a pipe before
// they are read, if it allows that.
func SetPipeSize(pipe *os.File, bytes int) {
	if conn, err := pipe.SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) { unix.FcntlInt(fd, unix.F_SETPIPE_SZ, bytes) })
	}
}

// call reads or writes. It returns false if nothing can be read or written now.
func call(trap, fd uintptr, b []byte) (n int, ready bool, err error) {
	for {
		n, _, failed := unix.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch failed {
		case 0:
			return int(n), true, nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, false, nil
		default:
			return 0, true, failed
		}
	}
}

func (r *Reader) read(fd uintptr) (done bool) {
	r.n, done, r.err = call(unix.SYS_READ, fd, r.into)
	switch {
	case r.err != nil:
		r.err = os.NewSyscallError("read", r.err)
	case done && r.n == 0 && len(r.into) > 0:
		r.err = io.EOF
	}
	return done
}

func (w *Writer) write(fd uintptr) bool {
	w.n, _, w.err = call(unix.SYS_WRITE, fd, w.from)
	if w.err != nil {
		w.err = os.NewSyscallError("write", w.err)
	}
	return true
}
