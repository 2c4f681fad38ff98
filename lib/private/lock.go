package private

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrLocked says that another program holds a lock.
var ErrLocked = errors.New("another program holds its lock")

// lockBound is how long Lock waits at most. Who holds a lock does so for
// milliseconds: one that is held for so long is held by a process that hangs.
const lockBound = 10 * time.Second

// TryLock takes an exclusive lock on an open file or directory, which ends
// when it is closed, or with the process. ErrLocked if another has it.
func TryLock(f *os.File) error { return tryLock(f) }

// Lock is TryLock that waits, until the context ends (its cause is the error)
// but not for longer than 10 s (ErrLocked). On Unix those that wait get the lock
// in the order in which they came. Close f after an error.
func Lock(ctx context.Context, f *os.File) error {
	err := TryLock(f)
	if !errors.Is(err, ErrLocked) {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lockBound, ErrLocked)
	defer cancel()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return waitLock(ctx, f)
}

// LockFile opens the file, which it makes if need be, and locks it. It makes
// sure that the path still names the file then: two processes with the locks
// of two files would both go on.
func LockFile(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := Open(path, os.O_RDWR|os.O_CREATE)
		if err != nil {
			return nil, err
		}
		if err := Lock(ctx, f); err != nil {
			f.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		ours, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if now, err := os.Lstat(path); err == nil && os.SameFile(ours, now) {
			return f, nil
		}
		f.Close()
	}
}

// LockSocket takes the lock of the socket at path, which whoever opens,
// replaces or removes the socket holds: a file beside it, path.lock, that is
// removed when the lock is given back.
func LockSocket(ctx context.Context, path string, wait bool) (unlock func(), err error) {
	if !wait {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		cancel(ErrLocked)
	}
	f, err := LockFile(ctx, path+".lock")
	if err != nil {
		return nil, err
	}
	return func() {
		os.Remove(f.Name())
		f.Close()
	}, nil
}
