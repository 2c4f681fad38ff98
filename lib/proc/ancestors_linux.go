package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Ancestors are the processes above one, its parent first. They end before the first one that can't be read, which
// has another PID namespace if it is not above process 1.
func Ancestors(pid int) (all []Ancestor) {
	for range maxAncestors {
		f, err := stat(pid)
		if err != nil {
			break
		}
		parent, err := strconv.Atoi(f[1])
		if err != nil || parent == 0 {
			break
		}
		above, err := stat(parent)
		if err != nil {
			break
		}
		id, err := Of(parent)
		if err != nil {
			break
		}
		dir := "/proc/" + strconv.Itoa(parent)
		a := Ancestor{Identity: id, Leader: above[3] == strconv.Itoa(parent) && above[4] != "0"}
		if b, err := os.ReadFile(dir + "/comm"); err == nil {
			a.Title = strings.TrimSpace(string(b))
		}
		if path, err := os.Readlink(dir + "/exe"); err == nil {
			a.Program = filepath.Base(strings.TrimSuffix(path, " (deleted)"))
		}
		if a.Leader {
			if b, err := os.ReadFile(dir + "/cmdline"); err == nil {
				a.Args = strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
			}
		}
		all = append(all, a)
		pid = parent
	}
	return all
}
