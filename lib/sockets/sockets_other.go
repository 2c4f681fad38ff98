//go:build !linux

package sockets

import (
	"errors"
	"net"
	"net/netip"
)

var errUnknown = errors.New("the owner of a connection is not known without the privileges of the system")

// HeldBy fails.
func (s Socket) HeldBy(int) (bool, error) { return false, errUnknown }

// Of fails.
func Of(net.Conn) (Socket, error) { return Socket{}, errUnknown }

// Holder fails.
func Holder(_, _ netip.AddrPort) (int, error) { return 0, errUnknown }
