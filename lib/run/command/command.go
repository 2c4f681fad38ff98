// Package command runs CMD, the words after "--", for the programs that hold a browser for it. Without CMD the same
// programs print a record and stay, until a signal comes or their owner is gone. How the process of CMD is run stands
// in package run.
package command

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"btools/lib/cli"
	"btools/lib/evidence"
	"btools/lib/flags"
	"btools/lib/lifetime"
	"btools/lib/record"
	"btools/lib/run"
	"btools/lib/systemd"
	"btools/lib/waitfor"
	awaitcommand "btools/lib/waitfor/command"
)

// CMD is the command of a program, if it was given one, and what the flags say of its start and end.
type CMD struct {
	Out      *cli.Output        // of the record that is printed without a command
	Evidence *evidence.Evidence // nil without --evidence
	Owner    lifetime.Owner     // of the program

	c       *cli.Context
	path    string           // "" without a command
	targets []waitfor.Target // of --wait-for
}

// Read reads what a program prints and the flags of its command, and looks the command up, before anything is launched
// for it. Known is the input record, nil without one. A command cannot be given together with the excluded flags.
func Read(c *cli.Context, known *record.Record, excluded ...string) (*CMD, error) {
	out, err := c.Records(known)
	if err != nil {
		return nil, err
	}
	for _, f := range excluded {
		if c.Command != nil && c.Bool(f) {
			return nil, c.UsageError("--%s and -- CMD exclude each other", f)
		}
	}
	m := &CMD{Out: out, c: c}
	if m.path, err = run.Find(c.Command); err != nil {
		return nil, err
	}
	if m.targets, err = awaitcommand.Read(c); err != nil {
		return nil, err
	}
	if m.Evidence, err = flags.ReadEvidence(c); err != nil {
		return nil, err
	}
	m.Owner, err = flags.ReadOwner(c)
	return m, err
}

// Given reports whether there is a command.
func (m *CMD) Given() bool { return m.path != "" }

// Name returns the name of the command for people.
func (m *CMD) Name() string { return filepath.Base(m.c.Command[0]) }

// Begin returns a context that ends when the watched owner is gone and, without a command, at a signal; now is closed
// at the second signal. A service without a command outlives the readers of its output.
func (m *CMD) Begin(watched lifetime.Owner, service bool) (ctx context.Context, stop context.CancelCauseFunc,
	now <-chan struct{}) {
	ctx, stop = context.WithCancelCause(context.Background())
	if !m.Given() {
		now = lifetime.Signals(stop)
		if service {
			signal.Ignore(syscall.SIGPIPE)
		}
	}
	watched.Watch(ctx, stop)
	return ctx, stop, now
}

// Wait waits for the applications of --wait-for. It gives up when a signal comes, when the context ends, or when the
// process of Owner does.
func (m *CMD) Wait(ctx context.Context) error {
	if m.targets == nil {
		return nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	lifetime.Owner{PID: m.Owner.PID}.Watch(ctx, stop)
	return awaitcommand.Wait(ctx, m.c, m.targets)
}

// Run waits for the applications of --wait-for, has launch return a browser, runs the command with it, and finishes the
// evidence. It returns nil or an error with the exit code of the program.
func (m *CMD) Run(ctx context.Context, launch func() (run.Endpoint, error)) error {
	err := m.Wait(ctx)
	var at run.Endpoint
	if err == nil {
		at, err = launch()
	}
	if err == nil {
		err = m.RunWith(ctx, at, nil)
	}
	m.Evidence.End(err != nil)
	return err
}

// RunWith runs the command with a browser until it ends, or until the context does. Signals are forwarded: those of the
// channel, or with nil those from now on.
func (m *CMD) RunWith(ctx context.Context, at run.Endpoint, signals <-chan os.Signal) error {
	command := run.Command{Path: m.path, Argv: m.c.Command, Endpoint: at, Grace: m.c.Duration("stop-timeout"),
		Signals: signals}
	return command.Run(ctx)
}

// Serve serves until the context ends. A command runs meanwhile, with the browser that launch returns, and its end is
// that of the service; without a command the record is printed, and systemd is told that the service is ready.
func (m *CMD) Serve(ctx context.Context, stop context.CancelCauseFunc, serve func(context.Context) error,
	r *record.Record, launch func() (run.Endpoint, error)) error {
	notify := systemd.NewNotifier()
	defer context.AfterFunc(ctx, func() { notify.Tell("STOPPING=1") })()
	served := make(chan error, 1)
	go func() { served <- serve(ctx) }()
	var err error
	if m.Given() {
		err = m.Run(ctx, launch)
	} else if err = m.Print(r); err == nil {
		notify.Tell("READY=1")
		return <-served
	}
	stop(nil)
	if serveErr := <-served; err == nil {
		err = serveErr
	}
	return err
}

// Print prints the record of a program without a command.
func (m *CMD) Print(r *record.Record) error { return m.Out.Print(nil, r) }
