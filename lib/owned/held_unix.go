//go:build unix

package owned

import (
	"os"
	"os/exec"
	"syscall"
)

func group() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Terminate asks the program's group to end.
func (p *Process) Terminate() { syscall.Kill(-p.PID(), syscall.SIGTERM) }

// Kill ends the program's group.
func (p *Process) Kill() { syscall.Kill(-p.PID(), syscall.SIGKILL) }

// GroupLives reports whether there is a process in the group. No other group
// gets its number before.
func (p *Process) GroupLives() bool { return syscall.Kill(-p.PID(), 0) != syscall.ESRCH }

// BindArgs are the arguments that bind a program of this project to its
// owner.
func BindArgs() []string { return []string{"--bind-fd=3"} }

func inherit(c *exec.Cmd, bind *os.File) { c.ExtraFiles = append([]*os.File{bind}, c.ExtraFiles...) }
