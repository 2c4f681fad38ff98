package state

import (
	"os"
	"testing"
	"time"

	"btools/lib/record"
)

// What one change costs with a thousand reserved ports.
func BenchmarkUpdate(b *testing.B) {
	b.Setenv("BTOOLS_STATE", b.TempDir()+"/state/state.json")
	s := Open(os.Getenv)
	until := record.Time{Time: time.Now().Add(time.Hour)}
	if err := s.Update(b.Context(), func(f *File) error {
		for i := range 1000 {
			f.Ports = append(f.Ports, Port{Host: "127.0.0.1", Port: 20000 + i, Until: until})
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := s.Update(b.Context(), func(f *File) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
