package command

import (
	"os"

	"golang.org/x/sys/unix"
)

// inMemory returns an empty file that is nowhere on disk.
func inMemory() (*os.File, error) {
	fd, err := unix.MemfdCreate("bmcp call", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "memory"), nil
}
