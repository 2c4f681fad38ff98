//go:build !linux

package proc

import (
	"fmt"
	"runtime"
)

// TreeMemory is the memory of a process and all below it, in bytes; here it is
// not known.
func TreeMemory(int) (int64, error) {
	return 0, fmt.Errorf("the memory of a tree of processes is not known on %s", runtime.GOOS)
}

// Tree returns a process; here those below it are not known.
func Tree(pid int) []int { return []int{pid} }
