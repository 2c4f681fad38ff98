package control

import (
	"net"

	"golang.org/x/sys/unix"
)

func peerOf(c net.Conn) (*Peer, error) {
	return onDescriptor(c, func(fd int) (*Peer, error) {
		cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if err != nil {
			return nil, err
		}
		return &Peer{UID: int(cred.Uid)}, nil
	})
}
