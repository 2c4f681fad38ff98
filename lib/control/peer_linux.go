package control

import (
	"net"

	"golang.org/x/sys/unix"
)

func peerUID(c net.Conn) (uid int, err error) {
	return onDescriptor(c, func(fd int) (int, error) {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return -1, err
		}
		return int(cred.Uid), nil
	})
}
