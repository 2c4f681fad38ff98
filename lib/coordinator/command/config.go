package command

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/flags"
	"btools/lib/mcphosts"
	"btools/lib/record"
)

// Config prints the entry that makes a host run bmcp, or its link, or writes it
// into the host's file; what is after -- are bmcp's own arguments, and --env its
// environment. With --http among them, the entry is the address of that bmcp.
func Config(c *cli.Context) error {
	args := c.Args()
	known := strings.Join(mcphosts.Names(), ", ")
	if len(args) != 1 {
		return c.UsageError("name one host: %s", known)
	}
	host, ok := mcphosts.Find(args[0])
	if !ok {
		return c.UsageError("no host is known as %q: there are %s", args[0], known)
	}
	if c.Bool("yes") && !c.Bool("write") {
		return c.UsageError("--yes is for --write")
	}
	if c.Bool("link") && c.Bool("write") {
		return c.UsageError("--link and --write exclude each other")
	}
	env, err := environment(c)
	if err != nil {
		return err
	}
	e := mcphosts.Entry{Args: c.Command, Env: env}
	if err := checkEntry(c, &e); err != nil {
		return err
	}
	if err := host.Check(e); err != nil {
		return c.UsageError("%v", err)
	}
	if e.Command, err = os.Executable(); err != nil {
		return err
	}
	if e.Command, err = filepath.EvalSymlinks(e.Command); err != nil {
		return err
	}
	if e.Token {
		c.Log.Warn("put the token in the place of TOKEN, or into the variable that is named")
	}
	text := host.Text(e)
	switch {
	case c.Bool("write"):
		return writeEntry(c, host, e)
	case c.Bool("link"):
		if text, ok = host.Link(e); !ok {
			return c.UsageError("%s has no links: leave out --link", host.Name)
		}
		text += "\n"
	default:
		c.Log.Info("paste this into " + host.Where())
	}
	if _, err := c.Stdout.WriteString(text); err != nil {
		return fmt.Errorf("cannot write the result: %w", err)
	}
	return nil
}

// writeEntry merges the entry into the host's file, once the difference has been
// shown and, at a terminal, been agreed to.
func writeEntry(c *cli.Context, host mcphosts.Host, e mcphosts.Entry) error {
	path, err := host.Path()
	if err != nil {
		return err
	}
	if path, err = linked(path); err != nil {
		return fmt.Errorf("cannot read the configuration of %s: %w", host.Name, err)
	}
	before, err := os.ReadFile(path)
	exists := err == nil
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot read the configuration of %s: %w", host.Name, err)
	}
	after, err := host.Merge(before, e)
	if err != nil {
		fmt.Fprint(c.Messages, host.Text(e))
		return &exit.Error{Code: exit.Data, Err: fmt.Errorf("cannot merge the entry into %s: %w", path, err),
			Hint: "the file is as it was: paste the entry above into it yourself"}
	}
	if bytes.Equal(before, after) {
		c.Log.Info(path + " has this entry")
		return nil
	}
	fmt.Fprintf(c.Messages, "%s:\n%s", path, difference(string(before), string(after)))
	if !c.Bool("yes") {
		if !c.AtTerminal() {
			return c.UsageError("--write asks before it writes: without a terminal, give --yes")
		}
		fmt.Fprint(c.Messages, "write it? [y/N] ")
		answer, _ := bufio.NewReader(c.Stdin).ReadString('\n')
		if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
			return errors.New("nothing was written")
		}
	}
	if now, err := os.ReadFile(path); !bytes.Equal(now, before) || (err == nil) != exists {
		return &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("nothing was written: %s has changed meanwhile", path),
			Hint: "try again"}
	}
	if exists {
		backup, err := keepCopy(path, before)
		if err != nil {
			return fmt.Errorf("cannot keep a copy, nothing was written: %w", err)
		}
		c.Log.Info("the file as it was is " + backup)
	} else if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := replaceFile(path, after, 0o600); err != nil {
		return fmt.Errorf("cannot write the configuration of %s: %w", host.Name, err)
	}
	c.Log.Info("the entry is in " + path)
	return nil
}

// keepCopy writes a copy beside a file, under the first name that is free.
func keepCopy(path string, b []byte) (string, error) {
	for n := 0; ; n++ {
		name := path + ".bak"
		if n > 0 {
			name = fmt.Sprintf("%s.bak%d", path, n)
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(b)
		return name, errors.Join(err, f.Close())
	}
}

// linked returns the file that a symbolic link leads to, so that the link stays one, or
// the path itself. A link to nothing is an error.
func linked(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Lstat(path); err != nil {
			return path, nil
		}
	}
	return real, err
}

// replaceFile replaces a file as a whole: a reader sees the old one or the new. It keeps
// its mode and owner; a new one gets this mode.
func replaceFile(path string, b []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // which is not there when all went well
	if before, err := os.Stat(path); err == nil {
		mode = before.Mode().Perm()
		keepOwner(f, before)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// difference shows the lines that change, between those that stay.
func difference(before, after string) string {
	a, b := strings.SplitAfter(before, "\n"), strings.SplitAfter(after, "\n")
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < len(a)-start && end < len(b)-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	var text strings.Builder
	for _, side := range []struct {
		sign  string
		lines []string
	}{{"- ", a[start : len(a)-end]}, {"+ ", b[start : len(b)-end]}} {
		for _, l := range side.lines {
			if l != "" {
				text.WriteString(side.sign + strings.TrimSuffix(l, "\n") + "\n")
			}
		}
	}
	return text.String()
}

// environment is what --env sets, by name.
func environment(c *cli.Context) (map[string]string, error) {
	env := map[string]string{}
	for _, kv := range c.StringSlice("env") {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, c.UsageError("--env %s: K=V sets a variable", kv)
		}
		env[k] = v
	}
	return env, nil
}

// checkEntry refuses arguments and an environment that bmcp can't be run with,
// and notes the address at which it will serve. That a child is not there is only
// told: it may be where the host is.
func checkEntry(c *cli.Context, e *mcphosts.Entry) error {
	var environ []string
	for k, v := range e.Env {
		environ = append(environ, k+"="+v)
	}
	return c.Parse(c.Command, func(entry *cli.Context) error {
		if args := entry.Args(); len(args) > 0 {
			return entry.UsageError("%q is not an option of bmcp", args[0])
		}
		if err := conflicts(entry); err != nil {
			return err
		}
		if at := entry.String("http"); at != "" {
			host, port, err := net.SplitHostPort(at)
			if err != nil {
				host, port = "127.0.0.1", at
			}
			if port == "0" {
				return entry.UsageError("--http 0 has another port each time: name one")
			}
			e.URL, e.Token = "http://"+net.JoinHostPort(host, port)+"/mcp", entry.IsSet("token-file")
		}
		all, err := children(entry)
		if err == nil {
			_, err = toolNames(entry, all)
		}
		var e *exit.Error
		if errors.As(err, &e) && (e.Code == exit.NotFound || e.Code == exit.CannotRun) {
			c.Log.Warn(err.Error())
			err = nil
		}
		if err != nil {
			return err
		}
		ch, err := choose(entry, environ)
		if err != nil || ch.service || ch.configured || entry.String("browser") == record.WebKit {
			return err
		}
		_, err = flags.ReadBrowser(entry)
		return err
	})
}
