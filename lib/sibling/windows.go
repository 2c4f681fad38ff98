package sibling

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"time"

	"btools/lib/devtools"
	"btools/lib/exit"
	"btools/lib/record"
	"btools/lib/wsl"
)

// WindowsBlaunch is Blaunch for a browser of the Windows around WSL: it runs
// blaunch.exe, which holds the browser there by a job object. Bound to us it
// is by its standard input, the only descriptor that goes through. When we are
// killed its relay is, too, Windows then ends blaunch.exe, and the job the
// browser.
func WindowsBlaunch(timeout, grace time.Duration, stderr io.Writer, level, format string, args []string) (Spec, error) {
	if err := wsl.Check(os.Getenv); err != nil {
		return Spec{}, &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("cannot launch a browser of Windows: %w",
			err)}
	}
	blaunch, err := Sibling("blaunch.exe")
	if err != nil {
		return Spec{}, &exit.Error{
			Code: exit.Unavailable, Err: fmt.Errorf("cannot launch a browser of Windows: %w", err),
			Hint: "make windows builds blaunch.exe, and make install puts it beside this program",
		}
	}
	s := blaunchSpec(blaunch, timeout, grace, stderr, level, format,
		slices.Concat([]string{"--no-input", "--bind-fd=0"}, args))
	s.Windows = true
	return s, nil
}

// reachBound is how long the browser of Windows may take to answer from here.
const reachBound = 5 * time.Second

// fromWindows makes sure that the browser can be reached, and gives it the
// numbers of the process that stands for it here: those of Windows mean
// nothing, or somebody else.
func (b *Browser) fromWindows(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, reachBound, fmt.Errorf("no answer within %v", reachBound))
	defer cancel()
	if err := reach(ctx, b.Instance); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return &exit.Error{
			Code: exit.Unavailable,
			Err: fmt.Errorf("the browser runs on Windows, but its endpoint %s can't be reached from WSL: %w",
				Addr(b.Instance), err),
			Hint: "WSL 2 reaches Windows' loopback only with networkingMode=mirrored under [wsl2] in .wslconfig " +
				"(then wsl --shutdown)",
		}
	}
	b.Instance.PID, b.Instance.SupervisorPID = b.program.PID(), b.program.PID()
	b.Record = b.Record.Clone()
	b.Record.MustSet("instance", b.Instance)
	return nil
}

// reach asks the endpoint who it is: another browser may have that port here.
func reach(ctx context.Context, i record.Instance) error {
	if i.Protocol == record.BiDi {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", Addr(i))
		if err == nil {
			c.Close()
		}
		return err
	}
	v, err := devtools.GetVersion(ctx, Addr(i))
	if err != nil {
		return err
	}
	ours, err := url.Parse(i.WSURL)
	if err != nil {
		return err
	}
	if got, err := url.Parse(v.WSURL); err != nil || got.Path != ours.Path {
		return errors.New("another browser answers there")
	}
	return nil
}
