// Package systemd is a service's side of systemd: the sockets that it is
// handed, and the word that it is ready. Without systemd it does nothing.
package systemd

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// firstFD is the descriptor of the first socket (sd_listen_fds(3)).
const firstFD = 3

// Listeners returns the sockets that systemd listens on for this process,
// none if it doesn't. What is started from here does not inherit them.
func Listeners() ([]net.Listener, error) {
	pid, n := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	count, err := strconv.Atoi(n)
	if err != nil || count < 0 {
		return nil, fmt.Errorf("LISTEN_FDS is %q, not a number", n)
	}
	var ls []net.Listener
	for fd := firstFD; fd < firstFD+count; fd++ {
		f := os.NewFile(uintptr(fd), "systemd-socket-"+strconv.Itoa(fd))
		l, err := net.FileListener(f) // a copy, closed on exec
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("descriptor %d of systemd is not a listening socket: %w", fd, err)
		}
		ls = append(ls, l)
	}
	return ls, nil
}

// Notifier tells systemd of a change, as sd_notify(3) does.
type Notifier struct {
	path     string
	Watchdog time.Duration // how often it wants to hear WATCHDOG=1; 0: not at all
}

// NewNotifier returns the notifier that the environment names. What is
// started from here does not see it.
func NewNotifier() *Notifier {
	n := &Notifier{path: os.Getenv("NOTIFY_SOCKET")}
	if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
			n.Watchdog = time.Duration(us) * time.Microsecond
		}
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"} {
		os.Unsetenv(name)
	}
	return n
}

// tellTimeout is for a systemd that does not read, as it is busy or hangs: its socket
// holds few messages, and a service that waits for it would not even stop.
const tellTimeout = time.Second

// Tell sends a state, such as "READY=1". It can't fail in a way that matters.
func (n *Notifier) Tell(state string) {
	if n.path == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.path, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	c.SetWriteDeadline(time.Now().Add(tellTimeout))
	c.Write([]byte(state))
}
