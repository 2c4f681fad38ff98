package forward

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"btools/lib/proc"
)

// owner is the browser that may connect.
type owner struct {
	browser func(context.Context) (int, error)

	mu   sync.Mutex
	pid  int           // of the browser, once it is known
	last proc.Identity // the process that connected last: Chrome's network service
}

// ownerTimeout is how long a connection may wait until the browser is known.
const ownerTimeout = 10 * time.Second

// check returns an error unless a process of the browser has opened the
// connection.
func (o *owner) check(ctx context.Context, c net.Conn) error {
	s, err := peerSocket(c)
	if err != nil {
		return fmt.Errorf("cannot tell who has connected: %w", err)
	}
	if s.uid != uint32(os.Getuid()) {
		return fmt.Errorf("it belongs to user %d", s.uid)
	}
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pid == 0 {
		pid, err := o.browser(ctx)
		if err != nil {
			return fmt.Errorf("cannot tell which processes are the browser's: %w", err)
		}
		if o.pid = pid; pid == 0 {
			return nil
		}
	}
	if holds, _ := holdsSocket(o.last.PID, s.inode); holds && o.last.Alive() {
		return nil
	}
	unknown := false
	for _, pid := range proc.Tree(o.pid) {
		id, err := proc.Of(pid)
		if err != nil {
			continue
		}
		holds, err := holdsSocket(pid, s.inode)
		if holds {
			o.last = id
			return nil
		}
		unknown = unknown || errors.Is(err, fs.ErrPermission)
	}
	if unknown { // Chrome's sandbox may hide a process even from its own user
		return nil
	}
	return errors.New("it belongs to a process that is not the browser's")
}

// holdsSocket reports whether a process has a socket open.
func holdsSocket(pid int, inode uint32) (bool, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	d, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return false, err
	}
	want := "socket:[" + strconv.FormatUint(uint64(inode), 10) + "]"
	for _, name := range names {
		if to, err := os.Readlink(dir + "/" + name); err == nil && to == want {
			return true, nil
		} else if errors.Is(err, fs.ErrPermission) {
			return false, err
		}
	}
	return false, nil
}

// socket is a socket of another process.
type socket struct{ uid, inode uint32 }

// peerSocket returns the socket at the other end of a connection on this
// machine.
func peerSocket(c net.Conn) (socket, error) {
	theirs, ours := c.RemoteAddr().(*net.TCPAddr).AddrPort(), c.LocalAddr().(*net.TCPAddr).AddrPort()
	return findSocket(theirs, ours)
}

// Offsets in the messages of sock_diag(7).
const (
	diagRequest  = unix.SizeofNlMsghdr + 56
	diagResponse = unix.SizeofNlMsghdr + 72
	idOffset     = 4 // of the ports and addresses, in a response
	uidOffset    = 64
	inodeOffset  = 68
)

// findSocket asks the kernel for the IPv4 TCP socket between two addresses.
// /proc/net/tcp says the same, but the kernel writes all sockets into it, for
// which it locks each of its hash chains: that takes 20 ms where this takes 10
// µs.
func findSocket(local, remote netip.AddrPort) (socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return socket{}, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	m := make([]byte, diagRequest)
	binary.NativeEndian.PutUint32(m, diagRequest)
	binary.NativeEndian.PutUint16(m[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST)
	q := m[unix.SizeofNlMsghdr:]
	q[0], q[1] = unix.AF_INET, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(q[4:], 1<<32-1) // in any state
	putID(q[8:], local, remote)
	for i := range 8 {
		q[48+i] = 0xff // no cookie
	}
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return socket{}, os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return socket{}, os.NewSyscallError("recvfrom", err)
	}
	a := answer[:n]
	if n >= unix.SizeofNlMsghdr+4 && binary.NativeEndian.Uint16(a[4:]) == unix.NLMSG_ERROR {
		number := -int32(binary.NativeEndian.Uint32(a[unix.SizeofNlMsghdr:]))
		return socket{}, os.NewSyscallError("sock_diag", syscall.Errno(number))
	}
	if n < diagResponse {
		return socket{}, errors.New("the kernel's answer is too short")
	}
	a = a[unix.SizeofNlMsghdr:]
	var id [36]byte
	putID(id[:], local, remote)
	if string(a[idOffset:idOffset+len(id)]) != string(id[:]) {
		return socket{}, errors.New("the connection is closed") // this is the socket that listens there
	}
	return socket{binary.NativeEndian.Uint32(a[uidOffset:]), binary.NativeEndian.Uint32(a[inodeOffset:])}, nil
}

// putID writes the ports and addresses of a struct inet_diag_sockid.
func putID(to []byte, local, remote netip.AddrPort) {
	binary.BigEndian.PutUint16(to, local.Port())
	binary.BigEndian.PutUint16(to[2:], remote.Port())
	l, r := local.Addr().Unmap().As4(), remote.Addr().Unmap().As4()
	copy(to[4:], l[:])
	copy(to[20:], r[:])
}
