package run

import (
	"os/exec"
	"runtime"
	"syscall"
)

// start runs the command on a thread that lives as long as it does: when we
// are killed, the kernel tells it so by SIGTERM (the death of the forking
// thread is what sends it, golang/go#27505).
func start(cmd *exec.Cmd, started, ended chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	err := cmd.Start()
	started <- err
	if err == nil {
		ended <- cmd.Wait()
	}
}
