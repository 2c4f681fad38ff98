//go:build unix

package command

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file to the owner of the one that it is to replace, where this
// user may.
func keepOwner(f *os.File, before fs.FileInfo) {
	if st, is := before.Sys().(*syscall.Stat_t); is {
		f.Chown(int(st.Uid), int(st.Gid))
	}
}
