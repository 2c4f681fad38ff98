package coordinator

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"btools/lib/held"
	"btools/lib/launcher"
	"btools/lib/wait"
)

// sibling is another program of this project, which bmcp starts when it is needed
// and again after it has ended.
type sibling struct {
	wait.Starter[*launcher.Browser]
	ctx  context.Context
	stop context.CancelFunc
}

func newSibling(run func(context.Context) (*launcher.Browser, error)) *sibling {
	v := &sibling{}
	v.ctx, v.stop = context.WithCancel(context.Background())
	v.Start = func() (*launcher.Browser, error) { return run(v.ctx) }
	v.Gone = func(b *launcher.Browser) error {
		if wait.Closed(b.Ended()) {
			return errors.New("it has ended")
		}
		return nil
	}
	return v
}

// close stops the program.
func (v *sibling) close() {
	why := errors.New("bmcp is stopping")
	v.Refuse(why)
	v.stop()
	if b := v.Close(why); b != nil {
		b.Stop()
	}
}

// startSibling runs a program that prints a record and stays.
func startSibling(ctx context.Context, log io.Writer, name string, args ...string) (*launcher.Browser, error) {
	path, err := launcher.Sibling(name)
	if err != nil {
		return nil, err
	}
	argv := slices.Concat([]string{path}, args, []string{"--output=json"}, held.BindArgs())
	return launcher.Launch(ctx, launcher.Spec{Argv: argv, Timeout: 5 * time.Minute, Grace: 30 * time.Second,
		Stderr: log, Service: true})
}
