package child

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"

	"btools/lib/jsonrpc"
)

// events are those of a stream, of server-sent events, and of those that resume it.
type events struct {
	last  string        // the ID of the last one; "": it cannot be resumed
	retry time.Duration // to wait before it is resumed; 0: the server has not said
}

// read calls got for the data of each event, until the stream ends.
func (e *events) read(body io.Reader, got func(data []byte)) error {
	in := bufio.NewReaderSize(body, 32<<10)
	var data []byte
	some := false // there is a field of data, though it may be empty
	for {
		line, err := readLine(in)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			if some && len(data) > 0 {
				got(data)
			}
			data, some = nil, false
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if some {
				data = append(data, '\n')
			}
			if data, some = append(data, value...), true; len(data) > jsonrpc.MaxLine {
				return jsonrpc.ErrTooLong
			}
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				e.last = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				e.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// readLine reads a line of a bounded length, without its end.
func readLine(in *bufio.Reader) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if line = append(line, part...); len(line) > jsonrpc.MaxLine {
			return nil, jsonrpc.ErrTooLong
		}
		if err == nil {
			return bytes.TrimRight(line, "\r\n"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}
