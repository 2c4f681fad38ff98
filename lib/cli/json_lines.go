package cli

import (
	"bytes"
	"io"
	"sync"
)

// jsonLines passes on messages, each of whose lines is JSON then: one that is not, such as
// of another program, becomes a message of this one.
type jsonLines struct {
	w    io.Writer
	name string

	mu   sync.Mutex
	part []byte // of an object whose line has not ended
}

func (j *jsonLines) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range bytes.Lines(append(j.part, b...)) {
		j.part = nil
		switch whole := line[len(line)-1] == '\n'; {
		case line[0] == '{' && whole:
			if _, err := j.w.Write(line); err != nil {
				return 0, err
			}
		case line[0] == '{' && len(line) < maxPart:
			j.part = bytes.Clone(line)
		default:
			if line = bytes.TrimSpace(line); len(line) > 0 {
				NewLogger(j.w, j.name, "info", "json").Info(string(line))
			}
		}
	}
	return len(b), nil
}

// maxPart is the number of bytes that may be kept of a line.
const maxPart = 64 << 10
