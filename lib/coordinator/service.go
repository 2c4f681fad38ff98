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

// service is a program of this project that runs for us: it is started when
// it is needed, and again when it has ended.
type service struct {
	wait.Starter[*launcher.Browser]
	ctx  context.Context
	stop context.CancelFunc
}

func newService(run func(context.Context) (*launcher.Browser, error)) *service {
	v := &service{}
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
func (v *service) close() {
	why := errors.New("bmcp is stopping")
	v.Refuse(why)
	v.stop()
	if b := v.Close(why); b != nil {
		b.Stop()
	}
}

// startService runs a program that prints a record and stays.
func startService(ctx context.Context, log io.Writer, name string, args ...string) (*launcher.Browser, error) {
	path, err := launcher.Sibling(name)
	if err != nil {
		return nil, err
	}
	argv := slices.Concat([]string{path}, args, []string{"--output=json"}, held.BindArgs())
	return launcher.Launch(ctx, launcher.Spec{Argv: argv, Timeout: 5 * time.Minute, Grace: 30 * time.Second,
		Stderr: log, Service: true})
}
