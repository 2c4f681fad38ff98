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

// wide is what a widened pipe keeps, in bytes. A message of 13 MB of Chrome took 12 ms
// with the usual 64 KiB, and takes 7.5; with 1 MiB 6.7, but 64 pipes would use up what
// Linux gives a user for all (16,384 pages).
const wide = 256 << 10

// Widen has the kernel keep 256 KiB that are written to a pipe before they are read, if
// it allows that: each time that a pipe is full costs two changes of the process.
func Widen(pipe *os.File) {
	if conn, err := pipe.SyscallConn(); err == nil {
		conn.Control(func(fd uintptr) { unix.FcntlInt(fd, unix.F_SETPIPE_SZ, wide) })
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
