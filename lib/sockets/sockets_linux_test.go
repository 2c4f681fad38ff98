package sockets

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
)

// A connection whose other end is closed is nobody's: the kernel says root.
func TestClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if s, err := Of(ours); err != nil || int(s.UID) != os.Geteuid() {
		t.Errorf("the other end is %+v, %v", s, err)
	}
	theirs.Close()
	if n, err := ours.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatal(n, err)
	}
	if s, err := Of(ours); !errors.Is(err, ErrUnheld) {
		t.Errorf("the other end, which is closed, is %+v, %v", s, err)
	}
}

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
