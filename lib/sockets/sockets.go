// Package sockets tells whose socket is at the other end of a TCP connection within this
// machine. It decides nothing about who may connect.
package sockets

import "net"

// Socket is a socket of another process.
type Socket struct{ UID, Inode uint32 }

// IsHere reports whether a connection comes from this machine.
func IsHere(c net.Conn) bool {
	theirs, ok := c.RemoteAddr().(*net.TCPAddr)
	ours, too := c.LocalAddr().(*net.TCPAddr)
	return ok && too && (theirs.IP.IsLoopback() || theirs.IP.Equal(ours.IP))
}
