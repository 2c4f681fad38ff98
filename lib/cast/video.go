package cast

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"image/jpeg"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"btools/lib/exit"
	"btools/lib/held"
	"btools/lib/tail"
)

// codecs are the arguments with which ffmpeg encodes while the frames come.
var codecs = map[string][]string{
	".webm": {"-c:v", "vp8", "-b:v", "1M", "-crf", "10", "-deadline", "realtime", "-cpu-used", "8", "-threads", "1"},
	".mp4":  {"-c:v", "libx264", "-preset", "veryfast", "-movflags", "+faststart"},
}

// HasFFmpeg reports whether videos can be recorded.
func HasFFmpeg() bool {
	_, err := exec.LookPath("ffmpeg")
	return err == nil
}

// Video is a recording that ffmpeg encodes, with a frame for each moment: the latest one
// is repeated until there is another. Close it.
type Video struct {
	path, ffmpeg string
	fps          int

	mu      sync.Mutex
	process *held.Process // nil: there has been no frame yet
	said    tail.Tail
	began   time.Time
	latest  []byte
	written int
	err     error // of writing to ffmpeg
	exit    error // of ffmpeg, once it has exited
	exited  bool
	stop    chan struct{} // closed when there are no more frames
	ended   chan struct{} // closed when no frame is repeated any more
}

// createVideo creates a video, for its owner only.
func createVideo(path string, fps int) (*Video, error) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		return nil, &exit.Error{Code: exit.Unavailable, Err: errors.New("ffmpeg is not installed"),
			Hint: "install it, or record to a file that ends in .mjpeg"}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &Video{path: path, ffmpeg: ffmpeg, fps: fps, stop: make(chan struct{}), ended: make(chan struct{})},
		f.Close()
}

// start starts ffmpeg for a video of the size of its first frame. It ends with its input,
// whatever ends us.
func (v *Video) start(first []byte) error {
	size, err := jpeg.DecodeConfig(bytes.NewReader(first))
	if err != nil {
		return fmt.Errorf("the browser sent an invalid frame: %w", err)
	}
	wide, high := max(2, size.Width&^1), max(2, size.Height&^1) // codecs need even numbers
	fit := fmt.Sprintf("scale=%d:%d:force_original_aspect_ratio=decrease,pad=%[1]d:%[2]d:(ow-iw)/2:(oh-ih)/2", wide,
		high)
	args := []string{"-hide_banner", "-loglevel", "error", "-f", "image2pipe", "-c:v", "mjpeg", "-framerate",
		fmt.Sprint(v.fps), "-i", "pipe:0", "-an", "-vf", fit, "-pix_fmt", "yuv420p"}
	args = append(append(args, codecs[strings.ToLower(filepath.Ext(v.path))]...), "-y", "file:"+v.path)
	cmd := exec.Command(v.ffmpeg, args...)
	cmd.Stderr = &v.said
	if v.process, err = held.Start(cmd, true); err != nil {
		return fmt.Errorf("cannot run ffmpeg: %w", err)
	}
	v.began = time.Now()
	go v.repeat()
	return nil
}

// repeat writes the latest frame at each moment, so that the end comes quickly.
func (v *Video) repeat() {
	defer close(v.ended)
	ticks := time.NewTicker(time.Second / time.Duration(v.fps))
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			v.mu.Lock()
			v.writeDue(0)
			v.mu.Unlock()
		case <-v.stop:
			return
		}
	}
}

// writeDue writes the latest frame for the time that has passed, and so many times more.
func (v *Video) writeDue(more int) {
	due := int(time.Since(v.began)*time.Duration(v.fps)/time.Second) + more
	for ; v.written < due && v.err == nil; v.written++ {
		_, v.err = v.process.Write(v.latest)
	}
}

// Write shows a frame from now on.
func (v *Video) Write(x Frame) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.process == nil {
		if err := v.start(x.JPEG); err != nil {
			return err
		}
	} else {
		v.writeDue(0)
	}
	v.latest = x.JPEG
	if v.err != nil {
		v.wait(finish) // it says why
		return v.why(v.err)
	}
	return nil
}

// wait waits for the end of ffmpeg and reports whether it came.
func (v *Video) wait(most time.Duration) bool {
	if !v.exited {
		select {
		case v.exit = <-v.process.Ended:
			v.exited = true
		case <-time.After(most):
		}
	}
	return v.exited
}

// finish is how long ffmpeg may take to finish the file.
const finish = 20 * time.Second

// Close finishes the file, with its last frame shown for a moment.
func (v *Video) Close() error {
	if v.process == nil {
		return os.Remove(v.path) // no player would take it
	}
	close(v.stop)
	<-v.ended
	v.mu.Lock()
	defer v.mu.Unlock()
	v.writeDue(1)
	v.process.Release()
	if !v.wait(finish) {
		v.process.Kill()
		<-v.process.Ended
		return v.why(fmt.Errorf("it did not end within %v", finish))
	}
	if err := cmp.Or(v.exit, v.err); err != nil {
		return v.why(err)
	}
	return nil
}

// why is an error of ffmpeg, in its own words if it said why.
func (v *Video) why(err error) error {
	if lines := v.said.Lines(); len(lines) > 0 {
		return fmt.Errorf("ffmpeg: %s", lines[len(lines)-1])
	}
	return fmt.Errorf("ffmpeg: %w", err)
}
