//go:build unix

package systemd

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A systemd that does not read its socket does not stop a service that tells it something.
func TestTellABusySystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	at := &net.UnixAddr{Name: path, Net: "unixgram"}
	l, err := net.ListenUnixgram("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.DialUnix("unixgram", nil, at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for err == nil { // until the socket is full
		c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, err = c.Write([]byte("WATCHDOG=1"))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	n := &Notifier{path: path}
	n.Tell("STOPPING=1")
}
