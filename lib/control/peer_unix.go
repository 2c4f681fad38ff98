//go:build linux || darwin

package control

import (
	"errors"
	"net"
	"syscall"
)

// onDescriptor calls f with the descriptor of a connection.
func onDescriptor(c net.Conn, f func(fd int) (int, error)) (uid int, err error) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return -1, errors.New("the connection is not a socket")
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return -1, err
	}
	if failed := raw.Control(func(fd uintptr) { uid, err = f(int(fd)) }); failed != nil {
		return -1, failed
	}
	return uid, err
}
