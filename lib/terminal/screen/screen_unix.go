//go:build unix

package screen

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"btools/lib/terminal"
)

// modes are what a terminal does with keys.
type modes unix.Termios

func modesOf(in, _ *os.File) (modes, error) {
	t, err := unix.IoctlGetTermios(int(in.Fd()), getModes)
	if err != nil {
		return modes{}, err
	}
	return modes(*t), nil
}

// raw returns the modes with which each key comes at once and is not shown. Ctrl+C and Ctrl+Z are signals.
func (m modes) raw() modes {
	m.Lflag &^= unix.ICANON | unix.ECHO | unix.IEXTEN
	m.Iflag &^= unix.IXON
	m.Cc[unix.VMIN], m.Cc[unix.VTIME] = 1, 0
	return m
}

func (m modes) set(in, _ *os.File) error {
	return unix.IoctlSetTermios(int(in.Fd()), setModes, (*unix.Termios)(&m))
}

func sizeOf(out *os.File) Size {
	w, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return Size{Width: 80, Height: 24}
	}
	return Size{int(w.Col), int(w.Row), int(w.Xpixel / w.Col), int(w.Ypixel / w.Row)}
}

// notify returns a channel of the signals that watch needs.
func notify() chan os.Signal {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGWINCH, unix.SIGCONT, unix.SIGTSTP, unix.SIGQUIT)
	return signals
}

// watch gives the terminal back for as long as this process is stopped, and before what ends it with a trace.
func (s *Screen) watch(signals chan os.Signal) {
	defer signal.Stop(signals)
	for {
		var got os.Signal
		select {
		case got = <-signals:
		case <-s.closed:
			return
		}
		switch got {
		case unix.SIGTSTP:
			s.leave()
			stop()
		case unix.SIGQUIT:
			s.leave()
			signal.Reset(got)
			unix.Kill(unix.Getpid(), unix.SIGQUIT)
			return
		}
		if got != unix.SIGWINCH && terminal.Foreground() {
			s.enter()
		}
		s.tell()
	}
}
