package logins

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"btools/lib/exit"
	"btools/lib/private"
	"btools/lib/record"
)

// Store is a directory of states.
type Store struct {
	Dir string

	sync func(*os.File) error // set by tests
}

// Open returns the store of this user, $XDG_STATE_HOME/btools/states; home is
// the user's home directory.
func Open(getenv func(string) string, home string) (*Store, error) {
	dir, err := private.StateDir(getenv, home, "states")
	if err != nil {
		return nil, err
	}
	return &Store{Dir: dir}, nil
}

// For returns the states of a user of the program whose store this is: this one for the
// program's own user, and for root, who can read and write it anyway; for each other a
// directory of it. A uid of -1 is the program's own user.
func (s *Store) For(uid int) *Store {
	if private.IsOwn(uid) {
		return s
	}
	return &Store{Dir: filepath.Join(s.Dir, fmt.Sprintf("uid-%d", uid)), sync: s.sync}
}

const (
	suffix  = ".json"
	newFile = ".new" // follows the name of a file that is being written
	lock    = ".lock"
	maxName = 64
)

// file is the content of a state's file.
type file struct {
	Version int          `json:"version"`
	SavedAt *record.Time `json:"saved_at"`
	State   *State       `json:"state"`
}

// CheckName returns an error for an invalid name of a state.
func CheckName(name string) error {
	ok := 1 <= len(name) && len(name) <= maxName && name[0] != '.'
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if ok {
		return nil
	}
	if len(name) > maxName {
		name = name[:maxName] + "…"
	}
	return exit.Errorf(exit.Usage,
		"%q is not the name of a state: use 1 to %d letters, digits, \".\", \"_\" and \"-\", with no \".\" in front",
		name, maxName)
}

func (s *Store) path(name string) string { return filepath.Join(s.Dir, name+suffix) }

// Load reads a state.
func (s *Store) Load(name string) (*State, error) {
	f, _, err := s.read(name)
	if err != nil {
		return nil, err
	}
	return f.State, nil
}

// read reads a state's file and returns its size.
func (s *Store) read(name string) (*file, int64, error) {
	if err := CheckName(name); err != nil {
		return nil, 0, err
	}
	b, err := s.readFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("there is no state %q in %s", name, s.Dir),
			Hint: "bproxy state list shows the states, and bproxy state save makes one"}
	case err != nil:
		return nil, 0, &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("cannot read the state %q: %w", name, err)}
	}
	var v struct {
		Version int `json:"version"`
	}
	damaged := func(err error) error {
		return &exit.Error{Code: exit.Data, Err: fmt.Errorf("the state %q is damaged: %s: %w", name, s.path(name), err),
			Hint: "save it again, or delete it with bproxy state delete " + name}
	}
	if err := unmarshal(b, &v); err != nil {
		return nil, 0, damaged(err)
	}
	if v.Version > Version {
		return nil, 0, exit.Errorf(exit.Data,
			"the state %q has version %d, of a newer btools: this one reads version %d", name, v.Version, Version)
	}
	f := &file{}
	if err := unmarshal(b, f); err != nil {
		return nil, 0, damaged(err)
	}
	if f.Version < 1 || f.State == nil || f.SavedAt == nil {
		return nil, 0, damaged(errors.New("it has no version, time or state"))
	}
	if err := f.State.check(); err != nil {
		return nil, 0, damaged(err)
	}
	return f, int64(len(b)), nil
}

func (s *Store) readFile(name string) ([]byte, error) {
	if err := private.CheckDir(s.Dir); err != nil {
		return nil, err
	}
	return private.ReadFile(s.path(name))
}

// Prepare makes the directory, and fails if no state could be saved now.
func (s *Store) Prepare(ctx context.Context) error {
	if err := s.locked(ctx, func() error { return nil }); err != nil {
		return fmt.Errorf("cannot save a state: %w", err)
	}
	return nil
}

// Save writes a state, which replaces the one of this name. If it fails, that is
// as it was. Of two at the same time, one is first.
func (s *Store) Save(ctx context.Context, name string, state *State) error {
	return s.save(ctx, name, state, true)
}

// Create writes a state of a new name; fs.ErrExist: there is one already, damaged or
// not.
func (s *Store) Create(ctx context.Context, name string, state *State) error {
	return s.save(ctx, name, state, false)
}

// Has reports whether there is a state, damaged or not.
func (s *Store) Has(name string) bool {
	if CheckName(name) != nil {
		return false
	}
	_, err := os.Lstat(s.path(name))
	return err == nil
}

func (s *Store) save(ctx context.Context, name string, state *State, replace bool) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := state.check(); err != nil {
		return err
	}
	now := record.Now()
	b, err := marshal(file{Version, &now, state})
	if err == nil {
		state.saved = Info{SavedAt: now, Size: int64(len(b))}
		err = s.locked(ctx, func() error {
			if !replace && s.Has(name) {
				return fs.ErrExist
			}
			return s.replace(s.path(name), b)
		})
	}
	if err != nil {
		return fmt.Errorf("cannot save the state %q: %w", name, err)
	}
	return nil
}

// replace writes a file as a whole; the lock is held.
func (s *Store) replace(path string, b []byte) error {
	next := path + newFile
	f, err := private.Open(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err == nil {
		if s.sync != nil {
			err = s.sync(f)
		} else {
			err = f.Sync() // a disk that is full may say so only now
		}
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		os.Remove(next)
	}
	return err
}

// Delete deletes a state, damaged or not.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, _, err := s.read(name); err != nil {
		var e *exit.Error
		if errors.As(err, &e) && e.Code == exit.Unavailable {
			return err
		}
	}
	if err := s.locked(ctx, func() error { return os.Remove(s.path(name)) }); err != nil {
		return fmt.Errorf("cannot delete the state %q: %w", name, err)
	}
	return nil
}

// locked calls f with the directory locked against other writers. What a writer
// that was killed has left is deleted before.
func (s *Store) locked(ctx context.Context, f func() error) error {
	if err := private.MakeDir(s.Dir); err != nil {
		return err
	}
	l, err := private.LockFile(ctx, filepath.Join(s.Dir, lock))
	if err != nil {
		return err
	}
	defer l.Close()
	s.sweep()
	return f()
}

// sweep deletes files whose writers are gone; the lock is held.
func (s *Store) sweep() {
	left, _ := filepath.Glob(filepath.Join(s.Dir, "*"+suffix+newFile))
	for _, path := range left {
		os.Remove(path)
	}
}

// Describe describes a state and its contents.
func (s *Store) Describe(name string) (Info, error) { return s.describe(name, true) }

func (s *Store) describe(name string, contents bool) (Info, error) {
	f, size, err := s.read(name)
	if err != nil {
		return Info{}, err
	}
	i := Info{Name: name, SavedAt: *f.SavedAt, Size: size}
	f.State.describe(&i, contents)
	return i, nil
}

// List describes the states by name, and returns an error for each that cannot
// be read. It also deletes what a writer that was killed has left.
func (s *Store) List(ctx context.Context) (all []Info, bad []error, err error) {
	if _, err := os.Lstat(s.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err := s.locked(ctx, func() error { return nil }); err != nil {
		return nil, nil, fmt.Errorf("cannot list the states: %w", err)
	}
	names, err := s.Names()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		if i, err := s.describe(name, false); err != nil {
			bad = append(bad, err)
		} else {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b Info) int { return cmp.Compare(a.Name, b.Name) })
	return all, bad, nil
}

// Names returns the names of the states, without a look at them.
func (s *Store) Names() (names []string, err error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list the states: %w", err)
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok && CheckName(name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// marshal is json.Marshal that writes strings as they are: <, > and & are
// common in storage.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
