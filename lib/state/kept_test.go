package state

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"btools/lib/proc"
)

// What services of bmcp call have left is deleted after an hour, unless one runs.
func TestKeptCalls(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := Open(func(string) string { return filepath.Join(dir, "state.json") })
	old, young := filepath.Join(s.KeptCalls(), "old.json"), filepath.Join(s.KeptCalls(), "young.json")
	os.Mkdir(s.KeptCalls(), 0o700)
	for _, path := range []string{old, young} {
		os.WriteFile(path, nil, 0o600)
	}
	os.Chtimes(old, time.Time{}, time.Now().Add(-keptFor-time.Minute))
	service := CallService{Process: proc.Self(), Control: "x"}
	for _, step := range []struct {
		change func(*File) error
		left   int
	}{
		{func(f *File) error { f.Set(service); return nil }, 1},
		{func(f *File) error { f.Unset(service); return nil }, 1},
	} {
		if err := s.Update(t.Context(), step.change); err != nil {
			t.Fatal(err)
		}
		if all, _ := os.ReadDir(s.KeptCalls()); len(all) != step.left {
			t.Errorf("there are %v, want %d", all, step.left)
		}
	}
	os.Chtimes(young, time.Time{}, time.Now().Add(-keptFor-time.Minute))
	s.Update(t.Context(), func(*File) error { return nil })
	if _, err := os.Stat(s.KeptCalls()); err == nil {
		t.Error("the directory is left")
	}
}

// The directory of a service that was killed is not forgotten if another one has its socket before anybody looks.
func TestDirOfReplacedService(t *testing.T) {
	t.Parallel()
	dead := NewDir()
	f := &File{}
	f.Set(PoolService{Process: proc.Identity{PID: 1 << 30}, Control: "x", Dir: dead.Path()})
	f.Set(PoolService{Process: proc.Self(), Control: "x", Dir: NewDir().Path()})
	if len(f.Pools) != 1 || len(f.Instances) != 1 || f.Instances[0].Dirs[0] != dead.Path() {
		t.Errorf("there are %+v, and to be swept %+v", f.Pools, f.Instances)
	}
}
