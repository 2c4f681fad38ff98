// Package cast records a page by the screencast of CDP, on a connection of its
// own: the page and its other clients do not notice. Chrome encodes frames only
// while that connection is open, and not before the last ones were taken.
package cast

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

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

// Reasons for the end of a recording by itself.
var (
	ErrClosed = errors.New("the page was closed")
	ErrLost   = errors.New("its connection has ended")
)

// firstFrame is how much longer a recording of a given length waits for its first frame.
const firstFrame = 10 * time.Second

// Record writes the frames of the page at a WebSocket, at most fps a second,
// until the context or the page ends, or for so long after the first one; 0: as long as
// the page is there. A page that does not change has few. It
// returns their number, and nil if the context or that time has ended, or an error that
// wraps ErrClosed or ErrLost, or another if the recording has failed.
func Record(ctx context.Context, url string, fps int, most time.Duration, to Sink) (frames int, err error) {
	conn, err := websocket.Dial(ctx, url)
	if err != nil {
		return 0, err
	}
	r := &recording{conn: conn, to: to, every: time.Second / time.Duration(fps), most: most,
		frames: make(chan frame), over: make(chan struct{})}
	read := make(chan error, 1)
	go func() { read <- r.read() }()
	err = r.start()
	if err == nil {
		err = r.write(ctx, read)
	}
	close(r.over)
	conn.Close(websocket.Normal, "")
	return r.written, err
}

// recording is one that runs.
type recording struct {
	conn   *websocket.Conn
	to     Sink
	every  time.Duration // between frames, at least
	most   time.Duration // after the first frame; 0: there is no limit
	frames chan frame
	over   chan struct{}

	pending *Frame // the latest, which it is too early to write
	unacked []int  // frames that Chrome has not been told of
	written int
	next    time.Time // when the next frame may be written
}

// frame is one from Chrome, with the number by which it is acknowledged.
type frame struct {
	Frame
	number int
}

// quality is the quality of the images, of 100: text is legible.
const quality = 80

// start starts the screencast. Without sendLastFrame, the last of many quick
// changes would be missing, until the page changes again. Page.enable is not sent:
// chrome-headless-shell shows dialogs, which wait for an answer, once a client has
// sent it.
func (r *recording) start() error {
	message := fmt.Sprintf(`{"id":1,"method":"Page.startScreencast","params":`+
		`{"format":"jpeg","quality":%d,"sendLastFrame":true}}`, quality)
	if err := r.conn.Write([]byte(message)); err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil
}

// read hands on the frames until the connection ends, and returns why.
func (r *recording) read() error {
	for {
		m, err := r.conn.Next()
		if err != nil {
			var closed *websocket.CloseError
			if errors.As(err, &closed) && closed.Reason != "" {
				return fmt.Errorf("%w: %s", ErrLost, closed.Reason)
			}
			return ErrLost
		}
		b, err := m.Bytes()
		if err != nil {
			return ErrLost
		}
		switch jsonrpc.GetString(b, "method") {
		case "Page.screencastFrame":
			f, err := parse(jsonrpc.Get(b, "params"))
			if err != nil {
				return err
			}
			select {
			case r.frames <- f:
			case <-r.over:
				return nil
			}
		case "Inspector.detached":
			return fmt.Errorf("%w (%s)", ErrClosed, jsonrpc.GetString(b, "params", "reason"))
		case "":
			message := jsonrpc.GetString(b, "error", "message")
			if message != "" && string(jsonrpc.Get(b, "id")) == "1" {
				return fmt.Errorf("the browser cannot record the page: %s", message)
			}
		}
	}
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

// write writes frames until the context or the connection ends. Chrome sends
// two and then waits until one is acknowledged, which happens at the pace of
// the recording. Of frames that come faster the last one counts: it shows the
// page as it stays.
func (r *recording) write(ctx context.Context, read <-chan error) error {
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
			r.pending = &f.Frame
			r.unacked = append(r.unacked, f.number)
			timer.Reset(max(0, time.Until(r.next)))
		case <-timer.C:
			if err := r.flush(); err != nil {
				return err
			}
			if r.acknowledge() != nil {
				return <-read // which knows why
			}
			if len(r.unacked) > 0 {
				timer.Reset(time.Until(r.next))
			}
		case err := <-read:
			return errors.Join(r.flush(), err)
		case <-end:
			return r.flush()
		case <-ctx.Done():
			return r.flush()
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
	r.written++
	return nil
}

// acknowledge lets Chrome send one more frame.
func (r *recording) acknowledge() error {
	if len(r.unacked) == 0 {
		return nil
	}
	message := fmt.Sprintf(`{"id":2,"method":"Page.screencastFrameAck","params":{"sessionId":%d}}`, r.unacked[0])
	r.unacked = r.unacked[1:]
	if r.pending == nil && time.Until(r.next) <= 0 {
		r.next = time.Now().Add(r.every)
	}
	return r.conn.Write([]byte(message))
}
