package screen

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"btools/lib/terminal/ptytest"
)

// panics are the places in which a program with a screen panics.
var panics = map[string]func(s *Screen){
	"the main goroutine": func(*Screen) { panic("on purpose") },
	"one of Go":          func(s *Screen) { s.Go(func() { panic("on purpose") }) },
	"a function that others call": func(s *Screen) {
		go func() {
			defer s.Guard()
			panic("on purpose")
		}()
	},
}

// place names one of panics for a process that TestPanic starts.
const place = "BTOOLS_TEST_PANIC"

// A program that panics gives the terminal back before it says so.
func TestPanic(t *testing.T) {
	if in := os.Getenv(place); in != "" {
		s, err := Open(os.Stdin, os.Stdout)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.Show([]string{"shown"}, "")
		panics[in](s)
		time.Sleep(time.Minute)
	}
	for in := range panics {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			master, tty := ptytest.Open(t)
			before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			c := exec.Command(os.Args[0], "-test.run=^TestPanic$")
			c.Env = append(os.Environ(), place+"="+in)
			c.Stdin, c.Stdout, c.Stderr = tty, tty, tty
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			wrote := make(chan string)
			go func() {
				b, _ := io.ReadAll(master)
				wrote <- string(b)
			}()
			if err := c.Wait(); !errors.As(err, new(*exec.ExitError)) {
				t.Errorf("it ends with %v", err)
			}
			after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
			if err != nil || *after != *before {
				t.Errorf("%v, the modes are %+v, not %+v", err, after, before)
			}
			tty.Close()
			out := <-wrote
			_, out, entered := strings.Cut(out, enter)
			shown, rest, left := strings.Cut(out, leave)
			if !entered || !left || !strings.Contains(shown, "shown") || strings.Contains(shown, "panic") ||
				!strings.Contains(rest, "panic: on purpose") {
				t.Errorf("it shows %q, and then %q", shown, rest)
			}
		})
	}
}

// What is shown is written once.
func TestShow(t *testing.T) {
	t.Parallel()
	master, tty := ptytest.Open(t)
	s, err := Open(tty, tty)
	if err != nil {
		t.Fatal(err)
	}
	s.Show([]string{"one", "two"}, "<a>")
	s.Show([]string{"one", "zwei"}, "<a>")
	s.Show([]string{"one", "zwei"}, "<b>")
	s.Close()
	s.Show([]string{"late"}, "")
	s.Close()
	want := enter + "\x1b[2J\x1b[1;1H\x1b[Kone\x1b[m\x1b[2;1H\x1b[Ktwo\x1b[m<a>\x1b[2;1H\x1b[Kzwei\x1b[m<b>" + leave
	b := make([]byte, len(want))
	if _, err := io.ReadFull(master, b); err != nil || string(b) != want {
		t.Errorf("%v: %q, not %q", err, b, want)
	}
}

// Keys come by their names, whole ones and in pieces.
func TestKeys(t *testing.T) {
	t.Parallel()
	master, tty := ptytest.Open(t)
	s, err := Open(tty, tty)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct{ sent, want string }{
		{"a", "a"}, {"ä日", "ä 日"}, {"\x1b[A\x1bOBj", "up down j"}, {"\r\x7f", "enter backspace"}, {"\x1b", "esc"},
		{"\x1b[5~\x1b[200~\x01", "pgup"}, {"\x1b_Gi=31;OK\x1b\\q", "\x1b_Gi=31;OK\x1b\\ q"}, {"\x1b[", ""}, {"x", "x"},
	} {
		io.WriteString(master, c.sent)
		for _, want := range strings.Fields(c.want) {
			if got := <-s.Keys(); got != want {
				t.Errorf("%q: %q, not %q", c.sent, got, want)
			}
		}
		time.Sleep(2 * escapeTime) // what is not whole by then is forgotten
	}
}

// Keys are the same in whatever pieces they come.
func FuzzKeys(f *testing.F) {
	for _, b := range []string{"jk\x1b[A", "\x1b_Gi=31;OK\x1b\\\x1bOA", "\xe6\x97\xa5\x1b\x1b[1;5C",
		"\x1b_\x1b\x1b[\x80"} {
		f.Add([]byte(b), 1)
	}
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		if len(b) == 0 || len(b) >= maxSequence {
			return
		}
		at = max(0, at) % len(b)
		whole, _ := keysOf(bytes.Clone(b))
		first, rest := keysOf(bytes.Clone(b[:at]))
		second, _ := keysOf(append(bytes.Clone(rest), b[at:]...))
		if got := append(first, second...); strings.Join(got, "|") != strings.Join(whole, "|") {
			t.Errorf("%q cut at %d: %q, not %q", b, at, got, whole)
		}
	})
}
