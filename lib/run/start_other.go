//go:build !linux

package run

import "os/exec"

func start(cmd *exec.Cmd, started, ended chan<- error) {
	err := cmd.Start()
	started <- err
	if err == nil {
		ended <- cmd.Wait()
	}
}
