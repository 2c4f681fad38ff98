package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// disk is full at times: it takes a part of a line then.
type disk struct {
	bytes.Buffer
	full bool
}

func (d *disk) Write(b []byte) (int, error) {
	if d.full {
		n, _ := d.Buffer.Write(b[:len(b)/2])
		return n, errors.New("no space left")
	}
	return d.Buffer.Write(b)
}

func (d *disk) Close() error { return nil }

// A line that a full disk has cut off damages no other line, and is said once.
func TestTraceOnAFullDisk(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	d := &disk{}
	trace := &Trace{Out: d, Log: slog.New(slog.NewTextHandler(&said, nil))}
	record := trace.Connection("/devtools/browser")
	for i, full := range []bool{false, true, true, false} {
		d.full = full
		record(false, fmt.Appendf(nil, "{\"n\":%d,\n\"x\":\"<&>\"}", i), 17)
	}
	record(true, []byte("a\"\xff"), 3)
	trace.Close()
	record(true, []byte("a\"\xff"), 3)
	var got []string
	for line := range strings.Lines(d.String()) {
		if json.Valid([]byte(line)) {
			_, rest, _ := strings.Cut(strings.TrimSpace(line), `"connection":1,`)
			got = append(got, rest)
		}
	}
	want := []string{`"opened":"/devtools/browser"}`, `"direction":"to_browser","message":{"n":0, "x":"<&>"}}`,
		`"direction":"to_browser","message":{"n":3, "x":"<&>"}}`, `"direction":"to_client","text":"a\"�"}`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s", d.String())
	}
	if strings.Count(said.String(), "no space left") != 1 {
		t.Errorf("it says %s", said.String())
	}
}
