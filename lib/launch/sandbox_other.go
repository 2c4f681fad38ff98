//go:build !linux

package launch

import "os"

func sandboxDenied(string) string {
	if os.Geteuid() == 0 {
		return "running as root"
	}
	return ""
}
