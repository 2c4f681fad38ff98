//go:build !linux

package proxy

import (
	"net"
	"time"
)

// observed returns a connection to read from, and a function that returns when
// the other side last sent anything.
func observed(c net.Conn) (net.Conn, func() time.Time) {
	s := newStamped(c)
	return s, s.lastUse
}

// isDownloading reports whether a browser downloads a file, which is not known
// on this system.
func isDownloading(int) bool { return false }
