package proc

import (
	"os/exec"
	"runtime"
	"syscall"
)

// StartTied starts the command so that the kernel sends it the signal when
// this process is killed, and returns the channel on which the result of Wait
// comes. The command's thread lives as long as the command: the death of the
// forking thread is what sends the signal (golang/go#27505).
func StartTied(cmd *exec.Cmd, sig syscall.Signal) (<-chan error, error) {
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Pdeathsig = sig
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return ended, <-started
}
