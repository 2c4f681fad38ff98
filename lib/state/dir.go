package state

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"btools/lib/proc"
)

// dirKind begins the ID of a program's directory, as inst_ an instance's.
const dirKind = "run_"

// Dir is a temporary directory of a program, for files that must not outlive
// it. The program's entry in the state file names it from the start, whether
// it has been made or not: whoever sweeps the entry after a SIGKILL deletes the
// directory. The program itself calls Remove.
type Dir struct {
	path string

	mu   sync.Mutex
	lock *os.File // tells GC that the program lives
}

// NewDir returns the directory of this program. It makes nothing.
func NewDir() *Dir {
	id := fmt.Sprintf("%s%d_%s", dirKind, time.Now().UnixMilli(), strings.ToLower(rand.Text()[:6]))
	return &Dir{path: filepath.Join(os.TempDir(), DirPrefix+id)}
}

// Path is the path of the directory, for the program's entry.
func (d *Dir) Path() string { return d.path }

// Make makes the directory, mode 0700, unless it is there, and returns its
// path. Call it once the entry is listed.
func (d *Dir) Make(ctx context.Context) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := os.Lstat(d.path); err == nil && d.lock != nil {
		return d.path, nil
	}
	if d.lock != nil { // somebody has deleted it
		d.lock.Close()
		d.lock = nil
	}
	err := os.Mkdir(d.path, 0o700)
	if err == nil {
		d.lock, err = LockDir(ctx, d.path)
	}
	if err != nil {
		return "", fmt.Errorf("cannot make a temporary directory: %w", err)
	}
	return d.path, nil
}

// Remove deletes the directory and everything in it.
func (d *Dir) Remove() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return nil
	}
	_, err := RemoveDir(d.path) // Windows cannot delete a directory that is open
	d.lock.Close()
	if err != nil {
		_, err = RemoveDir(d.path)
	}
	d.lock = nil
	return err
}

// abandon hands the directory of a dead program over to the sweeper, as an
// instance that has nothing else.
func (f *File) abandon(process proc.Identity, dir string) {
	id, ok := strings.CutPrefix(filepath.Base(dir), DirPrefix)
	if ok && strings.HasPrefix(id, dirKind) && isInstanceDir(filepath.Base(dir)) && f.Instance(id) == nil {
		f.Instances = append(f.Instances, Instance{ID: id, Supervisor: process, Dirs: []string{dir}})
	}
}
