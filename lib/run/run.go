// Package run runs the command after "--": with the browser's addresses in
// its arguments and environment, its signals forwarded, its exit code ours.
package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"btools/lib/exit"
	"btools/lib/lifetime"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/terminal"
)

// Endpoint is what a command is told of its browser.
type Endpoint struct {
	ID, HTTPURL, WSURL string // ID is "" of a proxy
	Port               int    // 0: others have browsers there, too; or there is no browser
	Protocol           string // "": CDP
}

// EndpointOf is the endpoint of an instance.
func EndpointOf(i record.Instance) Endpoint {
	return Endpoint{ID: i.ID, HTTPURL: i.HTTPURL, WSURL: i.WSURL, Port: i.Port, Protocol: i.Protocol}
}

// Placeholders in the arguments of a command.
const (
	CDPPort     = "{cdp_port}"
	CDPEndpoint = "{cdp_endpoint}"
	WSEndpoint  = "{ws_endpoint}"
)

// HasPlaceholder reports whether a command has its browser in its arguments.
func HasPlaceholder(argv []string) bool {
	return slices.ContainsFunc(argv, func(a string) bool {
		return strings.Contains(a, CDPPort) || strings.Contains(a, CDPEndpoint) || strings.Contains(a, WSEndpoint)
	})
}

// Expand replaces the placeholders in the arguments of a command.
func (e Endpoint) Expand(argv []string) []string {
	sub := strings.NewReplacer(CDPPort, strconv.Itoa(e.Port), CDPEndpoint, e.HTTPURL, WSEndpoint, e.WSURL)
	args := make([]string, len(argv))
	for i, a := range argv {
		args[i] = sub.Replace(a)
	}
	return args
}

// Environ is what tells a command of its browser in its environment, nil if
// there is none.
func (e Endpoint) Environ() []string {
	if e.Port == 0 && e.WSURL == "" {
		return nil
	}
	protocol, cdpURL := e.Protocol, e.HTTPURL
	switch protocol {
	case record.BiDi:
		cdpURL = ""
	case "":
		protocol = record.CDP
	}
	env := []string{"BTOOLS_PROTOCOL=" + protocol, "BTOOLS_CDP_URL=" + cdpURL, "BTOOLS_WS_URL=" + e.WSURL,
		"BTOOLS_ID=" + e.ID}
	if e.Port != 0 {
		env = append(env, "BTOOLS_PORT="+strconv.Itoa(e.Port))
	}
	return env
}

// Check refuses arguments of a command that its browser can't fill in.
func Check(argv []string, bidi bool) error {
	if bidi && slices.ContainsFunc(argv, func(a string) bool { return strings.Contains(a, CDPEndpoint) }) {
		return &exit.Error{
			Code: exit.Usage, Err: errors.New(CDPEndpoint + ": Firefox speaks WebDriver BiDi, not CDP"),
			Hint: WSEndpoint + " is its address, for a client such as Puppeteer with protocol: 'webDriverBiDi'",
		}
	}
	return nil
}

// Find looks the command up before anything is launched for it. Without a command its
// path is "".
func Find(argv []string) (string, error) {
	if argv == nil {
		return "", nil
	}
	path, err := exec.LookPath(argv[0])
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrDot):
		return path, nil // named with its directory in PATH: what a shell would run
	case errors.Is(err, fs.ErrPermission):
		return "", exit.Errorf(exit.CannotRun, "cannot run %s: permission denied", argv[0])
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		e := &exit.Error{Code: exit.NotFound, Err: fmt.Errorf("cannot run %s: not found", argv[0])}
		if strings.Contains(argv[0], " ") {
			e.Hint = "what is in quotes is one word: leave the quotes out, or use sh -c " + strconv.Quote(argv[0])
		}
		return "", e
	}
	return "", exit.Errorf(exit.CannotRun, "cannot run %s: %v", argv[0], err)
}

// Command is a command that is run with a browser.
type Command struct {
	Path     string   // from Find
	Argv     []string // its name and its arguments, which Endpoint fills in
	Endpoint Endpoint
	Grace    time.Duration    // from a signal that was meant for us to the kill
	Signals  <-chan os.Signal // those from lifetime.Catch; nil for those from now on
	Started  func()           // called once it runs, if not nil
}

// Run runs the command until it ends. INT, TERM and HUP are forwarded; after
// one of them that was meant for us, or when the context ends (TERM is sent
// then), the command has the grace to end before it is killed. A second one
// kills it at once. The result is nil or an exit.Status with the command's code.
func (c *Command) Run(ctx context.Context) error {
	if err := Check(c.Argv, c.Endpoint.Protocol == record.BiDi); err != nil {
		return err
	}
	cmd := &exec.Cmd{Path: c.Path, Args: c.Endpoint.Expand(c.Argv),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	cmd.Env = append(os.Environ(), c.Endpoint.Environ()...)
	signals := c.Signals
	if signals == nil {
		caught := lifetime.Catch()
		defer signal.Stop(caught)
		signals = caught
	}
	ended, err := proc.StartTied(cmd, syscall.SIGTERM) // told when we are killed
	if err != nil {
		return exit.Errorf(exit.CannotRun, "cannot run %s: %v", c.Argv[0], err)
	}
	if c.Started != nil {
		c.Started()
	}
	var kill <-chan time.Time
	var told time.Time
	done := ctx.Done()
	for {
		select {
		case err := <-ended:
			return exitOf(c.Argv[0], err)
		case <-done:
			done = nil
			cmd.Process.Signal(syscall.SIGTERM)
			kill = time.After(c.Grace)
		case <-kill:
			cmd.Process.Kill()
			kill = nil
		case s := <-signals:
			if s == syscall.SIGINT && terminal.Foreground() {
				// The terminal has sent it to the command as well, whose
				// business it is: many live on.
				continue
			}
			if !told.IsZero() {
				if time.Since(told) > lifetime.Burst {
					cmd.Process.Kill()
				}
				continue
			}
			told = time.Now()
			cmd.Process.Signal(s)
			kill = time.After(c.Grace)
		}
	}
}

func exitOf(name string, err error) error {
	var failed *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed):
		if ws, ok := failed.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return exit.Status(exit.Signalled + int(ws.Signal()))
		}
		return exit.Status(failed.ExitCode())
	}
	return fmt.Errorf("cannot wait for %s: %w", name, err)
}
