package coordinator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"btools/lib/exit"
	"btools/lib/terminal"
)

// lastWords passes a child's messages on, with its name in front, and keeps
// the last ones.
type lastWords struct {
	name string
	log  io.Writer
	mu   sync.Mutex
	tail []byte // at most 4 KiB, whole lines but for the last
	part []byte // of a line that has not ended
}

const maxPart = 8 << 10

func (w *lastWords) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tail = append(w.tail, b...)
	if len(w.tail) > 4<<10 {
		w.tail = append([]byte(nil), w.tail[len(w.tail)-4<<10:]...)
	}
	w.part = append(w.part, b...)
	for {
		i := bytes.IndexByte(w.part, '\n')
		if i < 0 && len(w.part) < maxPart {
			return len(b), nil
		}
		if i < 0 {
			i = maxPart - 1
		}
		fmt.Fprintf(w.log, "%s: %s\n", w.name, strings.TrimRight(string(w.part[:i+1]), "\r\n"))
		w.part = w.part[i+1:]
	}
}

func (w *lastWords) say(line string) { fmt.Fprintf(w, "%s\n", line) }

// ending says how a child ended, with the last thing that it said.
func (w *lastWords) ending(name string, err error) error {
	return fmt.Errorf("child %s %s", name, w.how(err))
}

func (w *lastWords) how(err error) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	how := "exited with 0"
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		how = ended.String()
		if n := ended.ExitCode() - exit.Signalled; n > 0 && n < 65 {
			how = fmt.Sprintf("killed by signal %d, %v", n, syscall.Signal(n))
		}
	}
	var said []string
	for _, l := range strings.Split(terminal.Printable(string(w.tail)), "\n") {
		if l = strings.TrimSpace(l); l != "" {
			said = append(said, l)
		}
	}
	if len(said) > 3 {
		said = said[len(said)-3:]
	}
	if len(said) == 0 {
		return fmt.Sprintf("ended (%s)", how)
	}
	return fmt.Sprintf("ended (%s): %s", how, strings.Join(said, " | "))
}
