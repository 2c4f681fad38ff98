package launch

import (
	"bytes"
	"io"
	"log/slog"
	"regexp"
	"strings"

	"btools/lib/tail"
)

// browserLog reads what the browser prints. It is a pipe that is always
// drained: a browser that floods it fills no disk and never blocks, and what
// it announces is read the moment it is written. Its end is the supervisor's,
// which is the browser's too.
type browserLog struct {
	log       *slog.Logger
	announced chan string   // the endpoint's URL, once
	noServer  chan struct{} // closed: the browser said that it has no endpoint
	done      chan struct{} // closed when everything is read
	tail      tail.Tail
	console   bool // the last line was of a page, and goes on
}

const (
	maxTail = 32 << 10 // bytes of the log that are kept for an error's reason
	maxLine = 4 << 10  // bytes of one line that are kept
)

var (
	chromeReady   = []byte("DevTools listening on ")
	firefoxReady  = []byte("WebDriver BiDi listening on ")
	chromeNoPort  = []byte("Cannot start http server for devtools")
	chromeHead    = regexp.MustCompile(`^\[[0-9:]*[0-9]{4}/[0-9]{6}[^\]]*\] `)
	consoleEnd    = regexp.MustCompile(`", source: .*\([0-9]+\)$`)
	uninteresting = []string{"dbus", "Xlib: ", "DevTools listening on", "Gtk-WARNING", "Fontconfig"}
)

func newBrowserLog(log *slog.Logger) *browserLog {
	return &browserLog{log: log, announced: make(chan string, 1), noServer: make(chan struct{}),
		done: make(chan struct{}),
		tail: tail.Tail{Max: maxTail}}
}

// read reads until the end of in.
func (l *browserLog) read(in io.Reader, ready []byte) {
	defer close(l.done)
	buf := make([]byte, 16<<10)
	var line []byte
	said := false
	for {
		n, err := in.Read(buf)
		part := buf[:n]
		for len(part) > 0 {
			i := bytes.IndexByte(part, '\n')
			if i < 0 {
				if room := maxLine - len(line); room > 0 {
					line = append(line, part[:min(room, len(part))]...)
				}
				break
			}
			if room := maxLine - len(line); room > 0 {
				line = append(line, part[:min(room, i)]...)
			}
			part = part[i+1:]
			if url := announced(line, ready); url != "" {
				select {
				case l.announced <- url:
				default:
				}
			}
			if !said && bytes.Contains(line, chromeNoPort) {
				said = true
				close(l.noServer)
			}
			l.keep(line)
			line = line[:0]
		}
		if err != nil {
			if len(line) > 0 {
				l.keep(line)
			}
			return
		}
	}
}

// announced is the endpoint's URL if the line announces it, else "".
func announced(line, ready []byte) string {
	_, rest, _ := bytes.Cut(line, ready)
	if !bytes.HasPrefix(rest, []byte("ws://")) {
		return ""
	}
	return string(bytes.Fields(rest)[0])
}

func (l *browserLog) keep(line []byte) {
	line = bytes.TrimRight(line, "\r")
	if l.isOfPage(line) || len(line) == 0 {
		return
	}
	l.log.Debug("browser: " + string(line))
	l.tail.Write(append(line, '\n'))
}

// isOfPage reports whether a line is of a message of a page's console, which chrome-headless-shell prints: a person may
// be private there, and it tells nothing of the browser.
func (l *browserLog) isOfPage(line []byte) bool {
	if head := chromeHead.Find(line); head != nil {
		l.console = bytes.Contains(head, []byte(":CONSOLE"))
	}
	is := l.console
	l.console = is && !consoleEnd.Match(line)
	return is
}

// last returns up to n of the last lines that may tell of a reason.
func (l *browserLog) last(n int) []string {
	var out []string
	for _, s := range l.tail.Lines() {
		if s = strings.TrimSpace(s); !containsAny(s, uninteresting) {
			if len(s) > 300 {
				s = s[:300] + "…"
			}
			out = append(out, s)
		}
	}
	if len(out) > n {
		out = out[len(out)-n:]
	}
	return out
}
