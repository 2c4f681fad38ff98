//go:build unix

package command

import "syscall"

// background puts a process in a session of its own: no terminal's signals, and no end with the caller's group.
func background() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
