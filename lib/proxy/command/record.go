package command

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"btools/lib/cli"
	"btools/lib/control/api"
	"btools/lib/evidence"
	"btools/lib/evidence/recorder"
	"btools/lib/flags"
	"btools/lib/fleet/book"
	"btools/lib/har"
	"btools/lib/launch/options"
	"btools/lib/record"
	runcommand "btools/lib/run/command"
	"btools/lib/secrets"
	"btools/lib/sibling"
)

// Record records a browser for a program of btools that runs a command with it, which
// talks on standard input and output.
func Record(c *cli.Context) error {
	// The end of the input is the end: signals are for the command, and its owner.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	in := bufio.NewReader(c.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("cannot read the request: %w", err)
	}
	var req evidence.Request
	if err := json.Unmarshal(line, &req); err != nil {
		return fmt.Errorf("cannot read the request: %w", err)
	}
	var hidden *secrets.Set
	if req.Secrets != "" {
		if hidden, err = secrets.Read(req.Secrets); err != nil {
			return err
		}
	}
	out := json.NewEncoder(c.Stdout)
	path, err := evidence.MakeDir(req.Dir, req.Name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), evidence.StartTimeout,
		fmt.Errorf("the browser does not answer within %v", evidence.StartTimeout))
	r, err := recorder.Start(ctx, req.URL, path, hidden)
	cancel()
	if err != nil {
		os.RemoveAll(path)
		return err
	}
	out.Encode(evidence.Answer{Path: path}) // if nobody reads it, the input has ended
	word, _ := in.ReadString('\n')
	a := evidence.Answer{Path: path}
	if strings.TrimSpace(word) == evidence.Drop {
		err = r.Drop()
	} else {
		a.Missing = r.Keep(har.Options{By: har.Creator{Name: "bproxy", Version: cli.Release()}, Logins: req.Logins})
	}
	out.Encode(a) // whoever reads it may have been killed
	return err
}

// launcherOf launches a browser, as proxy.Proxy.Launch.
type launcherOf = func(context.Context, options.Options, string) (*sibling.Browser, error)

// recorded returns a launcher whose browsers are recorded before a client gets them.
func recorded(c *cli.Context, cmd *runcommand.CMD, launch launcherOf) launcherOf {
	return func(ctx context.Context, o options.Options, typ string) (*sibling.Browser, error) {
		b, err := launch(ctx, o, typ)
		if err == nil {
			if err := cmd.Evidence.Add(ctx, cmd.Name(), b.Instance); err != nil {
				c.Log.Warn(err.Error())
			}
		}
		return b, err
	}
}

// recordSessions records each session: that of CMD, which is created for it, from
// its beginning, and the others as soon as they have been created.
func (s *service) recordSessions(ctx context.Context, c *cli.Context, kept *evidence.Evidence) error {
	if kept == nil {
		return nil
	}
	token, err := flags.ReadToken(c)
	if err != nil {
		return err
	}
	address := func(name string, kind book.Kind) string {
		u := sessionOf(api.Session{Name: name, Anonymous: kind != book.Named}, s.at).WSURL
		if token != "" {
			u += "?token=" + url.QueryEscape(token)
		}
		return u
	}
	name := c.String("root-session")
	if name == "" {
		name = cmdSession
	}
	if err := kept.Add(ctx, name, record.Instance{WSURL: address(name, book.Named)}); err != nil {
		return err
	}
	go func() {
		for last := int64(0); ; {
			events, err := s.proxy.Sessions.Events(ctx, last)
			if err != nil {
				return
			}
			for _, e := range events {
				last = e.Number
				at := address(e.Session, e.Kind)
				switch {
				case e.Event == "created" && e.Kind == book.Single:
					c.Log.Warn("no evidence is recorded of a session that belongs to one connection")
				case e.Event == "created":
					if err := kept.Add(ctx, e.Session, record.Instance{WSURL: at}); err != nil {
						c.Log.Warn(err.Error())
					}
				case e.Event == "ended":
					go kept.Ended(at)
				}
			}
		}
	}()
	return nil
}
