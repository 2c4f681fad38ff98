// Package command is what the commands of bmcp do.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/BurntSushi/toml"

	"btools/lib/cli"
	"btools/lib/coordinator"
	"btools/lib/envfile"
	"btools/lib/guard"
	"btools/lib/launch/options"
	"btools/lib/launcher"
	"btools/lib/life"
	"btools/lib/pool/config"
	"btools/lib/record"
)

// closeTimeout is how long the end of everything may take: more than a child,
// bproxy or bpool may. What has not ended by then ends with bmcp, to which it
// is bound.
const closeTimeout = 40 * time.Second

// Run serves a host until its end of file, or until told to stop.
func Run(c *cli.Context) error {
	if args := c.Args(); len(args) > 0 {
		return c.UsageError("%q is no command: a child's goes after --", args[0])
	}
	for name, needs := range map[string]string{"token-file": "http", "allow-origin": "http"} {
		if c.IsSet(name) && !c.IsSet(needs) {
			return c.UsageError("--%s is for --%s", name, needs)
		}
	}
	for _, both := range [][2]string{{"no-child", "config"}, {"no-child", "eager"}, {"no-pool", "pool-config"}, {"no-pool", "env-file"}} {
		if c.Bool(both[0]) && c.IsSet(both[1]) {
			return c.UsageError("--%s and --%s exclude each other", both[0], both[1])
		}
	}
	if c.IsSet("http") && c.String("http") == "" {
		return c.UsageError("--http needs an address: HOST:PORT or PORT")
	}
	children, err := children(c)
	if err != nil {
		return err
	}
	browsers, err := browsers(c)
	if err != nil {
		return err
	}
	owner, err := life.FromFlags(c)
	if err != nil {
		return err
	}
	g := &guard.Guard{Origins: c.StringSlice("allow-origin")}
	if g.Token, err = guard.ReadToken(c); err != nil {
		return err
	}
	var web net.Listener
	var out *cli.Output
	if addr := c.String("http"); addr != "" {
		if out, err = c.Output([]cli.Column{{Head: "URL", Field: "mcp.url"}}, cli.Schema(map[string]any{"mcp": served{}}), nil); err != nil {
			return err
		}
		if web, err = guard.Listen(c, "http", addr); err != nil {
			return err
		}
		defer web.Close()
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	now := life.Signals(stop)
	signal.Ignore(syscall.SIGPIPE)
	owner.Watch(ctx, stop)
	co := coordinator.New(coordinator.Options{
		Children: children, Browsers: browsers, Release: cli.Release, CacheDir: cacheDir(c.Getenv, c.Home()), Detect: detect,
		Eager: c.Bool("eager"), Stderr: c.Messages, Log: c.Log,
	})
	end := func() {}
	if web != nil {
		r := record.New()
		r.MustSet("mcp", served{os.Getpid(), "http://" + web.Addr().String() + "/mcp"})
		if err = errors.Join(out.Write(r), out.Close()); err == nil {
			end = co.ServeHTTP(web, g, c.Log)
			<-ctx.Done()
		}
	} else {
		end = co.ServeStdio(ctx, c.Stdin, c.Stdout)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		end()
		co.Close()
	}()
	select {
	case <-ended:
	case <-now:
	case <-time.After(closeTimeout):
		c.Log.Warn("not everything has ended in time")
	}
	return err
}

// served is the member that --http prints.
type served struct {
	PID int    `json:"pid"`
	URL string `json:"url"`
}

// cacheDir is where the children's lists are kept, "" if nowhere.
func cacheDir(getenv func(string) string, home string) string {
	dir := getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(dir) {
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".cache")
	}
	return filepath.Join(dir, "btools")
}

// file is the configuration file.
type file struct {
	Child map[string]struct {
		Command []string `toml:"command"`
		MCP     string   `toml:"mcp"`
		Prefix  string   `toml:"prefix"`
	} `toml:"child"`
}

// children are those of -- CMD, else of --mcp and the file, else the default
// one.
func children(c *cli.Context) ([]coordinator.Child, error) {
	var all []coordinator.Child
	if c.Bool("no-child") {
		if c.Command != nil || c.IsSet("mcp") {
			return nil, c.UsageError("--no-child and a child exclude each other")
		}
		return nil, nil
	}
	if c.Command != nil {
		child, err := coordinator.ParseChild(c.Command[0])
		if err != nil {
			return nil, c.UsageError("the command after -- %v", err)
		}
		child.Argv = append(coordinator.Command(c.Command[:1]), c.Command[1:]...)
		all = append(all, child)
	}
	for _, spec := range c.StringSlice("mcp") {
		child, err := coordinator.ParseChild(spec)
		if err != nil {
			return nil, c.UsageError("--mcp %s: %v", spec, err)
		}
		all = append(all, child)
	}
	if path := c.String("config"); path != "" {
		var f file
		meta, err := toml.DecodeFile(path, &f)
		var pe toml.ParseError
		if errors.As(err, &pe) {
			err = fmt.Errorf("%s:%d:%d: %s", path, pe.Position.Line, pe.Position.Col, pe.Message)
		}
		if err != nil {
			return nil, cli.Errorf(cli.Config, "cannot read the configuration: %v", err)
		}
		if odd := meta.Undecoded(); len(odd) > 0 {
			return nil, cli.Errorf(cli.Config, "%s: unknown key %s: a [child.NAME] has command, mcp and prefix", path, odd[0])
		}
		var names []string
		for _, k := range meta.Keys() { // in the order of the file
			if len(k) == 2 && k[0] == "child" {
				names = append(names, k[1])
			}
		}
		for _, name := range names {
			fc := f.Child[name]
			if !coordinator.ValidName(name) {
				return nil, cli.Errorf(cli.Config, "%s: [child.%s]: a name is a letter and up to 19 letters, digits, _ and -", path, name)
			}
			child := coordinator.Child{Name: name, Argv: fc.Command, Prefix: fc.Prefix}
			if (len(fc.Command) == 0) == (fc.MCP == "") {
				return nil, cli.Errorf(cli.Config, "%s: [child.%s] has one of command and mcp", path, name)
			}
			if fc.MCP != "" {
				parsed, err := coordinator.ParseChild(fc.MCP)
				if err != nil {
					return nil, cli.Errorf(cli.Config, "%s: [child.%s] %v", path, name, err)
				}
				child.Argv = parsed.Argv
			}
			if fc.Prefix == "auto" {
				child.Prefix = coordinator.PrefixAuto
			} else if !slices.Contains([]string{coordinator.PrefixAuto, coordinator.PrefixAlways, coordinator.PrefixNever}, fc.Prefix) {
				return nil, cli.Errorf(cli.Config, "%s: prefix of [child.%s] is auto, always or never, not %q", path, name, fc.Prefix)
			}
			all = append(all, child)
		}
	}
	if len(all) == 0 {
		child, err := coordinator.ParseChild(coordinator.DefaultChild)
		if err != nil {
			return nil, err
		}
		all = append(all, child)
	}
	seen := map[string]bool{}
	for i := range all {
		base := all[i].Name
		for n := 2; seen[all[i].Name]; n++ {
			all[i].Name = fmt.Sprintf("%s%d", base, n)
		}
		seen[all[i].Name] = true
	}
	return all, nil
}

// browsers are those of pools, if there are such, else one.
func browsers(c *cli.Context) (coordinator.Browsers, error) {
	vars, handOn, err := variables(c)
	if err != nil {
		return nil, err
	}
	configured := c.String("pool-config") != "" || config.Configures(os.Environ(), vars...)
	if c.String("browser") == "webkit" && !configured { // which only children launch
		return coordinator.Left("webkit", !c.Bool("no-headless")), nil
	}
	o, err := options.FromFlags(c)
	if err != nil {
		return nil, err
	}
	store := c.State()
	level := c.String("log-level")
	if level == "info" {
		level = "warn" // their usual words are of no interest here
	}
	log := []string{"--log-level=" + level, "--log-format=" + c.String("log-format")}
	if configured {
		path := c.String("pool-config")
		sock, err := store.Socket(fmt.Sprintf("bmcp-%d", os.Getpid()))
		if err != nil {
			return nil, cli.StateError(err)
		}
		args := slices.Concat(log, []string{"--socket=" + sock, "--drain-timeout=0s"}, handOn)
		if path != "" {
			abs, err := filepath.Abs(path)
			if err != nil {
				return nil, err
			}
			args = append(args, "--config="+abs)
		}
		// That it is wrong is to be said before a host has come.
		if _, err := config.Load(config.Path(path, c.Getenv, c.Home()), os.Environ(), vars...); err != nil {
			return nil, cli.Errorf(cli.Config, "the configuration of the pools is not valid:\n%w", err)
		}
		return coordinator.Pooled(c.Messages, sock, args), nil
	}
	f, err := store.Read()
	if err != nil {
		return nil, cli.StateError(err)
	}
	for _, p := range f.Pools {
		if p.Process.Alive() && !c.Bool("no-pool") && o.Browser == "" {
			return coordinator.Pooled(c.Messages, p.Control, nil), nil
		}
	}
	if o.Browser == record.Firefox {
		return coordinator.Left(o.Browser, o.Headless == nil || *o.Headless), nil
	}
	return coordinator.Single(store, c.Messages, slices.Concat(log, o.Argv())), nil
}

// variables are those of --env-file, and the argument that hands it on to
// bpool.
func variables(c *cli.Context) (vars []envfile.Variable, handOn []string, err error) {
	path := c.String("env-file")
	if path == "" {
		return nil, nil, nil
	}
	if vars, err = envfile.Read(path); err != nil {
		return nil, nil, &cli.Error{Code: cli.Config, Err: err}
	}
	if !config.Configures(nil, vars...) {
		c.Log.Warn(path + " sets no variable of pools, which begin with " + config.Prefix)
	}
	path, err = filepath.Abs(path)
	return vars, []string{"--env-file=" + path}, err
}

// detect lists the installed browsers, by bfind.
func detect(ctx context.Context) ([]json.RawMessage, error) {
	path, err := launcher.Sibling("bfind")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, "--no-input", "--output=json", "--log-level=error")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == cli.Unavailable {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the browsers: %w", err)
	}
	var all []json.RawMessage
	for line := range bytes.Lines(out) {
		r, err := record.Parse(line)
		if err != nil {
			return nil, err
		}
		if raw := r.Raw("browser"); raw != nil {
			all = append(all, raw)
		}
	}
	return all, nil
}
