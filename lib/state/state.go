// Package state is the shared state file: what is alive of btools on this
// machine, for discovery. Writers take a lock on a sibling file and rename a
// new file into place; readers take no lock and always see one whole file.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"btools/lib/proc"
	"btools/lib/record"
)

// Version is the version of the file's schema.
const Version = 1

// File is the content of the state file.
type File struct {
	V         int           `json:"v"`
	Instances []Instance    `json:"instances"`
	Proxies   []Proxy       `json:"proxies"`
	Pools     []PoolService `json:"pools"`
	Ports     []Port        `json:"ports"`
	Exits     []Exit        `json:"exits"`

	// Other holds the members that this program doesn't know.
	other *record.Record
}

// Instance is a browser and its supervisor. It is listed before anything of
// it is made, so that its end can always be tidied up after.
type Instance struct {
	ID         string         `json:"id"`
	Supervisor proc.Identity  `json:"supervisor"`
	Browser    *proc.Identity `json:"browser,omitempty"` // once it is started
	Dirs       []string       `json:"dirs"`              // deleted when it ends
	Record     *record.Record `json:"record,omitempty"`  // once it is ready
}

// Copy is what an instance's own directory keeps of its entry, and which
// state file lists it.
type Copy struct {
	Instance
	State string `json:"state"`
}

// Port is one that was handed out and must not be again before Until.
type Port struct {
	Host  string      `json:"host"`
	Port  int         `json:"port"`
	Until record.Time `json:"until"`
}

// Exit tells how an instance ended.
type Exit struct {
	ID       string      `json:"id"`
	PID      int         `json:"pid"`
	ExitedAt record.Time `json:"exited_at"`
	Code     int         `json:"code"`   // the browser's exit code, -1 if a signal ended it
	Signal   int         `json:"signal"` // that signal, else 0
	Reason   string      `json:"reason"`
}

// MaxExits is how many exits are kept: enough for "what became of my
// browser", not a log.
const MaxExits = 32

// Errors of the file itself.
var (
	// ErrNewer says that a newer btools wrote the file.
	ErrNewer = errors.New("written by a newer btools")
	// ErrOwner says that the directory or file belongs to another user.
	ErrOwner = errors.New("belongs to another user")
)

// Store is the place of the state file.
type Store struct {
	path string
	// Warn is told of what was mended, if not nil.
	Warn func(string)
}

// Open returns the store that the environment names: $BTOOLS_STATE, else
// $XDG_RUNTIME_DIR/btools/state.json, else btools-UID/state.json in the
// temporary directory. It touches nothing.
func Open(getenv func(string) string) *Store {
	if p := getenv("BTOOLS_STATE"); p != "" {
		if abs, err := filepath.Abs(p); err == nil {
			p = abs
		}
		return &Store{path: p}
	}
	// The XDG specification has relative values ignored. A runtime directory
	// that is named but missing (su, a container) is as good as none.
	if d := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) {
		if st, err := os.Stat(d); err == nil && st.IsDir() {
			return &Store{path: filepath.Join(d, "btools", "state.json")}
		}
	}
	return &Store{path: filepath.Join(os.TempDir(), "btools-"+strconv.Itoa(os.Getuid()), "state.json")}
}

// Path is the file's path.
func (s *Store) Path() string { return s.path }

// Read returns the file's content without a lock; an empty one if there is
// no file. A damaged file reads as empty: the next writer mends it.
func (s *Store) Read() (*File, error) {
	if err := checkOwner(filepath.Dir(s.path)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return &File{V: Version}, nil
		}
		return nil, s.fail("read", err)
	}
	f, err := s.load()
	var bad *damaged
	if errors.As(err, &bad) {
		return &File{V: Version}, nil
	}
	if err != nil {
		return nil, s.fail("read", err)
	}
	return f, nil
}

func (s *Store) fail(do string, err error) error {
	return fmt.Errorf("cannot %s the state file %s: %w", do, s.path, err)
}

type damaged struct{ error }

func (s *Store) load() (*File, error) {
	if err := checkOwner(s.path); errors.Is(err, fs.ErrNotExist) {
		return &File{V: Version}, nil
	} else if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return &File{V: Version}, nil
	}
	if err != nil {
		return nil, err
	}
	var version struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return nil, &damaged{err}
	}
	if version.V > Version {
		return nil, fmt.Errorf("%w (version %d, this program knows %d): update btools, or set BTOOLS_STATE to another file", ErrNewer, version.V, Version)
	}
	f := &File{other: &record.Record{}}
	if err := json.Unmarshal(b, f); err != nil {
		return nil, &damaged{err}
	}
	if f.V != Version {
		return nil, &damaged{fmt.Errorf("it has no version")}
	}
	if err := json.Unmarshal(b, f.other); err != nil {
		return nil, &damaged{err}
	}
	return f, nil
}

func (f *File) bytes() []byte {
	out := f.other
	if out == nil {
		out = &record.Record{}
	}
	out.MustSet("v", Version)
	out.MustSet("instances", notNil(f.Instances))
	out.MustSet("proxies", notNil(f.Proxies))
	out.MustSet("pools", notNil(f.Pools))
	out.MustSet("ports", notNil(f.Ports))
	out.MustSet("exits", notNil(f.Exits))
	return out.Line()
}

func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// Update changes the file under the lock: change sees the content without
// what has run out and edits it in place; its error leaves the file as it
// was. What dead processes left is swept after the lock is given back, and
// then dropped from the file.
func (s *Store) Update(change func(*File) error) error {
	var dead []Instance
	err := s.locked(func(f *File) error {
		dead = f.tidy()
		return change(f)
	})
	if err != nil {
		return err
	}
	if len(dead) > 0 {
		s.sweep(dead)
	}
	return nil
}

// UpdateWithin is Update by a program that ends: it does not wait for longer
// than that for a lock that somebody holds. What it leaves is swept by the
// next one.
func (s *Store) UpdateWithin(bound time.Duration, change func(*File) error) error {
	done := make(chan error, 1)
	go func() { done <- s.Update(change) }()
	select {
	case err := <-done:
		return err
	case <-time.After(bound):
		return s.fail("update", errors.New("somebody holds its lock"))
	}
}

// tidy drops what has run out and returns the instances whose supervisor is
// dead. They stay in the file until they are swept, so that a sweeper that
// is killed loses nothing.
func (f *File) tidy() (dead []Instance) {
	now := time.Now()
	f.Ports = slices.DeleteFunc(f.Ports, func(p Port) bool { return !p.Until.After(now) })
	f.tidyServices()
	for _, i := range f.Instances {
		if !i.Alive() {
			dead = append(dead, i)
		}
	}
	if n := len(f.Exits) - MaxExits; n > 0 {
		f.Exits = f.Exits[n:]
	}
	return dead
}

// Instance returns the entry with the ID, nil if there is none.
func (f *File) Instance(id string) *Instance {
	for i := range f.Instances {
		if f.Instances[i].ID == id {
			return &f.Instances[i]
		}
	}
	return nil
}

// Drop removes the entry with the ID.
func (f *File) Drop(id string) {
	f.Instances = slices.DeleteFunc(f.Instances, func(i Instance) bool { return i.ID == id })
}

func (s *Store) locked(change func(*File) error) error {
	dir := filepath.Dir(s.path)
	// The directory may vanish between any two calls (a cleaner, a logout):
	// make it again and take the lock again.
	var lock *os.File
	for try := 0; ; try++ {
		err := makeDir(dir)
		if err == nil {
			lock, err = takeLock(filepath.Join(dir, lockName(s.path)))
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || try > 20 {
			return s.fail("lock", err)
		}
	}
	defer lock.Close()
	f, err := s.load()
	var bad *damaged
	switch {
	case errors.As(err, &bad):
		aside := s.path + ".damaged"
		if err := os.Rename(s.path, aside); err != nil {
			return s.fail("replace", err)
		}
		if s.Warn != nil {
			s.Warn(fmt.Sprintf("the state file %s is damaged (%v): kept as %s, a new one begun", s.path, bad, aside))
		}
		f = &File{V: Version}
		s.recoverInstances(f)
	case err != nil:
		return s.fail("read", err)
	case f.other == nil: // there was no file
		s.recoverInstances(f)
	}
	if err := change(f); err != nil {
		return err
	}
	// One name for all writers: they hold the lock, and what a killed one
	// left is overwritten by the next. No fsync: after a crash of the machine
	// nothing that the file lists is alive.
	if err := WriteFile(s.path, f.bytes()); err != nil {
		return s.fail("write", err)
	}
	return nil
}

// WriteFile writes a file, mode 0600, that readers see whole: the old one or
// the new one. Writers must not race.
func WriteFile(path string, b []byte) error {
	next := path + ".new"
	err := os.WriteFile(next, b, 0o600)
	if err == nil {
		err = replace(next, path)
	}
	if err != nil {
		os.Remove(next)
	}
	return err
}

// lockName is "state.lock" for state.json.
func lockName(path string) string {
	base := filepath.Base(path)
	return base[:len(base)-len(filepath.Ext(base))] + ".lock"
}

func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return checkOwner(dir)
}

// takeLock opens and locks the file, and makes sure that the path still
// names it: two processes with the locks of two files would both go on.
func takeLock(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := Lock(f, true); err != nil {
			f.Close()
			return nil, err
		}
		ours, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if now, err := os.Stat(path); err == nil && os.SameFile(ours, now) {
			return f, nil
		}
		f.Close()
	}
}
