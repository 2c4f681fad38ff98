package launch

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

func executable() (string, error) { return os.Executable() }

func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}
