package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// TreeMemory is the memory of a process and all below it, in bytes: their PSS,
// which counts what several share once. Of a process whose PSS the system does
// not show to this user, as that of a renderer in Chrome's sandbox, what it
// shares with nobody counts.
func TreeMemory(pid int) (int64, error) {
	if _, err := Of(pid); err != nil {
		return 0, err
	}
	total := int64(0)
	for _, pid := range Tree(pid) {
		n, err := memory(pid)
		if err != nil && !errors.Is(err, ErrGone) {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// Tree returns a process and all below it.
func Tree(pid int) []int {
	children := map[int][]int{}
	each(func(pid int) {
		if f, err := stat(pid); err == nil {
			parent, _ := strconv.Atoi(f[1])
			children[parent] = append(children[parent], pid)
		}
	})
	tree := []int{pid}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree
}

// memory is that of one process.
func memory(pid int) (int64, error) {
	at := "/proc/" + strconv.Itoa(pid)
	if b, err := os.ReadFile(at + "/smaps_rollup"); err == nil {
		for line := range bytes.Lines(b) {
			var kb int64
			if n, _ := fmt.Sscanf(string(line), "Pss: %d kB", &kb); n == 1 {
				return kb << 10, nil
			}
		}
	}
	b, err := os.ReadFile(at + "/statm")
	if err != nil {
		return 0, ErrGone
	}
	var size, resident, shared int64 // in pages
	if _, err := fmt.Sscan(string(b), &size, &resident, &shared); err != nil {
		return 0, fmt.Errorf("cannot read %s/statm: %w", at, err)
	}
	return max(0, resident-shared) * int64(os.Getpagesize()), nil
}
