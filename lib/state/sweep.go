package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"btools/lib/proc"
)

// Names of what an instance's own directory holds.
const (
	DirPrefix   = "btools-"       // then the instance's ID
	LockFile    = "lock"          // flocked by the supervisor for its life
	EntryFile   = "instance.json" // the instance's entry, from which a lost state file is made again
	Mark        = "BTOOLS_INSTANCE"
	killBound   = 3 * time.Second // a process that SIGKILL doesn't end in this time hangs in the kernel
	deleteBound = time.Second     // files that come back while a killed browser's helpers end
)

// ValidID reports whether id has the shape of an instance's ID: inst_, digits,
// _, six of 0-9 and a-z.
func ValidID(id string) bool {
	const digits, letters = "0123456789", "abcdefghijklmnopqrstuvwxyz"
	id, ok := strings.CutPrefix(id, "inst_")
	ms, random, ok2 := strings.Cut(id, "_")
	return ok && ok2 && ms != "" && strings.Trim(ms, digits) == "" && len(random) == 6 && strings.Trim(random, digits+letters) == ""
}

func isInstanceDir(name string) bool {
	id, ok := strings.CutPrefix(name, DirPrefix)
	return ok && ValidID(id)
}

// Swept tells what was swept of one dead instance.
type Swept struct {
	ID     string   `json:"id"`
	Dirs   []string `json:"dirs"`
	Killed []int    `json:"killed"` // processes that had outlived their supervisor
}

// Alive reports whether the instance's supervisor lives. Where its number
// means nothing (another PID namespace of this boot) its file lock tells.
func (i *Instance) Alive() bool {
	if i.Supervisor.Local() {
		return i.Supervisor.Alive()
	}
	if !i.Supervisor.Alive() { // another boot
		return false
	}
	for _, d := range i.Dirs {
		if held, known := lockHeld(filepath.Join(d, LockFile)); known {
			return held
		}
	}
	return true
}

// lockHeld reports whether somebody holds the file's lock, and whether that
// could be found out.
func lockHeld(path string) (held, known bool) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false, false
	}
	defer f.Close()
	return Lock(f, false) != nil, true
}

// Clean ends what is left of a dead instance and deletes its directories.
func (i *Instance) Clean() (Swept, error) {
	s := Swept{ID: i.ID, Dirs: []string{}, Killed: []int{}}
	if b := i.Browser; b != nil && b.Signal(syscall.SIGKILL) == nil {
		s.Killed = append(s.Killed, b.PID)
	}
	killed, err := proc.KillMarked(Mark+"="+i.ID, i.dir(), killBound)
	for _, pid := range killed {
		if !slices.Contains(s.Killed, pid) {
			s.Killed = append(s.Killed, pid)
		}
	}
	for _, d := range i.Dirs {
		deleted, derr := RemoveDir(d)
		if deleted {
			s.Dirs = append(s.Dirs, d)
		}
		err = errors.Join(err, derr)
	}
	return s, err
}

// dir is the instance's own directory, where its processes start.
func (i *Instance) dir() string {
	if len(i.Dirs) == 0 {
		return ""
	}
	return i.Dirs[0]
}

// RemoveDir deletes an instance's directory, and reports whether there was
// one. It refuses a path that no instance's directory has: the path comes
// from a file.
func RemoveDir(dir string) (bool, error) {
	if !filepath.IsAbs(dir) || !isInstanceDir(filepath.Base(dir)) {
		return false, fmt.Errorf("refused to delete %q: it is no instance's directory", dir)
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	for end := time.Now().Add(deleteBound); ; time.Sleep(5 * time.Millisecond) {
		err := os.RemoveAll(dir)
		if err == nil {
			return true, nil
		}
		if time.Now().After(end) {
			return false, fmt.Errorf("cannot delete %s: %w", dir, err)
		}
	}
}

func (s *Store) sweep(dead []Instance) []Swept {
	var done []Swept
	for _, i := range dead {
		swept, err := i.Clean()
		if err != nil {
			if s.Warn != nil {
				s.Warn(fmt.Sprintf("cannot sweep what %s left: %v", i.ID, err))
			}
			continue
		}
		done = append(done, swept)
	}
	if len(done) == 0 {
		return done
	}
	if err := s.locked(func(f *File) error {
		for _, d := range done {
			f.Drop(d.ID)
		}
		return nil
	}); err != nil && s.Warn != nil {
		s.Warn(err.Error())
	}
	return done
}

// GC sweeps what dead processes left: entries, processes, and also the
// directories that no entry names, because the state file was lost.
func (s *Store) GC() ([]Swept, error) {
	var dead []Instance
	known := map[string]bool{}
	err := s.locked(func(f *File) error {
		dead = f.tidy()
		for _, i := range f.Instances {
			known[i.ID] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, dir := range instanceDirs() {
		id := filepath.Base(dir)[len(DirPrefix):]
		if known[id] {
			continue
		}
		held, ok := lockHeld(filepath.Join(dir, LockFile))
		if st, err := os.Stat(dir); !ok && (err != nil || time.Since(st.ModTime()) < time.Minute) {
			continue // just being made: its lock comes next
		}
		if !held {
			dead = append(dead, Instance{ID: id, Dirs: []string{dir}})
		}
	}
	return s.sweep(dead), nil
}

// instanceDirs lists our instances' directories in the temporary directories.
func instanceDirs() []string {
	var dirs []string
	for _, tmp := range slices.Compact([]string{os.TempDir(), shortTemp}) {
		entries, err := os.ReadDir(tmp)
		if err != nil {
			continue
		}
		for _, e := range entries {
			dir := filepath.Join(tmp, e.Name())
			if e.IsDir() && isInstanceDir(e.Name()) && checkOwner(dir) == nil {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// recoverInstances fills a new state file with the instances that live: what
// was lost is only the list of them.
func (s *Store) recoverInstances(f *File) {
	for _, dir := range instanceDirs() {
		b, err := os.ReadFile(filepath.Join(dir, EntryFile))
		if err != nil {
			continue
		}
		var i Copy
		if json.Unmarshal(b, &i) == nil && i.State == s.path && DirPrefix+i.ID == filepath.Base(dir) && i.Alive() && f.Instance(i.ID) == nil {
			f.Instances = append(f.Instances, i.Instance)
		}
	}
}
