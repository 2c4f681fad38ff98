//go:build unix

package private

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// CheckDir refuses a directory that another user owns, or in which others can
// replace files. Root's own are refused to others too: they could not write.
func CheckDir(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	switch {
	case !owned(st):
		return &os.PathError{Op: "use", Path: dir, Err: ErrOwner}
	case st.Mode()&fs.ModeSymlink != 0: // ours: what counts is where it leads
		if st, err = os.Stat(dir); err != nil {
			return err
		}
		if !owned(st) {
			return &os.PathError{Op: "use", Path: dir, Err: ErrOwner}
		}
	}
	if !st.IsDir() {
		return &os.PathError{Op: "use", Path: dir, Err: syscall.ENOTDIR}
	}
	if st.Mode().Perm()&0o022 != 0 {
		return &os.PathError{Op: "use", Path: dir, Err: ErrShared}
	}
	return nil
}

func owned(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}

// Open opens a regular file of this user's, with mode 0600 if it makes one.
// It follows no symbolic link, and never blocks on what is in its place.
func Open(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, &os.PathError{Op: "open", Path: path, Err: ErrKind}
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case !st.Mode().IsRegular():
		err = &os.PathError{Op: "open", Path: path, Err: ErrKind}
	case !owned(st):
		err = &os.PathError{Op: "open", Path: path, Err: ErrOwner}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func tryLock(f *os.File) error {
	err := flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return ErrLocked
	}
	return err
}

// waitLock waits in the kernel, which wakes one process after the other. Nothing
// wakes it earlier: after the context's end a thread and a descriptor of this
// process wait on until the holder gives the lock back, and give it back, too.
func waitLock(ctx context.Context, f *os.File) error {
	own, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	locked := make(chan error, 1)
	go func() {
		defer unix.Close(own)
		locked <- flock(own, syscall.LOCK_EX)
	}()
	select {
	case err := <-locked:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func flock(fd, how int) error {
	for {
		if err := syscall.Flock(fd, how); err != syscall.EINTR {
			return err
		}
	}
}
