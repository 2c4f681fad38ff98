//go:build unix

package control

import (
	"os"
	"syscall"
)

// lockDir holds a directory's lock until what it returns is called.
func lockDir(dir string) (unlock func()) {
	d, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	syscall.Flock(int(d.Fd()), syscall.LOCK_EX)
	return func() { d.Close() }
}
