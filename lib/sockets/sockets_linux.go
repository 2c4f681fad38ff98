package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// HeldBy reports whether a process has the socket open.
func (s Socket) HeldBy(pid int) (bool, error) {
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
	want := "socket:[" + strconv.FormatUint(uint64(s.Inode), 10) + "]"
	for _, name := range names {
		if to, err := os.Readlink(dir + "/" + name); err == nil && to == want {
			return true, nil
		} else if errors.Is(err, fs.ErrPermission) {
			return false, err
		}
	}
	return false, nil
}

// Of returns the socket at the other end of a TCP connection within this machine, or
// ErrUnheld.
func Of(c net.Conn) (Socket, error) {
	theirs, ours := c.RemoteAddr().(*net.TCPAddr).AddrPort(), c.LocalAddr().(*net.TCPAddr).AddrPort()
	return find(theirs, ours)
}

// Holder returns the process of this user, in this view of the file system, that
// holds the end of a connection within this machine that is theirs. There is an error
// if that is another user's, or not known.
func Holder(theirs, ours netip.AddrPort) (pid int, err error) {
	if !theirs.IsValid() || !ours.IsValid() {
		return 0, errors.New("its addresses are not known")
	}
	s, err := find(theirs, ours)
	if err != nil {
		return 0, err
	}
	if s.UID != uint32(os.Getuid()) {
		return 0, fmt.Errorf("it belongs to user %d", s.UID)
	}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	var pids []int
	for _, e := range all {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	for _, pid := range slices.Backward(pids) { // who has connected is often young
		if holds, _ := s.HeldBy(pid); !holds {
			continue
		}
		ours, err := os.Readlink("/proc/self/ns/mnt")
		theirs, theirErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		if err != nil || theirErr != nil || ours != theirs {
			return 0, fmt.Errorf("process %d may have other files", pid)
		}
		return pid, nil
	}
	return 0, errors.New("no process holds it that this user may look at")
}

// Offsets in the messages of sock_diag(7).
const (
	diagRequest  = unix.SizeofNlMsghdr + 56
	diagResponse = unix.SizeofNlMsghdr + 72
	idOffset     = 4 // of the ports and addresses, in a response
	uidOffset    = 64
	inodeOffset  = 68
)

// find asks the kernel for the TCP socket between two addresses.
// /proc/net/tcp says the same, but the kernel writes all sockets into it, for
// which it locks each of its hash chains: that takes 20 ms where this takes 10
// µs.
func find(local, remote netip.AddrPort) (Socket, error) {
	if local.Addr().Unmap().Is4() {
		local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
		remote = netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())
		s, err := ask(unix.AF_INET, local, remote)
		if err == nil || !errors.Is(err, ErrUnheld) {
			return s, err
		}
		// A socket for both families has addresses that are mapped to IPv6.
		local = netip.AddrPortFrom(netip.AddrFrom16(local.Addr().As16()), local.Port())
		remote = netip.AddrPortFrom(netip.AddrFrom16(remote.Addr().As16()), remote.Port())
		if s, err := ask(unix.AF_INET6, local, remote); err == nil {
			return s, nil
		}
		return Socket{}, ErrUnheld
	}
	return ask(unix.AF_INET6, local, remote)
}

// ask asks for a socket of a family.
func ask(family byte, local, remote netip.AddrPort) (Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return Socket{}, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	m := make([]byte, diagRequest)
	binary.NativeEndian.PutUint32(m, diagRequest)
	binary.NativeEndian.PutUint16(m[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST)
	q := m[unix.SizeofNlMsghdr:]
	q[0], q[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(q[4:], 1<<32-1) // in any state
	putID(q[8:], local, remote)
	for i := range 8 {
		q[48+i] = 0xff // no cookie
	}
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return Socket{}, os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return Socket{}, os.NewSyscallError("recvfrom", err)
	}
	a := answer[:n]
	if n >= unix.SizeofNlMsghdr+4 && binary.NativeEndian.Uint16(a[4:]) == unix.NLMSG_ERROR {
		number := syscall.Errno(-int32(binary.NativeEndian.Uint32(a[unix.SizeofNlMsghdr:])))
		if number == syscall.ENOENT {
			return Socket{}, ErrUnheld
		}
		return Socket{}, os.NewSyscallError("sock_diag", number)
	}
	if n < diagResponse {
		return Socket{}, errors.New("the kernel's answer is too short")
	}
	a = a[unix.SizeofNlMsghdr:]
	var id [36]byte
	putID(id[:], local, remote)
	if string(a[idOffset:idOffset+len(id)]) != string(id[:]) {
		return Socket{}, ErrUnheld // this is the socket that listens there
	}
	s := Socket{binary.NativeEndian.Uint32(a[uidOffset:]), binary.NativeEndian.Uint32(a[inodeOffset:])}
	if s.Inode == 0 { // the user is root, whoever has closed it
		return Socket{}, ErrUnheld
	}
	return s, nil
}

// putID writes the ports and addresses of a struct inet_diag_sockid.
func putID(to []byte, local, remote netip.AddrPort) {
	binary.BigEndian.PutUint16(to, local.Port())
	binary.BigEndian.PutUint16(to[2:], remote.Port())
	copy(to[4:], local.Addr().AsSlice())
	copy(to[20:], remote.Addr().AsSlice())
}
