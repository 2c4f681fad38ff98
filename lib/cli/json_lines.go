package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"sync"
)

// jsonLines passes on messages, each of whose lines is JSON then: one that is not, such as
// of another program, becomes a message of this one.
type jsonLines struct {
	w    io.Writer
	name string

	mu    sync.Mutex
	part  []byte             // of an object whose line has not ended
	about func() []slog.Attr // members of each line that it does not have; nil: none
}

func (j *jsonLines) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range bytes.Lines(append(j.part, b...)) {
		j.part = nil
		switch whole := line[len(line)-1] == '\n'; {
		case line[0] == '{' && whole && json.Valid(line):
			if err := j.pass(line); err != nil {
				return 0, err
			}
		case line[0] == '{' && !whole && len(line) < maxPart:
			j.part = bytes.Clone(line)
		default:
			if line = bytes.TrimSpace(line); len(line) > 0 {
				var b bytes.Buffer
				NewLogger(&b, j.name, "info", "json").Info(string(line))
				if err := j.pass(b.Bytes()); err != nil {
					return 0, err
				}
			}
		}
	}
	return len(b), nil
}

// tell adds a member to each further line.
func (j *jsonLines) tell(member slog.Attr) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.about = func() []slog.Attr { return []slog.Attr{member} }
}

// pass passes on an object, with the members that it lacks.
func (j *jsonLines) pass(line []byte) error {
	if j.about != nil {
		for _, a := range j.about() {
			line = withMember(line, a)
		}
	}
	_, err := j.w.Write(line)
	return err
}

// withMember returns an object with a member, unless it has one of that name.
func withMember(line []byte, a slog.Attr) []byte {
	name, err := json.Marshal(a.Key)
	value, err2 := json.Marshal(a.Value.Any())
	if err != nil || err2 != nil || bytes.Contains(line, append(name, ':')) {
		return line
	}
	object := bytes.TrimSuffix(bytes.TrimSpace(line), []byte("}"))
	comma := ","
	if len(bytes.TrimSpace(object)) == 1 {
		comma = ""
	}
	return slices.Concat(object, []byte(comma), name, []byte(":"), value, []byte("}\n"))
}

// maxPart is the number of bytes that may be kept of a line.
const maxPart = 64 << 10

// MessagesAbout returns where another program's messages go. With --log-format json each has these members, too.
func (c *Context) MessagesAbout(members func() []slog.Attr) io.Writer {
	if c.String("log-format") != "json" {
		return c.Messages
	}
	return &jsonLines{w: c.Messages, name: c.Name, about: members}
}
