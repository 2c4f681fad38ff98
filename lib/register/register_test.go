package register

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"btools/lib/control"
	"btools/lib/proc"
	"btools/lib/state"
)

func service(t *testing.T, path string) *Service {
	store := state.Open(func(name string) string {
		return map[string]string{"BTOOLS_STATE": filepath.Dir(path) + "/state.json"}[name]
	})
	entry := state.PoolService{Process: proc.Self(), Control: path, Names: []string{"A"}}
	return &Service{
		Store: store, Path: path, Shared: true, Log: slog.New(slog.DiscardHandler),
		Entry: func() state.Service { return entry },
	}
}

func answer(context.Context, string, json.RawMessage) (any, error) { return "here", nil }

// There is a way back from the deletion of all that others find a program by.
func TestRestore(t *testing.T) {
	dir, err := os.MkdirTemp("", "b") // a short one: it has a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := dir + "/d/s.sock"
	os.Mkdir(dir+"/d", 0o700)
	s := service(t, path)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Serve(answer)
	found := func() bool {
		f, err := s.Store.Read()
		var got string
		return err == nil && f.Lists(s.Entry()) && control.Path(path).Call(t.Context(), "x", nil, &got) == nil &&
			got == "here"
	}
	if !found() {
		t.Error("it is not there at once")
	}
	for _, lost := range []string{path, dir + "/d/state.json", dir + "/d"} {
		os.RemoveAll(lost)
		s.Restore()
		for end := time.Now().Add(Look * 9 / 10); !found(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(lost, "is not made again")
			}
		}
	}
	// A second one finds the first.
	other := service(t, path)
	if err := other.Open(t.Context()); err == nil {
		t.Error("two have one socket")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if f, err := s.Store.Read(); err != nil || f.Lists(s.Entry()) {
		t.Error("it is still listed", err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("its socket is left")
	}
}
