package proc

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

func Executable() (string, error) { return os.Executable() }

func Detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}
