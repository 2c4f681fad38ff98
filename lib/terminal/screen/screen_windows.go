package screen

import (
	"os"

	"golang.org/x/sys/windows"
)

// modes are what a console does with keys, and with what is written.
type modes struct{ in, out uint32 }

func modesOf(in, out *os.File) (m modes, err error) {
	if err = windows.GetConsoleMode(windows.Handle(in.Fd()), &m.in); err == nil {
		err = windows.GetConsoleMode(windows.Handle(out.Fd()), &m.out)
	}
	return m, err
}

// raw returns the modes with which each key comes at once and is not shown. Ctrl+C is a signal.
func (m modes) raw() modes {
	m.in = m.in&^(windows.ENABLE_ECHO_INPUT|windows.ENABLE_LINE_INPUT) | windows.ENABLE_VIRTUAL_TERMINAL_INPUT
	m.out |= windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING
	return m
}

func (m modes) set(in, out *os.File) error {
	err := windows.SetConsoleMode(windows.Handle(in.Fd()), m.in)
	if err == nil {
		err = windows.SetConsoleMode(windows.Handle(out.Fd()), m.out)
	}
	return err
}

func sizeOf(out *os.File) Size {
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(out.Fd()), &info) != nil {
		return Size{Width: 80, Height: 24}
	}
	return Size{Width: int(info.Window.Right-info.Window.Left) + 1, Height: int(info.Window.Bottom-info.Window.Top) + 1}
}

// notify returns nil: a console tells no change by a signal.
func notify() chan os.Signal { return nil }

// watch does nothing.
func (s *Screen) watch(chan os.Signal) {}
