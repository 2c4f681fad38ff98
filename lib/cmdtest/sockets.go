//go:build linux

package cmdtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"btools/lib/proc"
)

// Listening returns the TCP sockets at which a process, or one below it, listens.
func Listening(t *testing.T, pid int) (found []string) {
	t.Helper()
	sockets := map[string]bool{}
	for _, name := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile("/proc/net/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(b), "\n") {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" { // LISTEN
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	for _, pid := range proc.Tree(pid) {
		fds, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && sockets[to] {
				found = append(found, fmt.Sprint(pid, " ", to))
			}
		}
	}
	return found
}
