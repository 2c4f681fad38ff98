package virtual

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"btools/lib/logins"
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

// Read returns the bytes of the file.
func (s *Saved) Read() ([]byte, error) { return os.ReadFile(s.path) }

// maxTabs is the number of tabs of a snapshot of another program.
const maxTabs = 1000

// ReadSnapshot returns the snapshot that another program has saved; the error says what is wrong with it.
func ReadSnapshot(b []byte) (*Snapshot, error) {
	var of struct {
		Snapshot
		State json.RawMessage `json:"state"`
	}
	if err := json.Unmarshal(b, &of); err != nil {
		return nil, errors.New("it does not have the form of a saved session") // errors of json may have values
	}
	if len(of.Tabs) > maxTabs {
		return nil, fmt.Errorf("it has %d tabs, more than %d", len(of.Tabs), maxTabs)
	}
	var err error
	if of.Snapshot.State, _, err = logins.Parse(of.State); err != nil {
		return nil, err
	}
	of.Settings = nil
	return &of.Snapshot, nil
}

// Load reads the snapshot.
func (s *Saved) Load() (*Snapshot, error) {
	b, err := s.Read()
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
