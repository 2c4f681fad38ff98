package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
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

// CallService is a service of bmcp call.
type CallService struct {
	Process proc.Identity `json:"process"`
	Control string        `json:"control"`
}

// keptFor is how long the sessions of a service of bmcp call that was killed are kept if no other one runs.
const keptFor = time.Hour

// KeptCalls returns the directory of the files in which sessions of bmcp call outlive their service.
func (s *Store) KeptCalls() string { return filepath.Join(filepath.Dir(s.path), "calls") }

// tidyKept deletes what services of bmcp call have left there that were killed long ago.
func (s *Store) tidyKept() {
	all, err := os.ReadDir(s.KeptCalls())
	for _, e := range all {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > keptFor {
			os.Remove(filepath.Join(s.KeptCalls(), e.Name()))
		}
	}
	if err == nil {
		os.Remove(s.KeptCalls()) // if it is empty
	}
}

// ViewService is the service of bproxy view.
type ViewService struct {
	Process proc.Identity `json:"process"`
	Control string        `json:"control"`
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

// Service is the entry of a program with a control socket: a Proxy, PoolService, CallService or ViewService.
type Service interface {
	// at returns the process, its control socket, and its temporary directory or "".
	at() (process proc.Identity, control, dir string)
}

func (s Proxy) at() (proc.Identity, string, string)       { return s.Process, s.Control, s.Dir }
func (s PoolService) at() (proc.Identity, string, string) { return s.Process, s.Control, s.Dir }
func (s CallService) at() (proc.Identity, string, string) { return s.Process, s.Control, "" }
func (s ViewService) at() (proc.Identity, string, string) { return s.Process, s.Control, "" }

// Lists reports whether the file has the entry. Of two records of a proxy it does not tell which one it has.
func (f *File) Lists(s Service) bool {
	plain := func(s Service) Service {
		if p, ok := s.(Proxy); ok {
			p.Record = nil
			return p
		}
		return s
	}
	is := func(other Service) bool { return reflect.DeepEqual(plain(other), plain(s)) }
	return contains(f.Proxies, is) || contains(f.Pools, is) || contains(f.Calls, is) || contains(f.Views, is)
}

// Set lists a service, in the place of an entry of the same process or socket.
func (f *File) Set(s Service) {
	process, control, _ := s.at()
	f.deleteServices(func(old Service) bool {
		p, at, dir := old.at()
		is := reflect.TypeOf(old) == reflect.TypeOf(s) && (p == process || at == control)
		if is && p != process && !p.Alive() { // its socket has a service again, so that it was not taken for dead
			f.abandon(p, dir)
		}
		return is
	})
	switch s := s.(type) {
	case Proxy:
		f.Proxies = append(f.Proxies, s)
	case PoolService:
		f.Pools = append(f.Pools, s)
	case CallService:
		f.Calls = append(f.Calls, s)
	case ViewService:
		f.Views = append(f.Views, s)
	}
}

// Unset removes the entry of a service's process.
func (f *File) Unset(s Service) {
	process, _, _ := s.at()
	f.deleteServices(func(old Service) bool {
		p, _, _ := old.at()
		return reflect.TypeOf(old) == reflect.TypeOf(s) && p == process
	})
}

func (f *File) deleteServices(is func(Service) bool) {
	f.Proxies, f.Pools = without(f.Proxies, is), without(f.Pools, is)
	f.Calls, f.Views = without(f.Calls, is), without(f.Views, is)
}

func contains[S Service](all []S, is func(Service) bool) bool {
	return slices.ContainsFunc(all, func(s S) bool { return is(s) })
}

func without[S Service](all []S, is func(Service) bool) []S {
	return slices.DeleteFunc(all, func(s S) bool { return is(s) })
}

// tidyServices drops the entries of dead services, and their sockets. What is
// left of their directories is an instance that is dead.
func (f *File) tidyServices() {
	f.deleteServices(func(s Service) bool {
		process, control, dir := s.at()
		if !dead(process, control) {
			return false
		}
		f.abandon(process, dir)
		return true
	})
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
