// Package cast records a page by the screencast of CDP, on a connection of its
// own: the page and its other clients do not notice. Chrome encodes frames only
// while that connection is open, and not before the last ones were taken.
package cast

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"btools/lib/cdp"
	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// Frame is an image of a page.
type Frame struct {
	JPEG []byte
	Time time.Time // when the page looked so
}

// Sink takes the frames of a recording, in their order.
type Sink interface {
	Write(Frame) error
}

// private is a Sink that is told that a person is private: there are no frames until that ends.
type private interface{ Private() }

// Reasons for the end of a recording by itself.
var (
	ErrClosed = errors.New("the page was closed")
	ErrLost   = errors.New("its connection has ended")
)

// firstFrame is how much longer a recording of a given length waits for its first frame.
const firstFrame = 10 * time.Second

// Record writes the frames of the page at a WebSocket, or of a target of the browser
// there, at most fps a second,
// until the context or the page ends, or for so long after the first one; 0: as long as
// the page is there. A page that does not change has few. It
// returns their number, and nil if the context or that time has ended, or an error that
// wraps ErrClosed or ErrLost, or another if the recording has failed. A recording that
// ends before its page ends with the page as it is then, for which it has a few seconds
// more, also if it is still connecting.
func Record(ctx context.Context, url, target string, fps int, most time.Duration, to Sink) (frames int, err error) {
	r := &recording{to: to, every: time.Second / time.Duration(fps), most: most, frames: make(chan frame),
		failed: make(chan error, 1), over: make(chan struct{})}
	connect, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(lastFrame, func() { cancel(context.Cause(ctx)) })
	})()
	if r.conn, err = cdp.Dial(connect, url, r.event); err != nil {
		return 0, err
	}
	if target != "" {
		err = r.attach(connect, target)
	}
	if err == nil {
		r.start()
		err = r.write(ctx)
	}
	close(r.over)
	r.conn.Close()
	return r.written, err
}

// recording is one that runs.
type recording struct {
	conn    *cdp.Conn
	session string // "": the page has the connection
	to      Sink
	every   time.Duration // between frames, at least
	most    time.Duration // after the first frame; 0: there is no limit
	frames  chan frame
	failed  chan error // has room for the first one
	over    chan struct{}

	latest  []byte    // the image that was written last
	newest  time.Time // of the frames
	pending *Frame    // the latest, which it is too early to write
	unacked []int     // frames that Chrome has not been told of
	written int
	next    time.Time // when the next frame may be written
}

// frame is one from Chrome, with the number by which it is acknowledged.
type frame struct {
	Frame
	number int
}

// attach makes the recording one of a target.
func (r *recording) attach(ctx context.Context, target string) error {
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	params := map[string]any{"targetId": target, "flatten": true}
	err := r.conn.Call(ctx, "", "Target.attachToTarget", params, &attached)
	if e := (*jsonrpc.Error)(nil); errors.As(err, &e) {
		return fmt.Errorf("%w: %s", ErrClosed, e.Message)
	}
	r.session = attached.SessionID
	return err
}

// quality is the quality of the images, of 100: text is legible.
const quality = 80

// start starts the screencast. Without sendLastFrame, the last of many quick
// changes would be missing, until the page changes again. Page.enable is not sent:
// chrome-headless-shell shows dialogs, which wait for an answer, once a client has
// sent it.
func (r *recording) start() {
	params := map[string]any{"format": "jpeg", "quality": quality, "sendLastFrame": true}
	r.conn.Begin(r.session, "Page.startScreencast", params, func(_ json.RawMessage, err error) {
		if e := (*jsonrpc.Error)(nil); errors.As(err, &e) {
			r.fail(fmt.Errorf("the browser cannot record the page: %s", e.Message))
		}
	})
}

// fail ends the recording, unless something has before.
func (r *recording) fail(err error) {
	select {
	case r.failed <- err:
	default:
	}
}

// event hands on the frames.
func (r *recording) event(e cdp.Event) {
	switch e.Method {
	case "Page.screencastFrame":
		f, err := parse(e.Params)
		if err != nil {
			r.fail(err)
			return
		}
		select {
		case r.frames <- f:
		case <-r.over:
		}
	case "Btools.private":
		if to, ok := r.to.(private); ok {
			to.Private()
		}
	case "Target.detachedFromTarget":
		if r.session != "" && jsonrpc.GetString(e.Params, "sessionId") == r.session {
			r.fail(ErrClosed)
		}
	case "Inspector.detached":
		r.fail(fmt.Errorf("%w (%s)", ErrClosed, jsonrpc.GetString(e.Params, "reason")))
	}
}

// lost is why the connection has ended: what was seen before, or what it was closed with.
func (r *recording) lost() error {
	select {
	case err := <-r.failed:
		return err
	default:
	}
	if closed := (*websocket.CloseError)(nil); errors.As(r.conn.Err(), &closed) && closed.Reason != "" {
		return fmt.Errorf("%w: %s", ErrLost, closed.Reason)
	}
	return ErrLost
}

// parse reads an event with a frame.
func parse(params json.RawMessage) (frame, error) {
	var p struct {
		Data      string `json:"data"`
		SessionID int    `json:"sessionId"`
		Metadata  struct {
			Timestamp float64 `json:"timestamp"` // in seconds since 1970
		} `json:"metadata"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return frame{}, fmt.Errorf("the browser sent an invalid frame: %w", err)
	}
	image, err := base64.StdEncoding.DecodeString(p.Data)
	if err != nil {
		return frame{}, fmt.Errorf("the browser sent an invalid frame: %w", err)
	}
	at := time.Now()
	if p.Metadata.Timestamp > 0 {
		at = time.UnixMicro(int64(p.Metadata.Timestamp * 1e6))
	}
	return frame{Frame{image, at}, p.SessionID}, nil
}

// outOfOrder is how much older than one before it a frame may be, as Chrome encodes
// several at once: it is left out then. From there on the clock was set.
const outOfOrder = 10 * time.Second

// write writes frames until the context or the connection ends. Chrome sends
// two and then waits until one is acknowledged, which happens at the pace of
// the recording. Of frames that come faster the last one counts: it shows the
// page as it stays.
func (r *recording) write(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var end <-chan time.Time
	if r.most > 0 {
		end = time.After(r.most + firstFrame)
	}
	for isFirst := true; ; {
		select {
		case f := <-r.frames:
			if isFirst && r.most > 0 {
				end = time.After(r.most)
			}
			isFirst = false
			if older := r.newest.Sub(f.Time); older <= 0 || older > outOfOrder {
				r.pending, r.newest = &f.Frame, f.Time
			}
			r.unacked = append(r.unacked, f.number)
			timer.Reset(max(0, time.Until(r.next)))
		case <-timer.C:
			if err := r.flush(); err != nil {
				return err
			}
			r.acknowledge()
			if len(r.unacked) > 0 {
				timer.Reset(time.Until(r.next))
			}
		case err := <-r.failed:
			return errors.Join(r.flush(), err)
		case <-r.conn.Done():
			return errors.Join(r.flush(), r.lost())
		case <-end:
			return r.last()
		case <-ctx.Done():
			return r.last()
		}
	}
}

// flush writes the pending frame.
func (r *recording) flush() error {
	if r.pending == nil {
		return nil
	}
	f := *r.pending
	r.pending = nil
	r.next = time.Now().Add(r.every)
	if err := r.to.Write(f); err != nil {
		return fmt.Errorf("cannot write the recording: %w", err)
	}
	r.latest = f.JPEG
	r.written++
	return nil
}

// lastFrame is how long the browser may take for the last frame; if it is the only one,
// firstFrame.
const lastFrame = 3 * time.Second

// last writes the page as it is now: Chrome may not have sent a frame of its last change
// yet. If there is no answer, it writes what is pending.
func (r *recording) last() error {
	answer := make(chan []byte, 1)
	params := map[string]any{"format": "jpeg", "quality": quality}
	r.conn.Begin(r.session, "Page.captureScreenshot", params, func(result json.RawMessage, _ error) {
		var image struct {
			Data []byte `json:"data"`
		}
		json.Unmarshal(result, &image)
		answer <- image.Data
	})
	most := lastFrame
	if r.written == 0 && r.pending == nil {
		most = firstFrame
	}
	for over := time.After(most); ; {
		select {
		case f := <-r.frames: // of before
			r.pending = &f.Frame
			continue
		case image := <-answer:
			if len(image) > 0 && !bytes.Equal(image, r.latest) {
				r.pending = &Frame{image, time.Now()}
			}
		case <-over:
		case <-r.conn.Done():
		}
		return r.flush()
	}
}

// acknowledge lets Chrome send one more frame.
func (r *recording) acknowledge() {
	if len(r.unacked) == 0 {
		return
	}
	r.conn.Begin(r.session, "Page.screencastFrameAck", map[string]int{"sessionId": r.unacked[0]}, nil)
	r.unacked = r.unacked[1:]
	if r.pending == nil && time.Until(r.next) <= 0 {
		r.next = time.Now().Add(r.every)
	}
}
