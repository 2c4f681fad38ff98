package child

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"

	"btools/lib/exit"
	"btools/lib/lazy"
	"btools/lib/tail"
	"btools/lib/terminal"
)

// stderrTail copies a child's standard error to the log, with its name in front,
// and keeps the last lines.
type stderrTail struct {
	name string
	log  io.Writer
	tail tail.Tail
	mu   sync.Mutex
	part []byte // of a line that has not ended
}

const maxPart = 8 << 10

func (w *stderrTail) Write(b []byte) (int, error) {
	w.tail.Write(b)
	w.mu.Lock()
	defer w.mu.Unlock()
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

func (w *stderrTail) writeLine(line string) { fmt.Fprintf(w, "%s\n", line) }

// ending describes how a child ended, with the last lines that it wrote. That of a child at a URL has a RemoteError.
func (w *stderrTail) ending(name string, err error) error {
	if away, ok := errors.AsType[*RemoteError](err); ok {
		return fmt.Errorf("child %s ended (%w)", name, away)
	}
	return fmt.Errorf("child %s %s", name, w.how(err))
}

func (w *stderrTail) how(err error) string {
	how := "exited with 0"
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		how = ended.String()
		if n := ended.ExitCode() - exit.Signalled; n > 0 && n < 65 {
			how = fmt.Sprintf("killed by signal %d, %v", n, syscall.Signal(n))
		}
	}
	said := w.tail.Lines()
	if i := lastIndex(said, errorLine().MatchString); i >= 0 {
		said = said[i : i+1] // below it is the stack
	}
	said = said[max(0, len(said)-3):]
	for i, l := range said {
		said[i] = terminal.Printable(strings.TrimSpace(l))
	}
	if len(said) == 0 {
		return fmt.Sprintf("ended (%s)", how)
	}
	return fmt.Sprintf("ended (%s): %s", how, strings.Join(said, " | "))
}

// errorLine is the line of an error with which Node.js or Python ends a program.
var errorLine = lazy.Regexp(`^(?:Uncaught )?[\w.]*(?:Error|Exception)(?: \[\w+\])?: `)

// lastIndex returns the index of the last line for which is returns true, -1 if there
// is none.
func lastIndex(lines []string, is func(string) bool) int {
	for i, l := range slices.Backward(lines) {
		if is(l) {
			return i
		}
	}
	return -1
}
