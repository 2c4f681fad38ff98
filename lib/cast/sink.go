package cast

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Output is a recording that is written. Close it.
type Output interface {
	Sink
	Close() error
}

// Create creates a recording of the kind that the name says: a page that plays it in any
// browser (.html), a file of Motion JPEG (.mjpeg, .mjpg), a video that ffmpeg encodes (.webm,
// .mp4), of so many frames a second, or else a directory.
func Create(path string, fps int) (Output, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".html":
		return createFile(path, htmlEncoder())
	case ".mjpeg", ".mjpg":
		return createFile(path, mjpegOf)
	case ".webm", ".mp4":
		return createVideo(path, fps)
	}
	return createDirectory(path)
}

// Boundary separates the frames of a file: it is multipart/x-mixed-replace,
// with this boundary.
const Boundary = "frame"

// mjpegOf returns a frame as a part of Motion JPEG.
func mjpegOf(x Frame) []byte {
	b := fmt.Appendf(nil, "--%s\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\nX-Timestamp: %.3f\r\n\r\n",
		Boundary, len(x.JPEG), float64(x.Time.UnixMilli())/1000)
	return append(append(b, x.JPEG...), "\r\n"...)
}

// player is the page, without its frames.
//
//go:embed film.html
var player string

// htmlEncoder returns a function that returns frames as the scripts of a page, the first one
// after the page itself. The page also plays if its last script has been cut off.
func htmlEncoder() func(Frame) []byte {
	head, began := []byte(player), time.Time{}
	return func(x Frame) []byte {
		if began.IsZero() {
			began = x.Time
		}
		b := fmt.Appendf(head, "<script>frame(%d, '", x.Time.Sub(began).Milliseconds())
		head = nil
		return append(base64.StdEncoding.AppendEncode(b, x.JPEG), "')</script>\n"...)
	}
}

// File is a recording in one file. Close it.
type File struct {
	out    *os.File
	encode func(Frame) []byte
	size   int64
}

// createFile creates a file, for its owner only: it shows what the page shows.
func createFile(path string, encode func(Frame) []byte) (*File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &File{out: f, encode: encode}, nil
}

// Write appends a frame. If it fails, the file ends with the one before.
func (f *File) Write(x Frame) error {
	n, err := f.out.Write(f.encode(x))
	if err != nil && n > 0 {
		f.out.Truncate(f.size)
	}
	if err == nil {
		f.size += int64(n)
	}
	return err
}

// Close closes the file.
func (f *File) Close() error { return f.out.Close() }

// ListName is the name of the list in a Directory: the frames and how long each
// was shown, as ffmpeg's concat demuxer reads it.
const ListName = "frames.ffconcat"

// Directory is a recording in a directory, with a file for each frame. Close
// it.
type Directory struct {
	path string
	list *os.File
	n    int
	last time.Time
}

// createDirectory creates a directory, for its owner only, or takes an existing
// one without a recording.
func createDirectory(path string) (*Directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	list, err := os.OpenFile(filepath.Join(path, ListName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if os.IsExist(err) {
		return nil, fmt.Errorf("%s already has a recording", path)
	}
	if err == nil {
		_, err = list.WriteString("ffconcat version 1.0\n")
	}
	if err != nil {
		return nil, err
	}
	return &Directory{path: path, list: list}, nil
}

// Write writes a frame to a file of its own, as a whole or not at all.
func (d *Directory) Write(x Frame) error {
	d.n++
	name := fmt.Sprintf("%06d.jpg", d.n)
	path := filepath.Join(d.path, name)
	err := os.WriteFile(path, x.JPEG, 0o600)
	if err == nil {
		err = os.Chtimes(path, x.Time, x.Time)
	}
	if err != nil {
		os.Remove(path)
		return err
	}
	line := fmt.Sprintf("# %s\nfile %s\n", x.Time.UTC().Format("2006-01-02T15:04:05.000Z"), name)
	if d.n > 1 {
		line = d.shown(x.Time) + line
	}
	d.last = x.Time
	_, err = d.list.WriteString(line)
	return err
}

// shown returns the line that says how long the last frame was shown.
func (d *Directory) shown(until time.Time) string {
	return fmt.Sprintf("duration %.3f\n", max(0, until.Sub(d.last).Seconds()))
}

// Close ends the list. The last frame was shown until now.
func (d *Directory) Close() error {
	var err error
	if d.n > 0 {
		_, err = d.list.WriteString(d.shown(time.Now()))
	}
	if closeErr := d.list.Close(); err == nil {
		err = closeErr
	}
	return err
}
