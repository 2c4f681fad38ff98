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
	"strings"
	"syscall"
	"time"

	"btools/lib/place"
	"btools/lib/private"
	"btools/lib/proc"
	"btools/lib/record"
)

// Names of what an instance's own directory holds.
const (
	DirPrefix = "btools-"       // then the instance's ID
	EntryFile = "instance.json" // the instance's entry, from which a lost state file is made again
	Mark      = "BTOOLS_INSTANCE"
)

const (
	killBound   = 3 * time.Second // a process that SIGKILL doesn't end in this time hangs in the kernel
	deleteBound = time.Second     // files that come back while a killed browser's helpers end
	saveBound   = 3 * time.Second // a browser whose supervisor died has been told so, and saves its profile
	askBound    = 2 * time.Second // then it is asked once more
	sweepAgain  = 5 * time.Minute // after a try that failed
	newBound    = time.Minute     // a directory without an entry is just being made
)

// ValidID reports whether id has the shape of an instance's ID: inst_, digits,
// _, six of 0-9 and a-z.
func ValidID(id string) bool { return validID(id, "inst_") }

func validID(id, kind string) bool {
	const digits, letters = "0123456789", "abcdefghijklmnopqrstuvwxyz"
	id, ok := strings.CutPrefix(id, kind)
	ms, random, ok2 := strings.Cut(id, "_")
	return ok && ok2 && ms != "" && strings.Trim(ms, digits) == "" && len(random) == 6 &&
		strings.Trim(random, digits+letters) == ""
}

// isInstanceDir reports whether a directory may be an instance's, or a program's
// (see Dir).
func isInstanceDir(name string) bool {
	id, ok := strings.CutPrefix(name, DirPrefix)
	return ok && (ValidID(id) || validID(id, dirKind))
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
		if held, known := dirHeld(d); known {
			return held
		}
	}
	return true
}

// LockDir locks an instance's directory for the life of its supervisor. A
// sweeper may have it for a moment.
func LockDir(ctx context.Context, dir string) (*os.File, error) {
	f, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	if err := private.Lock(ctx, f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// dirHeld reports whether somebody has locked the directory, and whether that
// could be found out.
func dirHeld(dir string) (held, known bool) {
	f, err := openDir(dir)
	if err != nil {
		return false, false
	}
	defer f.Close()
	err = private.TryLock(f)
	return errors.Is(err, private.ErrLocked), err == nil || errors.Is(err, private.ErrLocked)
}

// Clean ends what is left of a dead instance and deletes its directories.
func (i *Instance) Clean() (Swept, error) {
	s := Swept{ID: i.ID, Dirs: []string{}, Killed: []int{}}
	if b := i.Browser; b != nil && b.Local() {
		if i.KeepProfile {
			letSave(*b)
		}
		if b.Signal(syscall.SIGKILL) == nil {
			s.Killed = append(s.Killed, b.PID)
		}
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

// letSave waits for a browser that its dead supervisor's pipe, or the kernel,
// has told to end. It is asked by a signal only after that: a second one
// would kill it.
func letSave(b proc.Identity) {
	wait := func(bound time.Duration) bool {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		return b.Wait(ctx) == nil
	}
	if !wait(saveBound) && b.Signal(syscall.SIGTERM) == nil {
		wait(askBound)
	}
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
		return false, fmt.Errorf("refused to delete %q: it is not the directory of an instance", dir)
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

// sweep cleans up after dead instances and drops them from the file. The
// context's end does not stop it: it bounds itself.
func (s *Store) sweep(ctx context.Context, dead []Instance) []Swept {
	if len(dead) == 0 {
		return nil
	}
	var done []Swept
	var failed []string
	for _, i := range dead {
		swept, err := i.Clean()
		if err != nil {
			s.warn("cannot clean up after %s: %v (blaunch gc tries again)", i.ID, err)
			failed = append(failed, i.ID)
			continue
		}
		done = append(done, swept)
	}
	if err := s.locked(context.WithoutCancel(ctx), func(f *File) error {
		for _, d := range done {
			f.Drop(d.ID)
		}
		now := record.Now()
		for _, id := range failed {
			if i := f.Instance(id); i != nil {
				i.SweepFailed = &now
			}
		}
		return nil
	}); err != nil {
		s.warn("%v", err)
	}
	return done
}

func (s *Store) warn(format string, args ...any) {
	if s.Warn != nil {
		s.Warn(fmt.Sprintf(format, args...))
	}
}

// GC sweeps what dead processes left: entries, processes, and also the
// directories that no entry of the file names, because the file was lost or
// is another one's. Only what is known to be dead goes.
func (s *Store) GC(ctx context.Context) ([]Swept, error) {
	var dead []Instance
	known := map[string]bool{}
	err := s.locked(ctx, func(f *File) error {
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
		i, why := lost(id, dir)
		switch {
		case why != "":
			s.warn("%s is left alone: %s", dir, why)
		case i != nil:
			dead = append(dead, *i)
			known[id] = true // its other directory goes with it
		}
	}
	return s.sweep(ctx, dead), nil
}

// lost is the dead instance of a directory that no entry names. It is nil if
// the instance lives, or with the reason why that is not known.
func lost(id, dir string) (i *Instance, why string) {
	if held, known := dirHeld(dir); held || !known {
		return nil, ""
	}
	if c, err := readCopy(dir); err == nil {
		if c.Alive() { // and its lock is lost
			return nil, ""
		}
		return &c.Instance, ""
	}
	if st, err := os.Stat(dir); err != nil || time.Since(st.ModTime()) < newBound {
		return nil, ""
	}
	if left := proc.Marked(Mark+"="+id, dir); len(left) > 0 {
		return nil, fmt.Sprintf("process %d belongs to it, and nothing tells whether its supervisor lives", left[0].PID)
	}
	return &Instance{ID: id, Dirs: []string{dir}}, ""
}

// readCopy reads an instance's entry from its directory.
func readCopy(dir string) (Copy, error) {
	var c Copy
	b, err := private.ReadFile(filepath.Join(dir, EntryFile))
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err == nil && DirPrefix+c.ID != filepath.Base(dir) {
		err = fmt.Errorf("it is of %s", c.ID)
	}
	return c, err
}

// instanceDirs lists our instances' directories in the temporary directories.
func instanceDirs() []string {
	var dirs []string
	for _, tmp := range slices.Compact([]string{filepath.Clean(os.TempDir()), place.ShortTemp}) {
		entries, err := os.ReadDir(tmp)
		if err != nil {
			continue
		}
		for _, e := range entries {
			dir := filepath.Join(tmp, e.Name())
			if e.IsDir() && isInstanceDir(e.Name()) && private.CheckDir(dir) == nil {
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
		if c, err := readCopy(dir); err == nil && c.State == s.path && f.Instance(c.ID) == nil && c.Alive() {
			f.Instances = append(f.Instances, c.Instance)
		}
	}
}
