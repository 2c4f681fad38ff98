//go:build unix

package flags

import "golang.org/x/sys/unix"

func closeOnExec(fd int) { unix.CloseOnExec(fd) }
