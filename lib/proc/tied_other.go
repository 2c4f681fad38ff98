//go:build !linux

package proc

import (
	"os/exec"
	"syscall"
)

// StartTied starts the command and returns the channel on which the result of
// Wait comes. No signal is sent where the kernel can't.
func StartTied(cmd *exec.Cmd, _ syscall.Signal) (<-chan error, error) {
	ended := make(chan error, 1)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { ended <- cmd.Wait() }()
	return ended, nil
}
