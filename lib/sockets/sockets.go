// Package sockets tells whose socket is at the other end of a TCP connection within this
// machine. It decides nothing about who may connect.
package sockets

import (
	"errors"
	"net"
)

// ErrUnheld says that no process has the other end of a connection: it is not accepted yet,
// or closed. The system names no user for it then, or root.
var ErrUnheld = errors.New("no process has the other end of the connection")

// Socket is a socket of another process.
type Socket struct{ UID, Inode uint32 }

// IsHere reports whether a connection comes from this machine.
func IsHere(c net.Conn) bool {
	theirs, ok := c.RemoteAddr().(*net.TCPAddr)
	ours, too := c.LocalAddr().(*net.TCPAddr)
	return ok && too && (theirs.IP.IsLoopback() || theirs.IP.Equal(ours.IP))
}
