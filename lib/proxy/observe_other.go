//go:build !linux

package proxy

import (
	"io"
	"net"
	"time"
)

// observed returns a reader of a connection, and a function that returns when
// the other side last sent anything.
func observed(c net.Conn) (io.Reader, func() time.Time) {
	s := newStamped(c)
	return s, s.lastUse
}

// isDownloading reports whether a browser downloads a file, which is not known
// on this system.
func isDownloading(int) bool { return false }
