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
	"btools/lib/owned"
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
	finish       time.Duration // how long the end of the file may take

	process *owned.Process // nil: there has been no frame yet
	said    tail.Tail
	began   time.Time
	stop    chan struct{} // closed when there are no more frames
	ended   chan struct{} // closed when no frame is written any more
	exit    error         // of ffmpeg, once it has exited
	exited  bool

	mu      sync.Mutex
	latest  []byte
	written int
	err     error // of writing to ffmpeg
}

// createVideo creates a video, for its owner only.
func createVideo(path string, fps int) (*Video, error) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		return nil, &exit.Error{Code: exit.Unavailable, Err: errors.New("ffmpeg is not installed"),
			Hint: "install it, or record to a file that ends in .html"}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &Video{path: path, ffmpeg: ffmpeg, fps: fps, finish: 20 * time.Second, stop: make(chan struct{}),
		ended: make(chan struct{})}, f.Close()
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
	if v.process, err = owned.Start(cmd, true); err != nil {
		return fmt.Errorf("cannot run ffmpeg: %w", err)
	}
	v.began, v.latest = time.Now(), first
	go v.repeat()
	return nil
}

// repeat writes the latest frame at each moment, so that the end comes quickly, and at
// the end once more. Nobody waits for it but Close: ffmpeg may take nothing for long.
func (v *Video) repeat() {
	defer close(v.ended)
	ticks := time.NewTicker(time.Second / time.Duration(v.fps))
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			for v.isDue() && v.write() {
			}
		case <-v.stop:
			v.write()
			return
		}
	}
}

// isDue reports whether a frame is missing for the time that has passed. If ffmpeg is
// slow, the end does not wait for those.
func (v *Video) isDue() bool {
	select {
	case <-v.stop:
		return false
	default:
		return v.written < int(time.Since(v.began)*time.Duration(v.fps)/time.Second)
	}
}

// write writes the latest frame and reports whether ffmpeg has taken it.
func (v *Video) write() bool {
	v.mu.Lock()
	frame, err := v.latest, v.err
	v.mu.Unlock()
	if err == nil {
		_, err = v.process.Write(frame)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err = err; err == nil {
		v.written++
	}
	return err == nil
}

// Write shows a frame from now on.
func (v *Video) Write(x Frame) error {
	if v.process == nil {
		return v.start(x.JPEG)
	}
	v.mu.Lock()
	v.latest = x.JPEG
	err := v.err
	v.mu.Unlock()
	if err == nil {
		return nil
	}
	v.wait(time.After(v.finish)) // it says why
	return v.why(cmp.Or(v.exit, err))
}

// wait waits for the end of ffmpeg and reports whether it came.
func (v *Video) wait(over <-chan time.Time) bool {
	if !v.exited {
		select {
		case v.exit = <-v.process.Ended:
			v.exited = true
		case <-over:
		}
	}
	return v.exited
}

// Close finishes the file, with its last frame shown for a moment.
func (v *Video) Close() error {
	if v.process == nil {
		return os.Remove(v.path) // no player would take it
	}
	over := time.After(v.finish)
	close(v.stop)
	select {
	case <-v.ended:
		v.process.Release()
		if v.wait(over) {
			if err := cmp.Or(v.exit, v.err); err != nil {
				return v.why(err)
			}
			return nil
		}
	case <-over: // it takes no frames
	}
	v.process.Kill()
	v.process.Release()
	if !v.exited {
		<-v.process.Ended
	}
	<-v.ended
	return v.why(fmt.Errorf("it did not end within %v", v.finish))
}

// why is an error of ffmpeg, in its own words if it said why.
func (v *Video) why(err error) error {
	if lines := v.said.Lines(); len(lines) > 0 {
		return fmt.Errorf("ffmpeg: %s", lines[len(lines)-1])
	}
	return fmt.Errorf("ffmpeg: %w", err)
}
