package state

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"btools/lib/proc"
	"btools/lib/record"
)

// Proxy is a bproxy that listens.
type Proxy struct {
	Process proc.Identity  `json:"process"`
	Control string         `json:"control"` // its control socket
	Record  *record.Record `json:"record"`
}

// maxSocket is the length in bytes of the longest path that a Unix socket
// can have everywhere: macOS has 104 with the NUL.
const maxSocket = 103

// socketSuffix ends the names of control sockets.
const socketSuffix = ".sock"

// Socket returns the path of the control socket with this name, beside the
// state file, or in a directory with a short path where that is too long. It
// makes the directory.
func (s *Store) Socket(name string) (string, error) {
	dir := filepath.Dir(s.path)
	if len(filepath.Join(dir, name+socketSuffix)) > maxSocket {
		dir = filepath.Join(shortTemp, "btools-"+strconv.Itoa(os.Getuid()))
	}
	if err := makeDir(dir); err != nil {
		return "", s.fail("open a socket beside", err)
	}
	return filepath.Join(dir, name+socketSuffix), nil
}

// SetProxy lists the proxy, in the place of an entry of the same process.
func (f *File) SetProxy(p Proxy) {
	f.DropProxy(p.Process)
	f.Proxies = append(f.Proxies, p)
}

// DropProxy removes the process's entry.
func (f *File) DropProxy(process proc.Identity) {
	f.Proxies = slices.DeleteFunc(f.Proxies, func(p Proxy) bool { return p.Process == process })
}

// tidyProxies drops the entries of dead proxies, and their sockets.
func (f *File) tidyProxies() {
	f.Proxies = slices.DeleteFunc(f.Proxies, func(p Proxy) bool {
		if p.Process.Alive() {
			return false
		}
		// The path comes from a file: only what can be a socket of ours goes.
		if st, err := os.Lstat(p.Control); err == nil && st.Mode()&os.ModeSocket != 0 && strings.HasSuffix(p.Control, socketSuffix) {
			os.Remove(p.Control)
		}
		return true
	})
}
