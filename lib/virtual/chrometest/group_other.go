//go:build !linux

package chrometest

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }

func killGroup(int) {}
