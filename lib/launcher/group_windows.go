package launcher

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

func group() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// There is no way to ask: what the program holds ends with it.
func terminate(c *exec.Cmd) { c.Process.Kill() }
func kill(c *exec.Cmd)      { c.Process.Kill() }

func groupLives(*exec.Cmd) bool { return false }

// BindArgs are the arguments that bind a program of this project to its
// owner.
func BindArgs() []string { return []string{"--bind-pid=" + strconv.Itoa(os.Getpid())} }

func inherit(*exec.Cmd, *os.File) {}
