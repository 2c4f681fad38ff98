package state

import (
	"os"
	"slices"
	"testing"

	"btools/lib/proc"
)

// The tabs of a program that was killed are found by the next one with the same browser, once; those of one that runs
// are not.
func TestOpened(t *testing.T) {
	t.Setenv("BTOOLS_STATE", t.TempDir()+"/state/state.json")
	s := Open(os.Getenv)
	gone := proc.Self()
	gone.Start++
	update := func(f func(*File)) {
		t.Helper()
		if err := s.Update(t.Context(), func(file *File) error { f(file); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	update(func(f *File) {
		f.SetOpened(Opened{gone, "one", []string{"a"}})
		f.SetOpened(Opened{gone, "one", []string{"b", "c"}})
		f.SetOpened(Opened{gone, "two", []string{"d"}})
		f.SetOpened(Opened{proc.Self(), "one", []string{"e"}})
		f.SetOpened(Opened{proc.Self(), "two", nil})
	})
	update(func(f *File) {
		if left := f.TakeOpened("one"); !slices.Equal(left, []string{"b", "c"}) || f.TakeOpened("one") != nil {
			t.Errorf("left are %q, and again %q", left, f.TakeOpened("one"))
		}
	})
	update(func(f *File) {
		if len(f.Opened) != 2 {
			t.Errorf("there are %v", f.Opened)
		}
	})
}
