package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"btools/lib/control"
	"btools/lib/fleet"
	"btools/lib/record"
	"btools/lib/secrets"
	"btools/lib/settings"
	"btools/lib/websocket"
)

// Trace writes every message of every WebSocket, one JSON object a line: time,
// session (with --isolate), connection, direction ("to_browser" or
// "to_client"), and message (or text, if it is not JSON; or bytes, its size, if
// it is longer than 16 MiB). The first line of a connection has its
// path, as opened, instead.
type Trace struct {
	Out io.WriteCloser
	Log *slog.Logger

	session string
	last    *atomic.Int64 // connection; nil: one of its own

	mu     sync.Mutex
	own    atomic.Int64
	failed bool // it was said
	torn   bool // the last line may lack its end
	closed bool
}

// recorder gets each message of a WebSocket, as websocket.Conn.Trace.
type recorder = func(toClient bool, message []byte, size int64)

// Connection begins a WebSocket with this path.
func (t *Trace) Connection(path string) recorder {
	n := t.begin(path)
	return func(toClient bool, message []byte, size int64) { t.record(n, toClient, message, size) }
}

// begin begins a connection and returns its number.
func (t *Trace) begin(path string) int64 {
	last := t.last
	if last == nil {
		last = &t.own
	}
	n := last.Add(1)
	t.write(append(append(t.head(n), `"opened":`...), quote(path)...))
	return n
}

// record records a message of this size.
func (t *Trace) record(connection int64, toClient bool, payload []byte, size int64) {
	direction := "to_browser"
	if toClient {
		direction = "to_client"
	}
	b := append(append(append(t.head(connection), `"direction":"`...), direction...), `",`...)
	switch {
	case size > websocket.MaxTraced:
		b = strconv.AppendInt(append(b, `"bytes":`...), size, 10)
	case json.Valid(payload):
		from := len(b)
		b = append(append(b, `"message":`...), payload...)
		for i, c := range b[from:] { // line feeds between tokens
			if c == '\n' || c == '\r' {
				b[from+i] = ' '
			}
		}
	default:
		b = append(append(b, `"text":`...), quote(strings.ToValidUTF8(string(payload), "�"))...)
	}
	t.write(b)
}

// head returns the beginning of a line.
func (t *Trace) head(connection int64) []byte {
	b := append(make([]byte, 0, 256), `{"time":`...)
	now, _ := record.Now().MarshalJSON()
	b = append(b, now...)
	if t.session != "" {
		b = append(append(b, `,"session":`...), quote(t.session)...)
	}
	return append(strconv.AppendInt(append(b, `,"connection":`...), connection, 10), ',')
}

// quote returns a JSON string.
func quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// write writes a line that lacks its end. If that fails, as on a disk that is
// full, the traffic goes on, and later lines are tried.
func (t *Trace) write(line []byte) {
	line = append(line, "}\n"...)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if t.torn {
		line = append([]byte("\n"), line...)
	}
	n, err := t.Out.Write(line)
	if n > 0 {
		t.torn = err != nil
	}
	if err != nil && !t.failed {
		t.failed = true
		t.Log.Warn("cannot write the trace: " + err.Error())
	}
}

// Close closes the trace. What connections still send is lost.
func (t *Trace) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.Out.Close()
}

// Traces are the traces of sessions. They count their connections together.
type Traces struct {
	Dir     string // of sessions without a file of their own; "": they have no trace
	Secrets *secrets.Set
	Log     *slog.Logger

	last atomic.Int64
}

// Open opens the trace of a session, nil if it has none. A session does without
// a file in the directory if that cannot be opened.
func (t *Traces) Open(session string, s settings.Settings) (fleet.Trace, error) {
	path := s.Trace
	switch {
	case path == "" && t.Dir == "":
		return nil, nil
	case path == "":
		path = filepath.Join(t.Dir, session+".jsonl")
	}
	f, err := openTrace(path)
	switch {
	case err != nil && s.Trace != "":
		return nil, control.Errorf(control.BadRequest, "cannot write the trace: %v", err)
	case err != nil:
		t.Log.Warn(fmt.Sprintf("the session %s has no trace: %v", session, err))
		return nil, nil
	}
	return &Trace{Out: t.Secrets.JSONWriter(f), Log: t.Log.With("session", session), session: session,
		last: &t.last}, nil
}

// openTrace opens a file that a trace is appended to: not a pipe, which could
// keep the session waiting. A new one is for its owner only, as it holds what
// pages hold.
func openTrace(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeDir) != 0 {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("it is not a file")}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}
