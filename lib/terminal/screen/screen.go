// Package screen is a terminal that a program has as a whole: it shows lines and a picture, and reads keys. The
// terminal is as before while the program is stopped, after Close, and after a panic of a function that Go runs. What
// is shown is the business of the program, which cuts its lines to the width.
package screen

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Screen is a terminal. One goroutine at a time calls Show.
type Screen struct {
	in, out *os.File
	keys    chan string
	changed chan struct{}
	closed  chan struct{}

	mu      sync.Mutex
	before  modes // of the terminal
	isOurs  bool
	size    Size     // at which the next are shown
	lines   []string // nil: nothing is shown
	picture string
}

// Size is a size of a terminal in cells, and that of a cell in pixels.
type Size struct{ Width, Height, CellWidth, CellHeight int }

// What makes the terminal ours, and gives it back: another screen, without cursor and without lines that wrap.
const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leave = "\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// Open takes the terminal over whose keys in has and which shows what is written to out.
func Open(in, out *os.File) (*Screen, error) {
	s := &Screen{in: in, out: out, keys: make(chan string), changed: make(chan struct{}, 1),
		closed: make(chan struct{})}
	signals := notify() // before the terminal is ours: else one that stops this process would leave it so
	s.Go(func() { s.watch(signals) })
	if err := s.enter(); err != nil {
		s.Close()
		return nil, fmt.Errorf("cannot use the terminal: %w", err)
	}
	s.Go(s.read)
	return s, nil
}

// Close gives the terminal back. A goroutine goes on that reads it.
func (s *Screen) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveLocked()
	if !s.isClosed() {
		close(s.closed)
	}
}

func (s *Screen) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// Go runs a function in a goroutine. If it panics, the terminal is given back first.
func (s *Screen) Go(f func()) {
	go func() {
		defer s.Guard()
		f()
	}()
}

// Guard is deferred by functions that others run in a goroutine: it does what Go does at a panic.
func (s *Screen) Guard() {
	if why := recover(); why != nil {
		s.Close()
		panic(why)
	}
}

// Keys returns the channel of keys: characters, and names such as "up", "enter" and "esc". The answers of a terminal to
// what is written with a picture come so, too. The channel is closed with the terminal.
func (s *Screen) Keys() <-chan string { return s.keys }

// Changed returns a channel that gets something when the terminal has another size or has come back.
func (s *Screen) Changed() <-chan struct{} { return s.changed }

func (s *Screen) enter() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return nil
	}
	if !s.isOurs { // else whoever stopped this program may have changed the modes
		if s.before, err = modesOf(s.in, s.out); err != nil {
			return err
		}
	}
	if err = s.before.raw().set(s.in, s.out); err != nil {
		return err
	}
	s.isOurs, s.lines = true, nil
	_, err = io.WriteString(s.out, enter)
	return err
}

func (s *Screen) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveLocked()
}

func (s *Screen) leaveLocked() {
	if s.isOurs {
		s.isOurs = false
		io.WriteString(s.out, leave)
		s.before.set(s.in, s.out)
	}
}

// tell says that all is to be shown again.
func (s *Screen) tell() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Size returns the size of the terminal.
func (s *Screen) Size() Size {
	size := sizeOf(s.out)
	if size.CellWidth < 1 || size.CellHeight < 1 {
		size.CellWidth, size.CellHeight = 8, 16
	}
	return size
}

// Show writes those lines that are not shown, and a picture if it is another one: the sequences that place and draw it.
func (s *Screen) Show(lines []string, picture string) {
	size := s.Size()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isOurs {
		return
	}
	var b strings.Builder
	if len(s.lines) != len(lines) || size != s.size {
		b.WriteString("\x1b[2J")
		s.lines, s.picture, s.size = make([]string, len(lines)), "", size
	}
	for i, l := range lines {
		if l != s.lines[i] {
			fmt.Fprintf(&b, "\x1b[%d;1H\x1b[K%s\x1b[m", i+1, l)
			s.lines[i] = l
		}
	}
	if picture != s.picture {
		b.WriteString(picture)
		s.picture = picture
	}
	io.WriteString(s.out, b.String())
}

// escapeTime is how long after an Esc the rest of a sequence may come.
const escapeTime = 50 * time.Millisecond

// read sends the keys that the terminal has.
func (s *Screen) read() {
	pieces := make(chan []byte)
	s.Go(func() {
		defer close(pieces)
		for {
			b := make([]byte, 256)
			n, err := s.in.Read(b)
			if err != nil {
				return
			}
			select {
			case pieces <- b[:n]:
			case <-s.closed:
				return
			}
		}
	})
	defer close(s.keys)
	var b []byte
	for {
		var late <-chan time.Time
		if len(b) > 0 {
			late = time.After(escapeTime)
		}
		var keys []string
		select {
		case piece, ok := <-pieces:
			if !ok {
				return
			}
			keys, b = keysOf(append(b, piece...))
		case <-late:
			if string(b) == "\x1b" {
				keys = []string{"esc"}
			}
			b = nil
		case <-s.closed:
			return
		}
		for _, k := range keys {
			select {
			case s.keys <- k:
			case <-s.closed:
				return
			}
		}
	}
}
