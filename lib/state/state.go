// Package state is the shared state file: what is alive of btools on this
// machine, for discovery. Writers take a lock on a sibling file and rename a
// new file into place; readers take no lock and always see one whole file.
package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"btools/lib/place"
	"btools/lib/private"
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
	Calls     []CallService `json:"calls,omitempty"`
	Views     []ViewService `json:"views,omitempty"`
	Opened    []Opened      `json:"opened,omitempty"`
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
	Record     *record.Record `json:"record,omitempty"`  // once it is ready; without a port once it is started
	// Owner is the program that the browser belongs to, such as "bpool A/0".
	Owner string `json:"owner,omitempty"`
	// KeepProfile says that the profile is the user's: a browser whose
	// supervisor died gets the time to save it.
	KeepProfile bool `json:"keep_profile,omitempty"`
	// SweepFailed is when the last try to clean up after it failed.
	SweepFailed *record.Time `json:"sweep_failed_at,omitempty"`
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

// MaxReserve is for how long a port can be reserved.
const MaxReserve = 24 * time.Hour

// Reserved reports whether the port is reserved at a time. One that would be for
// longer than MaxReserve is not: it was reserved while the clock was wrong.
func (p Port) Reserved(now time.Time) bool {
	return p.Until.After(now) && !p.Until.After(now.Add(MaxReserve))
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

// Errors of the file itself, beside those of package private.
var (
	// ErrNewer says that a newer btools wrote the file.
	ErrNewer = errors.New("written by a newer btools")
	// ErrPath says that the file's path can't be written into it.
	ErrPath = errors.New("the path is not valid UTF-8")
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
func Open(getenv func(string) string) *Store { return &Store{path: place.State(getenv)} }

// Path is the file's path.
func (s *Store) Path() string { return s.path }

// First reports whether nobody has asked for this word before: an empty file beside
// the state file remembers it.
func (s *Store) First(word string) bool {
	dir := filepath.Dir(s.path)
	if private.MakeDir(dir) != nil {
		return true
	}
	f, err := private.Open(filepath.Join(dir, word), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err == nil {
		f.Close()
	}
	return !errors.Is(err, fs.ErrExist)
}

// Read returns the file's content without a lock. If there is no file, or a
// damaged one, it has the instances that live, as the next writer finds them.
func (s *Store) Read() (*File, error) {
	f, err := &File{V: Version}, private.CheckDir(filepath.Dir(s.path))
	if err == nil {
		f, err = s.load()
	}
	var bad *damaged
	if errors.As(err, &bad) || errors.Is(err, fs.ErrNotExist) {
		f, err = &File{V: Version}, nil
	}
	if err != nil {
		return nil, s.fail("read", err)
	}
	if f.other == nil {
		s.recoverInstances(f)
	}
	return f, nil
}

func (s *Store) fail(do string, err error) error {
	return fmt.Errorf("cannot %s the state file %s: %w", do, s.path, err)
}

type damaged struct{ error }

func (s *Store) load() (*File, error) {
	b, err := private.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return &File{V: Version}, nil
	}
	if err != nil {
		return nil, err
	}
	// The members are read one by one: the file can be large, and this is what
	// a program that asks for one port waits for.
	f := &File{other: &record.Record{}}
	rest, ports, fast := cutPorts(b)
	if fast = fast && f.other.UnmarshalJSON(rest) == nil && string(f.other.Raw("ports")) == cut; fast {
		f.other.SetRaw("ports", json.RawMessage("[]"))
	} else if err := f.other.UnmarshalJSON(b); err != nil {
		return nil, &damaged{err}
	}
	for _, m := range f.members() {
		if _, err := f.other.Get(m.name, m.value); err != nil {
			return nil, &damaged{err}
		}
		if f.V > Version {
			return nil, fmt.Errorf("%w (version %d, this program knows %d): update btools, or set BTOOLS_STATE "+
				"to another file", ErrNewer, f.V, Version)
		}
	}
	if f.V != Version {
		return nil, &damaged{errors.New("it has no version")}
	}
	if fast {
		f.Ports = ports
	}
	return f, nil
}

type member struct {
	name  string
	value any
}

// members are those of the file that this program knows, the version first.
func (f *File) members() []member {
	return []member{{"v", &f.V}, {"instances", &f.Instances}, {"proxies", &f.Proxies}, {"pools", &f.Pools},
		{"calls", &f.Calls}, {"views", &f.Views}, {"opened", &f.Opened}, {"ports", &f.Ports}, {"exits", &f.Exits}}
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
	if len(f.Calls) > 0 || out.Raw("calls") != nil { // which an earlier version does not know
		out.MustSet("calls", notNil(f.Calls))
	}
	if len(f.Views) > 0 || out.Raw("views") != nil {
		out.MustSet("views", notNil(f.Views))
	}
	if len(f.Opened) > 0 || out.Raw("opened") != nil {
		out.MustSet("opened", notNil(f.Opened))
	}
	out.SetRaw("ports", encodePorts(f.Ports))
	out.MustSet("exits", notNil(f.Exits))
	line, _ := out.MarshalJSON() // a record always marshals
	return append(line, '\n')
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
// then dropped from the file. The lock is waited for until the context ends
// (its cause is the error) but not for longer than 10 s (private.ErrLocked).
func (s *Store) Update(ctx context.Context, change func(*File) error) error {
	var dead []Instance
	err := s.locked(ctx, func(f *File) error {
		dead = f.tidy()
		if len(f.Calls) == 0 {
			s.tidyKept()
		}
		return change(f)
	})
	if err != nil {
		return err
	}
	dead = slices.DeleteFunc(dead, func(i Instance) bool {
		return i.SweepFailed != nil && time.Since(i.SweepFailed.Time) < sweepAgain
	})
	s.sweep(ctx, dead)
	return nil
}

// UpdateWithin is Update by a program that ends: what it can't write within
// the bound is left to whoever sweeps.
func (s *Store) UpdateWithin(bound time.Duration, change func(*File) error) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), bound, private.ErrLocked)
	defer cancel()
	return s.Update(ctx, change)
}

// tidy drops what has run out and returns the instances whose supervisor is
// dead. They stay in the file until they are swept, so that a sweeper that
// is killed loses nothing.
func (f *File) tidy() (dead []Instance) {
	now := time.Now()
	f.Ports = slices.DeleteFunc(f.Ports, func(p Port) bool { return !p.Reserved(now) })
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

func (s *Store) locked(ctx context.Context, change func(*File) error) error {
	if !utf8.ValidString(s.path) {
		return s.fail("use", ErrPath)
	}
	if err := proc.Usable(); err != nil {
		return s.fail("use", err)
	}
	dir := filepath.Dir(s.path)
	// The directory may vanish between any two calls (a cleaner, a logout):
	// make it again and take the lock again.
	var lock *os.File
	for try := 0; ; try++ {
		err := private.MakeDir(dir)
		if err == nil {
			lock, err = private.LockFile(ctx, filepath.Join(dir, lockName(s.path)))
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
	if err := private.WriteFile(s.path, f.bytes()); err != nil {
		return s.fail("write", err)
	}
	return nil
}

// lockName is "state.lock" for state.json.
func lockName(path string) string {
	base := filepath.Base(path)
	return base[:len(base)-len(filepath.Ext(base))] + ".lock"
}
