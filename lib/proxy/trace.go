package proxy

import (
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"

	"btools/lib/record"
)

// Trace writes down every message of every WebSocket, one JSON object a line:
// time, connection, direction ("to_browser" or "to_client"), and message (or
// text, if it is no JSON; or bytes, its size, if it is binary or longer than
// 16 MiB).
type Trace struct {
	Out io.Writer
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

// connection returns what takes the bytes of a new connection, each way.
func (t *Trace) connection() (toBrowser, toClient *frames) {
	t.mu.Lock()
	t.last++
	n := t.last
	t.mu.Unlock()
	way := func(direction string) *frames {
		return &frames{message: func(text bool, payload []byte, size int64) {
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

// tap has a tunnel copy what passes to whoever wants to read it.
func (p *Proxy) tap(t *tunnel, u *upgraded) {
	var toBrowser, toClient []io.Writer
	if p.Trace != nil {
		b, c := p.Trace.connection()
		toBrowser, toClient = append(toBrowser, b), append(toClient, c)
	}
	if u.session != nil {
		toClient = append(toClient, u.session)
	}
	for _, way := range []struct {
		to   *io.Writer
		taps []io.Writer
	}{{&t.toBrowser, toBrowser}, {&t.toClient, toClient}} {
		if len(way.taps) > 0 {
			*way.to = io.MultiWriter(way.taps...)
		}
	}
}
