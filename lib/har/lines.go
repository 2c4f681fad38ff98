package har

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"

	"btools/lib/jsonrpc"
)

// maxLine is how long a line of a trace may be: bproxy records messages of up
// to 16 MiB, which older versions wrote with escapes.
const maxLine = 32 << 20

// line is one line of a trace.
type line struct {
	at         span
	connection string // with the name of its session, if it has one
	session    string // of bproxy share
	toBrowser  bool
	opened     string // the path of a connection that begins here
	message    json.RawMessage
}

// span is a part of a trace.
type span struct {
	at   int64
	size int
}

// lines reads the lines of a trace.
type lines struct {
	in      *bufio.Reader
	at      int64
	buffer  []byte
	damaged int
}

func newLines(in io.Reader) *lines { return &lines{in: bufio.NewReaderSize(in, 256<<10)} }

// next returns the next line that is not damaged, or io.EOF. Its bytes are
// valid until the next call.
func (l *lines) next() (line, error) {
	for {
		b, size, err := l.read()
		if err != nil {
			return line{}, err
		}
		begin := l.at
		l.at += int64(size)
		if len(bytes.TrimSpace(b)) == 0 && size < maxLine {
			continue
		}
		if x, ok := parse(b); ok {
			x.at = span{begin, size}
			return x, nil
		}
		l.damaged++
	}
}

// read returns the next line, nothing of it if it is too long, and its length.
func (l *lines) read() (b []byte, size int, err error) {
	l.buffer = l.buffer[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		size += len(part)
		if size <= maxLine {
			l.buffer = append(l.buffer, part...)
		}
		switch {
		case err == nil || err == io.EOF && size > 0:
			if size > maxLine {
				return nil, size, nil
			}
			return l.buffer, size, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, size, err
		}
	}
}

// parse reads a line. A line that is cut off or is not bproxy's is not ok.
func parse(b []byte) (x line, ok bool) {
	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, []byte("�"))
	}
	if !json.Valid(b) {
		return line{}, false
	}
	var number, direction json.RawMessage
	err := jsonrpc.Members(b, func(name, value json.RawMessage) error {
		switch string(name) {
		case `"connection"`:
			number = value
		case `"session"`:
			x.session = text(value)
		case `"opened"`:
			x.opened = text(value)
		case `"direction"`:
			direction = value
		case `"message"`:
			x.message = value
		}
		return nil
	})
	x.connection = x.session + "\n" + string(number)
	x.toBrowser = string(direction) == `"to_browser"`
	return x, err == nil && number != nil && (x.toBrowser || direction == nil || string(direction) == `"to_client"`)
}

// cdpMessage is a message of CDP, decoded as far as all of them are alike.
type cdpMessage struct {
	id, params, result json.RawMessage
	method, session    string
}

func decode(b json.RawMessage) (m cdpMessage) {
	jsonrpc.Members(b, func(name, value json.RawMessage) error {
		switch string(name) {
		case `"id"`:
			m.id = value
		case `"params"`:
			m.params = value
		case `"result"`:
			m.result = value
		case `"method"`:
			m.method = text(value)
		case `"sessionId"`:
			m.session = text(value)
		}
		return nil
	})
	return m
}

// text returns a JSON string, "" of another value.
func text(raw json.RawMessage) (s string) {
	json.Unmarshal(raw, &s)
	return s
}
