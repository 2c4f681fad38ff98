// Package place says where the state file and the sockets beside it are. It imports only what package os does: package
// shell/relay, which imports it, is to be initialised early.
package place

import (
	"hash/fnv"
	"os"
	"strconv"
)

// State returns the path of the state file in an environment.
func State(getenv func(string) string) string {
	if p := getenv("BTOOLS_STATE"); p != "" {
		if whole, err := abs(p); err == nil {
			p = whole
		}
		return p
	}
	// The XDG specification has relative values ignored, and the directory
	// owned by the user: one that is missing (a container) or another user's
	// (su, sudo) counts as none.
	if d := getenv("XDG_RUNTIME_DIR"); isAbs(d) && Owned(d) {
		return join(d, "btools", "state.json")
	}
	return join(os.TempDir(), "btools-"+strconv.Itoa(os.Getuid()), "state.json")
}

// maxSocket is the length in bytes of the longest path that a Unix socket
// can have everywhere: macOS has 104 with the NUL.
const maxSocket = 103

// SocketSuffix ends the names of control sockets.
const SocketSuffix = ".sock"

// Socket returns the path of the control socket with this name, beside
// the state file, or in a directory with a short path where that is too long.
func Socket(state, name string) string {
	dir := directory(state)
	if len(join(dir, name+SocketSuffix)) > maxSocket {
		dir = join(ShortTemp, "btools-"+strconv.Itoa(os.Getuid()))
		h := fnv.New64a() // other state files have other sockets
		h.Write([]byte(state))
		name += "-" + strconv.FormatUint(h.Sum64(), 36)
	}
	return join(dir, name+SocketSuffix)
}
