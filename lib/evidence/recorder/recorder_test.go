//go:build linux

package recorder

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"btools/lib/cast"
)

// The console notes that a full disk has not taken all of it.
func TestConsoleOnAFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	r := &Recorder{console: full}
	r.print(time.Now(), nil, "log", "hello")
	if !errors.Is(r.torn, syscall.ENOSPC) {
		t.Errorf("%v, want that the disk is full", r.torn)
	}
}

// failing is a film that cannot be written.
type failing struct{}

func (failing) Write(cast.Frame) error { return errors.New("no encoder") }
func (failing) Close() error           { return nil }

// The last image is that of the end, whatever has become of the film.
func TestLastImageWithoutAFilm(t *testing.T) {
	t.Parallel()
	film := &latest{Output: failing{}}
	for _, image := range []string{"first", "last"} {
		if err := film.Write(cast.Frame{JPEG: []byte(image)}); err != nil {
			t.Errorf("the recording would end: %v", err)
		}
	}
	if string(film.image) != "last" || film.err == nil {
		t.Errorf("the image is the %s, and the film has the error %v", film.image, film.err)
	}
}
