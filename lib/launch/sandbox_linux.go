package launch

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sandboxDenied tells why a Chromium's sandbox can't work for this
// executable, "" if it can.
func sandboxDenied(exe string) string {
	if os.Geteuid() == 0 {
		return "running as root"
	}
	// A helper that is set-uid root needs no user namespaces.
	for _, name := range []string{"chrome-sandbox", "chrome_sandbox", "msedge-sandbox"} {
		if st, err := os.Stat(filepath.Join(filepath.Dir(exe), name)); err == nil && st.Mode()&fs.ModeSetuid != 0 {
			return ""
		}
	}
	is := func(file, value string) bool {
		b, err := os.ReadFile("/proc/sys/" + file)
		return err == nil && strings.TrimSpace(string(b)) == value
	}
	switch {
	case is("kernel/unprivileged_userns_clone", "0"), is("user/max_user_namespaces", "0"):
		return "user namespaces are denied"
	case is("kernel/apparmor_restrict_unprivileged_userns", "1") && !inAppArmor(exe):
		return "AppArmor denies user namespaces"
	}
	return ""
}

// inAppArmor reports whether a profile names the executable, as those for
// installed browsers do to allow them namespaces.
func inAppArmor(exe string) bool {
	for _, pattern := range []string{"chrom*", "brave*", "msedge*"} {
		files, _ := filepath.Glob("/etc/apparmor.d/" + pattern)
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), exe) {
				return true
			}
		}
	}
	return false
}
