package guard

import (
	"bytes"
	"os"
	"strconv"

	"btools/lib/proc"
)

// networkService returns the network service of a Chromium, 0 if it has none.
func networkService(browser int) int {
	for _, pid := range proc.Tree(browser) {
		line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err == nil && bytes.Contains(line, []byte("--utility-sub-type=network.mojom.NetworkService")) {
			return pid
		}
	}
	return 0
}
