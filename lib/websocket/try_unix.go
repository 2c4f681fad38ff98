//go:build unix

package websocket

import "golang.org/x/sys/unix"

func writeOnce(fd uintptr, b []byte) int {
	n, err := unix.Write(int(fd), b)
	if err != nil {
		return 0 // a later write tells why
	}
	return n
}
