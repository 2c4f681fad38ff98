package sockets

import (
	"net"
	"net/netip"
	"os"
	"testing"
)

func TestHolder(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		mine, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer mine.Close()
		theirs, ours := mine.LocalAddr().(*net.TCPAddr).AddrPort(), l.Addr().(*net.TCPAddr).AddrPort()
		if pid, err := Holder(theirs, ours); err != nil || pid != os.Getpid() {
			t.Errorf("%v, %v; this process is %d", pid, err, os.Getpid())
		}
		if pid, err := Holder(netip.MustParseAddrPort("[2001:db8::1]:80"), ours); err == nil {
			t.Errorf("of a client elsewhere: %v", pid)
		}
		if pid, err := Holder(netip.AddrPort{}, ours); err == nil {
			t.Errorf("of no client: %v", pid)
		}
	}
}
