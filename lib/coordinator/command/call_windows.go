package command

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// background gives a process no console, and no end with the caller's.
func background() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}
