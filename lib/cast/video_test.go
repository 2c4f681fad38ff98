//go:build unix

package cast

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"btools/lib/exit"
)

// picture is a frame of one color.
func picture(t *testing.T, c color.Color) Frame {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, 33, 21))
	draw.Draw(m, m.Bounds(), image.NewUniform(c), image.Point{}, draw.Src)
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return Frame{b.Bytes(), time.Now()}
}

// fake puts a program in the place of ffmpeg, whose last argument is file:PATH.
func fake(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	script = "#!/bin/sh\nfor out; do :; done\nout=${out#file:}\n" + script
	if err := os.WriteFile(dir+"/ffmpeg", []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// record writes a red frame, a green one, and closes the video.
func record(t *testing.T, path string) error {
	t.Helper()
	v, err := Create(path, 20)
	if err != nil {
		return err
	}
	red, green := picture(t, color.RGBA{255, 0, 0, 255}), picture(t, color.RGBA{0, 255, 0, 255})
	err = v.Write(red)
	for end := time.Now().Add(time.Minute); err == nil && v.(*Video).repeats(3); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the frame is not repeated")
		}
	}
	return errors.Join(err, v.Write(green), v.Close())
}

// repeats reports whether the first frame is still to be written so often.
func (v *Video) repeats(n int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.written < n && v.err == nil
}

// The encoder gets the frame of each moment, and the last one in any case.
func TestVideo(t *testing.T) {
	fake(t, `exec cat >"$out"`)
	path := t.TempDir() + "/-a:b.webm"
	if err := record(t, path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	red, green := picture(t, color.RGBA{255, 0, 0, 255}).JPEG, picture(t, color.RGBA{0, 255, 0, 255}).JPEG
	if n := bytes.Count(b, red); n < 3 || !bytes.HasSuffix(b, green) {
		t.Errorf("the encoder has got %d red frames, and ends with %x", n, b[len(b)-9:])
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("the video has the mode %v", info.Mode())
	}
}

// The encoder says itself why it has failed.
func TestVideoFails(t *testing.T) {
	fake(t, `echo "$out: No space left on device" >&2; exit 1`)
	if err := record(t, t.TempDir()+"/a.mp4"); err == nil || !strings.Contains(err.Error(),
		"a.mp4: No space left on device") {
		t.Errorf("%v, want the reason", err)
	}
	fake(t, `exec cat >/dev/null`)
	v, err := Create(t.TempDir()+"/b.mp4", 5)
	if err == nil {
		err = v.Close()
	}
	if _, left := os.Stat(v.(*Video).path); err != nil || left == nil {
		t.Errorf("without a frame: %v, and a file is left", err)
	}
	t.Setenv("PATH", t.TempDir())
	_, err = Create(t.TempDir()+"/c.webm", 5)
	if e := (*exit.Error)(nil); !errors.As(err, &e) || e.Code != exit.Unavailable {
		t.Errorf("without ffmpeg: %v", err)
	}
}

// Neither a frame nor the end waits for an encoder that hangs.
func TestVideoHangs(t *testing.T) {
	fake(t, `exec sleep 1000`)
	out, err := Create(t.TempDir()+"/a.webm", 60)
	if err != nil {
		t.Fatal(err)
	}
	v := out.(*Video)
	v.finish = 10 * time.Millisecond
	f := picture(t, color.Black)
	f.JPEG = append(f.JPEG, make([]byte, 1<<20)...) // more than a pipe holds
	err = errors.Join(v.Write(f), v.Write(f), v.Write(f), v.Close())
	if err == nil || !strings.Contains(err.Error(), "ffmpeg: it did not end within 10ms") {
		t.Errorf("%v, want that it did not end", err)
	}
}

// A real ffmpeg encodes each kind of video.
func TestFFmpeg(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip(err)
	}
	for name, magic := range map[string]string{"a.webm": "\x1a\x45\xdf\xa3", "a.mp4": "ftyp"} {
		path := t.TempDir() + "/" + name
		if err := record(t, path); err != nil {
			t.Error(err)
		}
		b, _ := os.ReadFile(path)
		if !bytes.Contains(b[:min(12, len(b))], []byte(magic)) {
			t.Errorf("%s begins with %q", name, b[:min(12, len(b))])
		}
	}
}
