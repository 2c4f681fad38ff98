package virtual

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// Saved is a snapshot in a file. Nil is none.
type Saved struct {
	Tabs int      // how many it has
	Lost []string // what of the storage is not in it, and why
	At   time.Time

	path string
}

// Save writes the snapshot to a new file, mode 0600, in a directory. Its name begins with a prefix.
func (s *Snapshot) Save(dir, prefix string) (*Saved, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, prefix) // mode 0600
	if err != nil {
		return nil, err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return nil, err
	}
	return &Saved{len(s.Tabs), s.Lost, time.Now(), f.Name()}, nil
}

// Load reads the snapshot.
func (s *Saved) Load() (*Snapshot, error) {
	b, err := os.ReadFile(s.path)
	snapshot := &Snapshot{}
	if err == nil {
		err = json.Unmarshal(b, snapshot)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the saved session: %w", err)
	}
	return snapshot, nil
}

// Move gives the file another path, in the place of one that is there.
func (s *Saved) Move(path string) error {
	err := os.Rename(s.path, path)
	if err == nil {
		s.path = path
	}
	return err
}

// Find returns the snapshot at a path to which another process has moved it. A damaged one is an error.
func Find(path string) (*Saved, *Snapshot, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	saved := &Saved{At: info.ModTime(), path: path}
	snapshot, err := saved.Load()
	if err != nil {
		return nil, nil, err
	}
	saved.Tabs, saved.Lost = len(snapshot.Tabs), snapshot.Lost
	return saved, snapshot, nil
}

// Remove deletes the file.
func (s *Saved) Remove() {
	if s != nil {
		os.Remove(s.path)
	}
}
