//go:build linux

package recorder

import (
	"errors"
	"os"
	"strings"
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

// A line of the console names its page, also if it comes before the page's address.
func TestConsoleNamesThePage(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/console.txt"
	console, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	r := &Recorder{console: console}
	r.print(time.Now(), &page{}, "log", "hello")
	if b, err := os.ReadFile(path); err != nil || !strings.HasSuffix(string(b), " page 1 log: hello\n") {
		t.Errorf("%v, %q", err, b)
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
