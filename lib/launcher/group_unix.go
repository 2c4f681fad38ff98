//go:build unix

package launcher

import (
	"os"
	"os/exec"
	"syscall"
)

// group makes the program the first of a process group: a terminal's signals
// are for its owner, who decides, and a shell's pipeline ends as a whole.
func group() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func terminate(c *exec.Cmd) { syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
func kill(c *exec.Cmd)      { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }

// groupLives reports whether there is a process in the group. No other group
// gets its number before.
func groupLives(c *exec.Cmd) bool { return syscall.Kill(-c.Process.Pid, 0) != syscall.ESRCH }

// BindArgs are the arguments that bind a program of this project to its
// owner.
func BindArgs() []string { return []string{"--bind-fd=3"} }

func inherit(c *exec.Cmd, bind *os.File) { c.ExtraFiles = []*os.File{bind} }
