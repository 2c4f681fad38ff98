package command

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/lifetime"
	"btools/lib/shell"
	"btools/lib/shell/relay"
)

// errNotHere says that the program that was started is to run a command line, as the service has not done anything.
var errNotHere = control.Errorf(control.BadRequest, "this command line is for the program that was started")

// service is the service, as the caller of a command line that it runs.
type service struct {
	*shell.Service
	called bool
}

// Do makes a call, unless another service has the session.
func (s *service) Do(ctx context.Context, _ string, params, result any) error {
	a, err := s.Call(ctx, params.(shell.Request))
	var e *control.Error
	if err != nil {
		e = control.ErrorOf(err)
	}
	if isNotHere := e != nil && e.Code == control.Stopping || e == nil && a.To != ""; isNotHere && s.called {
		return control.Errorf(control.TryAgain, "the session has ended during this call")
	} else if isNotHere {
		return errNotHere
	}
	s.called = true
	if e != nil {
		return e
	}
	*result.(*shell.Answer) = *a
	return nil
}

// runHere runs a command line of bmcp call in the service.
func runHere(ctx context.Context, to *shell.Service, r relay.Request) (*relay.Answer, error) {
	if r.Program == "" || r.Program != relay.Program() {
		return nil, errNotHere
	}
	var files [3]*os.File
	for i := range files {
		var err error
		if files[i], err = inMemory(); err != nil {
			return nil, err
		}
		defer files[i].Close()
	}
	s := &service{Service: to}
	here := func(c *cli.Context) error {
		if page := readShot(c.Args()); c.Bool("batch") || c.Bool("once") || c.Dash() ||
			!isPlain(c, c.String("save")) || page != nil && !isPlain(c, page.file) {
			return errNotHere
		}
		return call(c, func(t *shell.Target) (caller, func(), error) {
			a, err := around(c.Env, t.Options)
			if t.Own = c.State().SocketPath(a.Socket()); err != nil || t.Own != s.Path {
				return nil, nil, errNotHere
			}
			return s, func() {}, nil
		})
	}
	code := cli.Run(&cli.Env{Args: slices.Concat([]string{"bmcp", "call"}, ofEnvironment(r.Environ), r.Args),
		Stdin: files[0], Stdout: files[1], Stderr: files[2], Dir: r.Dir, Caller: ctx,
		Environ: func() []string { return r.Environ },
		Getenv:  func(name string) string { return lookup(r.Environ, name) },
	}, &cli.Program{Command: cli.Command{Name: "bmcp"}, Commands: []*cli.Command{CallCommand(here)}})
	if !s.called {
		return nil, errNotHere
	}
	a := &relay.Answer{Code: code}
	for i, to := range []*[]byte{&a.Out, &a.Err} {
		files[i+1].Seek(0, io.SeekStart)
		var err error
		if *to, err = io.ReadAll(files[i+1]); err != nil {
			return &relay.Answer{Code: exit.Failed, Err: []byte("bmcp: " + err.Error() + "\n")}, nil
		}
	}
	return a, nil
}

// isPlain reports whether a path names a file, or nothing yet: a pipe may keep the service waiting.
func isPlain(c *cli.Context, path string) bool {
	path, err := c.Abs(path)
	if err != nil {
		return false
	}
	st, err := os.Stat(path)
	return err != nil || st.Mode().IsRegular() || st.IsDir()
}

// lookup returns the value of a variable, "" without one.
func lookup(environ []string, name string) string {
	for _, kv := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// ofEnvironment returns the options that variables of the caller set, which the service does not have.
func ofEnvironment(environ []string) (options []string) {
	variables := map[string]string{"session": "BTOOLS_SESSION", "log-level": "BTOOLS_LOG_LEVEL",
		"log-format": "BTOOLS_LOG_FORMAT"}
	for _, option := range slices.Sorted(maps.Keys(variables)) {
		if value := lookup(environ, variables[option]); value != "" {
			options = append(options, "--"+option+"="+value)
		}
	}
	return options
}

// resume waits for the service that runs the command line of this process, and prints what it has printed.
func resume(p *relay.Pending) error {
	conn, err := net.FileConn(p.Conn)
	p.Conn.Close()
	if err != nil {
		return err
	}
	ctx, stop, _ := lifetime.Context()
	defer stop(nil)
	var a relay.Answer
	err = control.Resume(ctx, conn, p.Read, p.Begun, relay.Method, &a)
	var e *control.Error
	switch {
	case errors.As(err, &e), errors.Is(err, control.ErrNotBegun):
		return errNotHere
	case err != nil:
		return shell.Failed(ctx, err)
	}
	if err = a.Print(); err == nil && a.Code != 0 {
		return exit.Status(a.Code)
	}
	return err
}
