package state

import (
	"hash/fnv"
	"net"
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

// SocketPath returns the path of the control socket with this name, beside
// the state file, or in a directory with a short path where that is too long.
func (s *Store) SocketPath(name string) string {
	dir := filepath.Dir(s.path)
	if len(filepath.Join(dir, name+socketSuffix)) > maxSocket {
		dir = filepath.Join(shortTemp, "btools-"+strconv.Itoa(os.Getuid()))
		h := fnv.New64a() // other state files have other sockets
		h.Write([]byte(s.path))
		name += "-" + strconv.FormatUint(h.Sum64(), 36)
	}
	return filepath.Join(dir, name+socketSuffix)
}

// Socket returns the path of the control socket with this name, whose
// directory it makes.
func (s *Store) Socket(name string) (string, error) {
	path := s.SocketPath(name)
	if err := makeDir(filepath.Dir(path)); err != nil {
		return "", s.fail("open a socket beside", err)
	}
	return path, nil
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

// PoolService is a bpool that runs.
type PoolService struct {
	Process proc.Identity `json:"process"`
	Control string        `json:"control"`
	Names   []string      `json:"names"` // of its pools
}

// SetPools lists the service, in the place of an entry of the same process.
func (f *File) SetPools(p PoolService) {
	f.Pools = slices.DeleteFunc(f.Pools, func(old PoolService) bool { return old.Process == p.Process || old.Control == p.Control })
	f.Pools = append(f.Pools, p)
}

// DropPools removes the process's entry.
func (f *File) DropPools(process proc.Identity) {
	f.Pools = slices.DeleteFunc(f.Pools, func(p PoolService) bool { return p.Process == process })
}

// tidyServices drops the entries of dead services, and their sockets.
func (f *File) tidyServices() {
	f.Proxies = slices.DeleteFunc(f.Proxies, func(p Proxy) bool { return dead(p.Process, p.Control) })
	f.Pools = slices.DeleteFunc(f.Pools, func(p PoolService) bool { return dead(p.Process, p.Control) })
}

// dead reports whether a service has ended; its socket goes then.
func dead(process proc.Identity, control string) bool {
	if process.Alive() {
		return false
	}
	// The path comes from a file: only what can be a socket of ours goes.
	st, err := os.Lstat(control)
	if err != nil || st.Mode()&os.ModeSocket == 0 || !strings.HasSuffix(control, socketSuffix) {
		return true
	}
	if c, err := net.Dial("unix", control); err == nil {
		// Its first thread has ended, and others are about to; or another
		// service has the path, whose entry takes this one's place.
		c.Close()
		return false
	}
	os.Remove(control)
	return true
}
