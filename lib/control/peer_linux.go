package control

import (
	"net"

	"golang.org/x/sys/unix"
)

func peerOf(c net.Conn) (*Peer, error) {
	return onDescriptor(c, func(fd int) (*Peer, error) {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return nil, err
		}
		return &Peer{UID: int(cred.Uid), PID: int(cred.Pid)}, nil
	})
}
