package flags

import (
	"io/fs"
	"os"
	"runtime"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/lifetime"
	"btools/lib/proc"
	"btools/lib/settings"
)

// CheckDurations refuses flags whose values are no durations, or too long ones.
func CheckDurations(c *cli.Context, names ...string) error {
	for _, name := range names {
		if d := c.Duration(name); d < 0 || d > settings.MaxDuration {
			return c.UsageError("--%s must be a duration such as 15s, at most 876000h, not %v", name, d)
		}
	}
	return nil
}

// Quieter returns the flags of logging for a program that this one starts, without its usual messages.
func Quieter(c *cli.Context) []string {
	level := c.String("log-level")
	if level == "info" {
		level = "warn"
	}
	return []string{"--log-level=" + level, "--log-format=" + c.String("log-format")}
}

// Pipe returns an end of the pipe of --pipe-fd. What is started from here does not
// inherit it.
func Pipe(c *cli.Context, n int) (*os.File, error) {
	if runtime.GOOS == "windows" {
		return nil, c.UsageError("--pipe-fd is not supported on Windows")
	}
	if n < 3 {
		return nil, c.UsageError("--pipe-fd is 3 or more, not %d", n)
	}
	f := os.NewFile(uintptr(n), "pipe-fd")
	if st, err := f.Stat(); err != nil || st.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) == 0 {
		return nil, c.UsageError("--pipe-fd: descriptor %d is not a pipe", n)
	}
	closeOnExec(n)
	return f, nil
}

// Owner are the flags that name the owner of a program. do says what the program does
// when its owner has ended.
func Owner(category, do string) []ucli.Flag {
	return []ucli.Flag{
		&ucli.IntFlag{Name: "bind-pid", Category: category, Usage: do + " when process `PID` has ended"},
		&ucli.IntFlag{Name: "bind-fd", Category: category, Usage: do + " at end of file on descriptor `N`"},
	}
}

// ReadOwner is the owner that the flags name. What is started from here does
// not inherit the descriptor.
func ReadOwner(c *cli.Context) (o lifetime.Owner, err error) {
	if c.IsSet("bind-pid") {
		id, err := proc.Of(c.Int("bind-pid"))
		if err != nil {
			return o, c.UsageError("--bind-pid %d: no such process", c.Int("bind-pid"))
		}
		o.PID = &id
	}
	if c.IsSet("bind-fd") {
		n := c.Int("bind-fd")
		var f *os.File
		switch {
		case n >= 3:
			f = os.NewFile(uintptr(n), "bind-fd")
			defer closeOnExec(n)
		case n == 0 && c.Bool("no-input") && c.Command == nil:
			f = c.Stdin // all that comes through from WSL to Windows
		case n == 0:
			return o, c.UsageError("--bind-fd 0 is standard input: it needs --no-input, and no command")
		default:
			return o, c.UsageError("--bind-fd is 3 or more, or 0, not %d", n)
		}
		st, err := f.Stat()
		if err != nil {
			return o, c.UsageError("--bind-fd %d is not open", n)
		}
		// Whatever else has the number is this program's own.
		if st.Mode()&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeCharDevice) == 0 {
			return o, c.UsageError("--bind-fd %d is not a pipe, a socket or a terminal", n)
		}
		o.FD = f
	}
	return o, nil
}
