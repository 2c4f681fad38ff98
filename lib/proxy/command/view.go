package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"btools/lib/background"
	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/lifetime"
	"btools/lib/live"
	"btools/lib/live/sources"
	"btools/lib/proc"
)

// openBound is how long it may take to learn that no browser opens.
const openBound = 2 * time.Second

// View opens the page of all sessions, or of one, in the browser of this user, or prints its address.
func View(c *cli.Context) error {
	if c.Bool("stop") {
		if c.Arg() != "" || c.Bool("control") || c.Bool("no-open") {
			return c.UsageError("--stop ends the page of all sessions: it takes nothing else")
		}
		return stopView(c)
	}
	r := live.OpenRequest{Session: c.Arg(), Control: c.Bool("control"), Release: cli.Release()}
	if opener := openerOf(c); opener != nil && !c.Bool("no-open") {
		browsed := r
		browsed.Browse = true
		at, err := viewAddress(c, browsed)
		if err != nil {
			return err
		}
		if err = openBy(opener, at); err == nil {
			c.Log.Info("your browser opens the page; --no-open prints its address")
			return nil
		}
		c.Log.Warn(fmt.Sprintf("cannot open your browser (%s): %v", opener[0], err))
	}
	at, err := viewAddress(c, r)
	if err != nil {
		return err
	}
	if line := tunnelTo(at, c.Getenv); line != "" {
		c.Log.Info("on the machine of your browser, run " + line + ", and then open the address there")
	}
	_, err = fmt.Fprintln(c.Stdout, at)
	return err
}

// viewAddress asks the service for an address, and starts it if none runs.
func viewAddress(c *cli.Context, r live.OpenRequest) (string, error) {
	level := []string{"--log-level=" + c.String("log-level")}
	return live.Address(context.Background(), c.State(), "", c.Environ(), level, r)
}

// openPage opens the page of a session in the browser of this user, if it can, and returns its address.
func openPage(c *cli.Context, key string) (address string, isOpen bool, err error) {
	address, err = viewAddress(c, live.OpenRequest{Session: key, Release: cli.Release(), Browse: true})
	if opener := openerOf(c); opener != nil && !c.Bool("no-open") && err == nil {
		isOpen = openBy(opener, address) == nil
	}
	return address, isOpen, err
}

// stopView ends the service, if one runs.
func stopView(c *cli.Context) error {
	_, err := live.Stop.Ask(context.Background(), control.Path(c.State().SocketPath(live.Socket)), struct{}{})
	if client.IsGone(err) || errors.Is(err, control.ErrNotBegun) {
		c.Log.Info("no bproxy view is running")
		return nil
	}
	return err
}

// openerOf returns the command that opens an address in the browser of this user; nil: there is none here.
func openerOf(c *cli.Context) []string {
	switch {
	case c.Getenv("SSH_CONNECTION") != "":
		return nil
	case runtime.GOOS == "darwin":
		return []string{"open"}
	case runtime.GOOS == "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	case c.Getenv("WSL_DISTRO_NAME") != "", c.Getenv("DISPLAY") == "" && c.Getenv("WAYLAND_DISPLAY") == "":
		return nil
	}
	if path, err := exec.LookPath("xdg-open"); err == nil {
		return []string{path}
	}
	return nil
}

// openBy opens an address by a command, and returns its error if it fails soon.
func openBy(opener []string, address string) error {
	cmd := exec.Command(opener[0], append(opener[1:], address)...)
	cmd.SysProcAttr = proc.Detached()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(openBound):
		return nil
	}
}

// tunnelTo returns the command that leads an address of another machine to this one, if this is a shell of SSH.
func tunnelTo(address string, getenv func(string) string) string {
	var here, port string
	if _, err := fmt.Sscan(getenv("SSH_CONNECTION"), new(string), new(string), &here, &port); err != nil {
		return ""
	}
	if user := getenv("USER"); user != "" {
		here = user + "@" + here
	}
	if port != "22" {
		here = "-p " + port + " " + here
	}
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.ReplaceAll("ssh -L PORT:127.0.0.1:PORT ", "PORT", u.Port()) + here
}

// ViewService runs the service behind View.
func ViewService(c *cli.Context) error {
	ctx, stop, _ := lifetime.Context()
	defer stop(nil)
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	s := &live.Service{Store: c.State(), Release: cli.Release(), Log: c.Log}
	return s.Run(ctx, func() { fmt.Fprintln(c.Stdout, background.Ready) })
}

// ViewNames offers the sessions of all programs.
func ViewNames(c *cli.Completion) {
	all, _ := sources.All(context.Background(), c.State(), nil)
	for _, s := range all {
		c.Offer(s.Key, s.Program)
	}
}
