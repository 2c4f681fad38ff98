// Package tail keeps the end of what a process prints, to say why it failed.
package tail

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"sync"
)

// Tail keeps the last bytes that are written to it, whole lines only.
type Tail struct {
	Max int // bytes; 0: 4 KiB

	mu  sync.Mutex
	b   []byte
	cut bool // b does not begin with the first byte that was written
}

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if most := t.most(); len(t.b) > 2*most {
		t.b = append([]byte(nil), t.b[len(t.b)-most:]...)
		t.cut = true
	}
	return len(p), nil
}

func (t *Tail) most() int { return cmp.Or(t.Max, 4<<10) }

// String is what is kept. A line that is longer than that has lost its beginning.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, cut := t.b, t.cut
	if n := len(b) - t.most(); n > 0 {
		b, cut = b[n:], true
	}
	if i := bytes.IndexByte(b, '\n'); cut && i >= 0 && i < len(b)-1 {
		b = b[i+1:]
	}
	return string(b)
}

// Lines returns the lines that are kept, without blank ones, and messages of programs of
// ours as they are with --log-format text.
func (t *Tail) Lines() []string { return Text(t.String()) }

// Text returns the lines of an output as Lines does.
func Text(output string) (lines []string) {
	for l := range strings.Lines(output) {
		var m struct{ Msg, Program, Hint string }
		switch l = strings.TrimRight(l, "\r\n"); {
		case strings.TrimSpace(l) == "":
		case l[0] == '{' && json.Unmarshal([]byte(l), &m) == nil && m.Program != "":
			lines = append(lines, strings.Split(m.Program+": "+m.Msg, "\n")...)
			if m.Hint != "" {
				lines = append(lines, m.Program+": hint: "+m.Hint)
			}
		default:
			lines = append(lines, l)
		}
	}
	return lines
}
