package proxy

import (
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"

	"btools/lib/record"
)

// Trace writes every message of every WebSocket, one JSON object a line: time,
// connection, direction ("to_browser" or "to_client"), and message (or text, if
// it is not JSON; or bytes, its size, if it is binary or longer than 16 MiB).
type Trace struct {
	Out io.WriteCloser
	Log *slog.Logger

	mu     sync.Mutex
	last   int // connection
	failed bool
}

type traceLine struct {
	Time       record.Time     `json:"time"`
	Connection int             `json:"connection"`
	Direction  string          `json:"direction"`
	Message    json.RawMessage `json:"message,omitempty"`
	Text       string          `json:"text,omitempty"`
	Bytes      int64           `json:"bytes,omitempty"`
}

// connection returns the writers that get the bytes of a new connection, one
// for each direction.
func (t *Trace) connection() (toBrowser, toClient io.Writer) {
	t.mu.Lock()
	t.last++
	n := t.last
	t.mu.Unlock()
	way := func(direction string) io.Writer {
		return &frameReader{message: func(text bool, payload []byte, size int64) {
			l := traceLine{Time: record.Now(), Connection: n, Direction: direction}
			switch {
			case !text || size > int64(len(payload)):
				l.Bytes = size
			case json.Valid(payload):
				l.Message = payload
			default:
				l.Text = strings.ToValidUTF8(string(payload), "�")
			}
			t.write(l)
		}}
	}
	return way("to_browser"), way("to_client")
}

func (t *Trace) write(l traceLine) {
	b, err := json.Marshal(l)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		_, err = t.Out.Write(append(b, '\n'))
	}
	if err != nil && !t.failed {
		t.failed = true // say so once: the traffic goes on
		t.Log.Warn("cannot write the trace: " + err.Error())
	}
}
