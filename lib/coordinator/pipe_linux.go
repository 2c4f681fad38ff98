package coordinator

import "golang.org/x/sys/unix"

func setPipeSize(fd, size int) { unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, size) }
