//go:build unix

package single

import "golang.org/x/sys/unix"

// try writes as much as the pipe takes at once.
func (p *pipe) try(frame []byte) (rest []byte, err error) {
	n, failed := 0, error(nil)
	err = p.raw.Write(func(fd uintptr) bool {
		n, failed = unix.Write(int(fd), frame)
		return true
	})
	switch {
	case err != nil:
		return nil, err
	case failed == unix.EAGAIN || failed == unix.EINTR:
		return frame, nil
	case failed != nil:
		return nil, failed
	}
	return frame[max(n, 0):], nil
}
