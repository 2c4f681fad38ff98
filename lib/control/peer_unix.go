//go:build linux || darwin

package control

import (
	"errors"
	"net"
	"syscall"
)

// onDescriptor calls f with the descriptor of a connection.
func onDescriptor(c net.Conn, f func(fd int) (*Peer, error)) (p *Peer, err error) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil, errors.New("the connection is not a socket")
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	if failed := raw.Control(func(fd uintptr) { p, err = f(int(fd)) }); failed != nil {
		return nil, failed
	}
	return p, err
}
