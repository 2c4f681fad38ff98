package owned

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

func group() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// Terminate is Kill. There is no way to ask: what the program holds ends with
// it.
func (p *Process) Terminate() { p.cmd.Process.Kill() }

// Kill ends the program.
func (p *Process) Kill() { p.cmd.Process.Kill() }

// GroupLives reports that nothing is left of the group, which is not known.
func (p *Process) GroupLives() bool { return false }

// BindArgs are the arguments that bind a program of this project to its
// owner.
func BindArgs() []string { return []string{"--bind-pid=" + strconv.Itoa(os.Getpid())} }

func inherit(*exec.Cmd, *os.File) {}
