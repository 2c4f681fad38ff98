package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"btools/lib/place"
	"btools/lib/private"
	"btools/lib/proc"
	"btools/lib/record"
)

// Proxy is a bproxy that listens.
type Proxy struct {
	Process proc.Identity  `json:"process"`
	Control string         `json:"control"` // its control socket
	Record  *record.Record `json:"record"`
	Dir     string         `json:"dir,omitempty"` // its temporary directory: see Dir
}

// dialBound is how long a service may take to accept a connection: one whose
// queue is full lives.
const dialBound = 100 * time.Millisecond

// SocketPath returns the path of the control socket with this name.
func (s *Store) SocketPath(name string) string { return place.Socket(s.path, name) }

// Socket returns the path of the control socket with this name, whose
// directory it makes.
func (s *Store) Socket(name string) (string, error) {
	path := s.SocketPath(name)
	if err := private.MakeDir(filepath.Dir(path)); err != nil {
		return "", s.fail("open a socket beside", err)
	}
	return path, nil
}

// Listens tells which browser or proxy of the file has the port, and how to
// stop it; "" if none has.
func (f *File) Listens(port int) (who, stop string) {
	for _, i := range f.Instances {
		var r record.Instance
		if i.Record == nil || !i.Alive() {
			continue
		}
		if _, err := i.Record.Get("instance", &r); err == nil && r.Port == port {
			return "the browser " + i.ID, "blaunch stop " + i.ID
		}
	}
	for _, p := range f.Proxies {
		var r record.Proxy
		if p.Record == nil || !p.Process.Alive() {
			continue
		}
		if _, err := p.Record.Get("proxy", &r); err == nil && r.Port == port {
			return fmt.Sprintf("bproxy (pid %d)", p.Process.PID), fmt.Sprintf("kill %d", p.Process.PID)
		}
	}
	return "", ""
}

// SetProxy lists the proxy, in the place of an entry of the same process.
func (f *File) SetProxy(p Proxy) {
	f.DropProxy(p.Process)
	f.Proxies = append(f.Proxies, p)
}

// DropProxy removes the process's entry.
func (f *File) DropProxy(process proc.Identity) {
	f.Proxies = slices.DeleteFunc(f.Proxies, func(p Proxy) bool { return p.Process == process })
}

// PoolService is a bpool that runs.
type PoolService struct {
	Process proc.Identity `json:"process"`
	Control string        `json:"control"`
	Names   []string      `json:"names"` // of its pools
	// Private says that it belongs to the program that runs it, with which it
	// ends: others leave it alone.
	Private bool `json:"private,omitempty"`
	// Dir is its temporary directory: see Dir.
	Dir string `json:"dir,omitempty"`
	// Former is the control socket that its successor has now; "": it has none. It serves its leases to
	// their end, and is found only by the service at that socket.
	Former string `json:"former,omitempty"`
}

// SetPools lists the service, in the place of an entry of the same process.
func (f *File) SetPools(p PoolService) {
	f.Pools = slices.DeleteFunc(f.Pools, func(old PoolService) bool {
		return old.Process == p.Process || old.Control == p.Control
	})
	f.Pools = append(f.Pools, p)
}

// DropPools removes the process's entry.
func (f *File) DropPools(process proc.Identity) {
	f.Pools = slices.DeleteFunc(f.Pools, func(p PoolService) bool { return p.Process == process })
}

// CallService is a service of bmcp call.
type CallService struct {
	Process proc.Identity `json:"process"`
	Control string        `json:"control"`
}

// SetCalls lists the service, in the place of an earlier one at its socket.
func (f *File) SetCalls(s CallService) {
	f.Calls = slices.DeleteFunc(f.Calls, func(o CallService) bool { return o.Control == s.Control })
	f.Calls = append(f.Calls, s)
}

// DropCalls removes the process's entry.
func (f *File) DropCalls(process proc.Identity) {
	f.Calls = slices.DeleteFunc(f.Calls, func(s CallService) bool { return s.Process == process })
}

// ViewService is the service of bproxy view.
type ViewService struct {
	Process proc.Identity `json:"process"`
	Control string        `json:"control"`
}

// SetView lists the service, in the place of an earlier one at its socket.
func (f *File) SetView(s ViewService) {
	f.Views = append(slices.DeleteFunc(f.Views, func(o ViewService) bool { return o.Control == s.Control }), s)
}

// DropView removes the process's entry.
func (f *File) DropView(process proc.Identity) {
	f.Views = slices.DeleteFunc(f.Views, func(s ViewService) bool { return s.Process == process })
}

// Opened are the tabs that a program has open in a browser of somebody else.
type Opened struct {
	Process proc.Identity `json:"process"`
	Browser string        `json:"browser"` // the URL of its WebSocket
	Tabs    []string      `json:"tabs"`    // the IDs of their targets
}

// maxOpened is how many programs are remembered: nobody may come back to their browsers.
const maxOpened = 32

// SetOpened lists tabs, in the place of an entry of the same process and browser.
func (f *File) SetOpened(o Opened) {
	f.Opened = slices.DeleteFunc(f.Opened, func(old Opened) bool {
		return old.Process == o.Process && old.Browser == o.Browser
	})
	if len(o.Tabs) > 0 {
		f.Opened = append(f.Opened[max(0, len(f.Opened)-maxOpened+1):], o)
	}
}

// TakeOpened removes the entries of programs that were killed, and returns the tabs that they have left in a browser.
func (f *File) TakeOpened(browser string) (left []string) {
	f.Opened = slices.DeleteFunc(f.Opened, func(o Opened) bool {
		if o.Browser != browser || o.Process.Alive() {
			return false
		}
		left = append(left, o.Tabs...)
		return true
	})
	return left
}

// tidyServices drops the entries of dead services, and their sockets. What is
// left of their directories is an instance that is dead.
func (f *File) tidyServices() {
	drop := func(process proc.Identity, control, dir string) bool {
		if !dead(process, control) {
			return false
		}
		f.abandon(process, dir)
		return true
	}
	f.Proxies = slices.DeleteFunc(f.Proxies, func(p Proxy) bool { return drop(p.Process, p.Control, p.Dir) })
	f.Pools = slices.DeleteFunc(f.Pools, func(p PoolService) bool { return drop(p.Process, p.Control, p.Dir) })
	f.Calls = slices.DeleteFunc(f.Calls, func(s CallService) bool { return drop(s.Process, s.Control, "") })
	f.Views = slices.DeleteFunc(f.Views, func(s ViewService) bool { return drop(s.Process, s.Control, "") })
}

// dead reports whether a service has ended; its socket goes then.
func dead(process proc.Identity, control string) bool {
	// Whether one of another PID namespace lives, its socket tells.
	if process.Local() && process.Alive() {
		return false
	}
	// The path comes from a file: only what can be a socket of ours goes.
	st, err := os.Lstat(control)
	if err != nil || st.Mode()&os.ModeSocket == 0 || !strings.HasSuffix(control, place.SocketSuffix) {
		return errors.Is(err, fs.ErrNotExist) || err == nil
	}
	unlock, err := private.LockSocket(context.Background(), control, false)
	if err != nil { // another one opens the socket just now; or it can't be removed
		return !errors.Is(err, private.ErrLocked) && !process.Alive()
	}
	defer unlock()
	c, err := net.DialTimeout("unix", control, dialBound)
	if err == nil {
		// Its first thread has ended, and others are about to; or another
		// service has the path, whose entry takes this one's place.
		c.Close()
		return false
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return errors.Is(err, syscall.ENOENT) // else it could not be found out
	}
	if now, err := os.Lstat(control); err == nil && os.SameFile(st, now) {
		os.Remove(control)
	}
	return true
}
