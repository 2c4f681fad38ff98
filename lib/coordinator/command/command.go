// Package command is what the commands of bmcp do.
package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/BurntSushi/toml"

	"btools/lib/agent/source"
	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/coordinator"
	"btools/lib/envfile"
	"btools/lib/exit"
	"btools/lib/flags"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/lifetime"
	"btools/lib/logins"
	statecommand "btools/lib/logins/command"
	"btools/lib/mcp/child"
	mcpfront "btools/lib/mcp/front"
	"btools/lib/pool/config"
	"btools/lib/record"
	"btools/lib/run"
	"btools/lib/secrets"
	"btools/lib/settings"
	"btools/lib/sibling"
	"btools/lib/state"
	"btools/lib/terminal"
	"btools/lib/tools"
	"btools/lib/wsl"
)

// closeTimeout is how long the end of everything may take: more than a child,
// bproxy or bpool may. What has not ended by then ends with bmcp, to which it
// is bound.
const closeTimeout = 40 * time.Second

// Run serves a host until its end of file, or until told to stop.
func Run(c *cli.Context) error {
	serves := false
	err := serve(c, &serves)
	if err != nil && !serves {
		tellHost(c, err)
	}
	return err
}

// serve notes whether it has begun to serve a host.
func serve(c *cli.Context, serves *bool) error {
	if args := c.Args(); len(args) > 0 {
		return c.UsageError("%q is not a command of bmcp: a child's command goes after --", args[0])
	}
	if err := conflicts(c); err != nil {
		return err
	}
	options, err := serverOptions(c, func(*source.Sharing) {})
	if err != nil {
		return err
	}
	owner, err := flags.ReadOwner(c)
	if err != nil {
		return err
	}
	port := &front.Front{Log: c.Log,
		Guard: guard.Guard{Origins: c.StringSlice("allow-origin"), Browsers: guard.NewBrowsers(c.State())}}
	if port.Guard.Tokens, err = flags.OpenTokens(c, nil); err != nil {
		return err
	}
	var web net.Listener
	var out *cli.Output
	if addr := c.String("http"); addr != "" {
		if out, err = c.Records(nil); err != nil {
			return err
		}
		if web, err = flags.Listen(c, "http", addr); err != nil {
			return err
		}
		defer web.Close()
	}
	ctx, stop, now := lifetime.Context()
	defer stop(nil)
	signal.Ignore(syscall.SIGPIPE)
	owner.Watch(ctx, stop)
	co := coordinator.New(options)
	*serves = true
	end := func() error { return nil }
	if web != nil {
		collectEarly()
		at := address{os.Getpid(), "http://" + web.Addr().String() + "/mcp"}
		if err = out.Print(nil, record.Of("mcp", at)); err == nil {
			end = mcpfront.HTTP(co, web, port, mcpfront.DefaultLimits)
			<-ctx.Done()
		}
	} else {
		if c.AtTerminal() {
			terminal.BackgroundReadsFail()
			c.Log.Info("speaks MCP on standard input, which is a terminal: a host is to run it " +
				"(bmcp config claude-code prints how)")
		}
		end = mcpfront.Stdio(ctx, co, c.Stdin, c.Stdout, mcpfront.DefaultLimits)
	}
	ended := make(chan error, 1)
	go func() {
		err := end()
		co.Close()
		ended <- err
	}()
	select {
	case unsaid := <-ended:
		err = cmp.Or(err, unsaid)
	case <-now:
	case <-time.After(closeTimeout):
		err = cmp.Or(err, fmt.Errorf("not everything has ended within %v: it ends with bmcp", closeTimeout))
	}
	return err
}

// serverOptions are those of the server that the flags describe; adjust changes how hosts share the one browser.
func serverOptions(c *cli.Context, adjust func(*source.Sharing)) (o coordinator.Options, err error) {
	o = coordinator.Options{Dir: project(c), Release: cli.Release(), CacheDir: cacheDir(c.Getenv, c.Home()),
		Detect: detect, Eager: c.Bool("eager"), NoBulk: c.Bool("no-bulk"),
		NoImages: c.String("image-responses") == "omit", AllFiles: c.Bool("allow-unrestricted-file-access"),
		ListPageTools: c.String("page-tools") == "list", SnapshotFiles: c.Bool("snapshot-files"),
		Stderr: c.Messages, Log: c.Log}
	o.States, _ = statecommand.Store(c) // without a directory there are none
	if o.Children, err = children(c); err != nil {
		return o, err
	}
	useLogins(c, o.Children)
	if o.Tools, err = toolNames(c, o.Children); err != nil {
		return o, err
	}
	o.Callable = callable(c)
	if o.Large, err = largeOf(c); err != nil {
		return o, err
	}
	if path := c.String("secrets"); c.IsSet("secrets") {
		if o.Secrets, err = secrets.Read(path); err != nil {
			return o, err
		}
		o.Stderr = o.Secrets.Writer(o.Stderr)
		o.Log = cli.NewLogger(o.Stderr, c.Name, c.String("log-level"), c.String("log-format"))
	}
	o.View = viewOf(c)
	o.Source, err = browsers(c, o.Children, adjust)
	return o, err
}

// collectEarly has memory collected when it has grown by half, and not only when it
// has doubled, unless GOGC says when: many sessions keep much, and what they leave
// besides is to be less. The collector takes little of the CPU even so.
func collectEarly() {
	const usual, early = 100, 50 // percent
	if was := debug.SetGCPercent(early); was != usual {
		debug.SetGCPercent(was)
	}
}

// conflicts refuses flags that make no sense together.
func conflicts(c *cli.Context) error {
	for name, needs := range map[string]string{"token-file": "http", "allow-origin": "http", "share-auth": "http"} {
		if c.IsSet(name) && !c.IsSet(needs) {
			return c.UsageError("--%s is for --%s", name, needs)
		}
	}
	for _, both := range [][2]string{{"no-child", "config"}, {"no-child", "eager"}, {"pool", "pool-config"},
		{"pool", "env-file"}, {"socket", "pool-config"}, {"socket", "env-file"}} {
		if c.IsSet(both[0]) && c.IsSet(both[1]) {
			return c.UsageError("--%s and --%s exclude each other", both[0], both[1])
		}
	}
	if how := c.String("image-responses"); how != "allow" && how != "omit" {
		return c.UsageError("--image-responses is allow or omit, not %q", how)
	}
	if which := c.String("page-tools"); !slices.Contains([]string{"tools", "list", "off"}, which) {
		return c.UsageError("--page-tools is tools, list or off, not %q", which)
	}
	if c.IsSet("http") && c.String("http") == "" {
		return c.UsageError("--http needs an address: HOST:PORT or PORT")
	}
	return nil
}

// Addresses are the records that --http prints.
var Addresses = &cli.Records{Columns: []cli.Column{{Head: "URL", Field: "mcp.url"}},
	Members: map[string]any{"mcp": address{}}}

// address is the member of such a record.
type address struct {
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
		URL     string   `toml:"url"`
		Prefix  string   `toml:"prefix"`
		// Of a child at a URL.
		Headers   map[string]string `toml:"headers"`
		TokenFile string            `toml:"token_file"`
	} `toml:"child"`
}

// children are those of -- CMD, else of --mcp and the file, else the default
// one.
func children(c *cli.Context) ([]child.Spec, error) {
	var all []child.Spec
	if c.Bool("no-child") {
		if c.Command != nil || c.IsSet("mcp") {
			return nil, c.UsageError("--no-child and a child exclude each other")
		}
		return nil, nil
	}
	if c.Command != nil {
		if err := there(c.Command); err != nil {
			return nil, err
		}
		all = append(all, child.Command("", c.Command))
	}
	for _, text := range c.StringSlice("mcp") {
		spec, err := child.Parse(text)
		if err != nil {
			if spec.URL != "" {
				text = spec.Shown() // without what may be secret
			}
			return nil, c.UsageError("--mcp %s: %v", text, err)
		}
		all = append(all, spec)
	}
	if path := c.String("config"); path != "" {
		named, err := childrenIn(path)
		if err != nil {
			return nil, err
		}
		all = append(all, named...)
	}
	if len(all) == 0 {
		text := child.Builtin
		if c.String("browser") == record.WebKit && !c.Bool("extension") {
			text = child.Playwright // which launches it
		}
		spec, err := child.Parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, spec)
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

// childrenIn returns the children of a configuration file, in its order.
func childrenIn(path string) (all []child.Spec, err error) {
	var f file
	meta, err := toml.DecodeFile(path, &f)
	var pe toml.ParseError
	if errors.As(err, &pe) {
		err = fmt.Errorf("%s:%d:%d: %s", path, pe.Position.Line, pe.Position.Col, pe.Message)
	}
	if err != nil {
		return nil, exit.Errorf(exit.Config, "cannot read the configuration: %v", err)
	}
	if odd := meta.Undecoded(); len(odd) > 0 {
		return nil, exit.Errorf(exit.Config, "%s: unknown key %s: a [child.NAME] has command, mcp, url, headers, "+
			"token_file and prefix", path, odd[0])
	}
	for _, k := range meta.Keys() {
		if len(k) != 2 || k[0] != "child" {
			continue
		}
		spec, err := f.child(path, k[1])
		if err != nil {
			return nil, err
		}
		all = append(all, spec)
	}
	return all, nil
}

// child returns the child of a table of the file.
func (f *file) child(path, name string) (spec child.Spec, err error) {
	fc := f.Child[name]
	bad := func(format string, args ...any) error {
		return exit.Errorf(exit.Config, "%s: [child.%s]%s", path, name, fmt.Sprintf(format, args...))
	}
	ways := 0
	for _, given := range []bool{len(fc.Command) > 0, fc.MCP != "", fc.URL != ""} {
		if given {
			ways++
		}
	}
	switch {
	case !child.ValidName(name):
		return spec, bad(": a name is a letter and up to 19 letters, digits, _ and -")
	case ways != 1:
		return spec, bad(" has one of command, mcp and url")
	case fc.URL == "" && (len(fc.Headers) > 0 || fc.TokenFile != ""):
		return spec, bad(": headers and token_file are for a url")
	case fc.URL != "":
		token := fc.TokenFile
		if token != "" && !filepath.IsAbs(token) { // beside the file that names it
			token = filepath.Join(filepath.Dir(path), token)
		}
		spec, err = child.Remote(name, fc.URL, fc.Headers, token)
	case fc.MCP != "":
		spec, err = child.Parse(fc.MCP)
		spec.Name = name
	default:
		if err := there(fc.Command); err != nil {
			return spec, fmt.Errorf("[child.%s] of %s: %w", name, path, err)
		}
		spec = child.Command(name, fc.Command)
	}
	if err != nil {
		return spec, bad(" %v", err)
	}
	switch spec.Prefix = child.Prefix(fc.Prefix); spec.Prefix {
	case "auto":
		spec.Prefix = child.PrefixAuto
	case child.PrefixAuto, child.PrefixAlways, child.PrefixNever:
	default:
		return spec, exit.Errorf(exit.Config, "%s: prefix of [child.%s] is auto, always or never, not %q", path, name,
			fc.Prefix)
	}
	return spec, nil
}

func isBuiltin(child child.Spec) bool { return child.Builtin }

// pageToolFeatures are those of Chromium by which pages declare tools, and their tools are called.
var pageToolFeatures = []string{"WebMCPTesting", "DevToolsWebMCPSupport"}

// toolNames are the tools that --tools chooses; nil: all.
func toolNames(c *cli.Context, children []child.Spec) ([]string, error) {
	selection, off := c.String("tools"), c.String("page-tools") == "off"
	if selection == "" && !off {
		return nil, nil
	}
	selection = cmp.Or(selection, "default")
	if !slices.ContainsFunc(children, isBuiltin) {
		if c.String("tools") == "" {
			return nil, nil
		}
		return nil, c.UsageError("--tools is for the child %s, which does not run", child.Builtin)
	}
	names, err := tools.Names(selection)
	if err != nil {
		return nil, c.UsageError("--tools: %v", err)
	}
	if off {
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(tools.PageTools(), name) })
	}
	return names, nil
}

// there says why a command can't be run as it is, nil if it can. From WSL,
// Node.js may be that of Windows.
func there(argv []string) error {
	_, err := run.Find(argv)
	if name := filepath.Base(argv[0]); (name == "node" || name == "npx") && wsl.Check(os.Getenv) == nil {
		return nil
	}
	return err
}

// choice is where browsers come from: a bpool service, pools that are
// configured, or else one browser.
type choice struct {
	service, configured bool
	vars                []envfile.Variable // of --env-file
	handOn              []string           // that to bpool
}

// choose reads the choice, and refuses what contradicts it.
func choose(c *cli.Context, environ []string) (ch choice, err error) {
	if ch.vars, ch.handOn, err = variables(c); err != nil {
		return ch, err
	}
	ch.service = c.Bool("pool") || c.IsSet("socket")
	path := c.String("pool-config")
	ch.configured = !ch.service && (path != "" || config.Configures(environ, ch.vars...))
	switch b := c.String("browser"); {
	case c.IsSet("cdp"), c.Bool("isolated"):
		err = checkCDP(c, ch)
	case c.Bool("extension"):
		err = checkExtension(c, ch)
	case ch.service:
		err = without(c, "the browsers of the service are as its configuration says")
	case ch.configured:
		err = without(c, "pools are configured, whose browsers are as bpool.toml(5) says")
	case b == record.WebKit: // which only children launch
		err = without(c, b+" is launched by the child", "browser", "headless", "no-headless")
	case b == record.Firefox:
		err = without(c, "a firefox has other options only in a pool", "browser", "headless", "no-headless")
	}
	if err == nil {
		err = checkState(c, ch)
	}
	if err != nil || !ch.configured {
		return ch, err
	}
	// That it is wrong is to be said before a host has come.
	if _, err := config.Load(config.Path(path, c.Getenv, c.Home()), environ, ch.vars...); err != nil {
		return ch, exit.Errorf(exit.Config, "the configuration of the pools is not valid:\n%w", err)
	}
	return ch, nil
}

// checkState refuses a state that cannot be used, before a host has come. That of a
// service is its own to look for.
func checkState(c *cli.Context, ch choice) error {
	if c.String("state") == "" {
		return nil
	}
	own := !ch.service && !ch.configured
	switch b := c.String("browser"); {
	case own && (b == record.Firefox || b == record.WebKit):
		return c.UsageError("--state needs a browser based on Chromium, not %s", b)
	case own && c.Bool("shared"):
		return c.UsageError("--state is for virtual browsers, of which there are none with --shared")
	case own && c.IsSet("profile"):
		return c.UsageError("--state takes the place of the profile: it cannot be used with --profile")
	}
	if err := logins.CheckName(c.String("state")); err != nil {
		return c.UsageError("--state: %v", err)
	}
	if ch.service {
		return nil
	}
	store, err := statecommand.Store(c)
	if err != nil {
		return err
	}
	_, err = store.Load(c.String("state"))
	return err
}

// browsers are those that are chosen.
func browsers(c *cli.Context, children []child.Spec, adjust func(*source.Sharing)) (*source.Source, error) {
	ch, err := choose(c, os.Environ())
	if err != nil {
		return nil, err
	}
	if c.Bool("extension") {
		return ofHub(c)
	}
	if c.IsSet("cdp") {
		return atEndpoint(c, adjust)
	}
	if (ch.service || ch.configured) && c.Getenv("BROWSER_TIMEOUT_MINUTES") != "" {
		c.Log.Warn("BROWSER_TIMEOUT_MINUTES has no effect on pools: IDLE stops their browsers")
	}
	if ch.service {
		return served(c)
	}
	if c.String("browser") == record.WebKit && !ch.configured {
		return left(c, record.WebKit, !c.Bool("no-headless")), nil
	}
	o, err := flags.ReadBrowser(c)
	if err != nil {
		return nil, err
	}
	if c.String("page-tools") != "off" && slices.ContainsFunc(children, isBuiltin) && !c.Bool("no-default-args") {
		// blaunch merges it with others of that name
		o.Args = append(slices.Clone(o.Args), "--enable-features="+strings.Join(pageToolFeatures, ","))
	}
	store := c.State()
	log := flags.Quieter(c)
	leaves := slices.ContainsFunc(children, func(child child.Spec) bool { return !child.Builtin && child.URL == "" })
	ownFirefox := o.Browser == record.Firefox && !leaves
	if ch.configured || ownFirefox {
		path := c.String("pool-config")
		sock, err := store.Socket(fmt.Sprintf("bmcp-%d", os.Getpid()))
		if err != nil {
			return nil, state.Explain(err)
		}
		args := slices.Concat(log, []string{"--socket=" + sock, "--drain-timeout=0s"}, ch.handOn)
		if ownFirefox && !ch.configured {
			args = append(args, firefoxes(o.IsHeadless())...)
		} else if leaves {
			args = append(args, "--leave="+record.Firefox) // which others launch themselves
		}
		if path != "" {
			abs, err := filepath.Abs(path)
			if err != nil {
				return nil, err
			}
			args = append(args, "--config="+abs)
		}
		return source.Pooled(store, c.Messages, args, c.String("state")), nil
	}
	if f, err := store.Read(); err != nil {
		return nil, state.Explain(err)
	} else if shared, _ := client.RunningPools(context.Background(), f); len(shared) > 0 {
		c.Log.Info("the browser is bmcp's own; --pool uses the bpool service that runs")
	}
	if o.Browser == record.Firefox {
		return left(c, o.Browser, o.IsHeadless()), nil
	}
	how, err := sharing(c)
	if err != nil {
		return nil, err
	}
	adjust(&how)
	return source.Proxied(store, c.Messages, slices.Concat(log, o.Argv()), how), nil
}

// firefoxes are the arguments of bpool for a Firefox for each host, launched when it is
// needed: Firefox has one session at a time.
func firefoxes(headless bool) (args []string) {
	for _, set := range []string{"__FIREFOX_INSTANCES=16", "_BROWSER=firefox", "_START=lazy", "_IDLE=10m",
		"_ISOLATED=true", fmt.Sprint("_HEADLESS=", headless)} {
		args = append(args, "--variable=PW_MCP_PROXY"+set)
	}
	return args
}

// virtualFlags returns the flags of virtual browsers but --state, which a pool has, too.
func virtualFlags() []string {
	return slices.DeleteFunc(settings.Flags(settings.Agent), func(name string) bool {
		return name == "state" || name == "idle"
	})
}

// sharing returns how hosts share the one browser.
func sharing(c *cli.Context) (how source.Sharing, err error) {
	how = source.Sharing{Kind: source.ProfileAndSessions, Hosts: mcpfront.DefaultLimits.Sessions}
	if how.Settings, err = flags.ReadSettings(c, settings.Agent); err != nil {
		return how, err
	}
	idleIsSet, browserIdleIsSet := c.IsSet("session-idle"), c.IsSet("idle")
	if text := c.Getenv("BROWSER_TIMEOUT_MINUTES"); text != "" && !(idleIsSet && browserIdleIsSet) {
		minutes, err := strconv.ParseFloat(text, 64)
		if err != nil || !(minutes >= 0 && minutes <= maxIdleMinutes) {
			return how, c.UsageError("BROWSER_TIMEOUT_MINUTES is a number of minutes, not %q", text)
		}
		given := time.Duration(minutes * float64(time.Minute))
		if !idleIsSet {
			how.SessionIdle, idleIsSet = given, true
		}
		if !browserIdleIsSet {
			how.Idle, browserIdleIsSet = given, true
		}
	}
	if how.Hibernate > 0 {
		lastHibernated(&how, idleIsSet, browserIdleIsSet)
	} else if !c.IsSet("idle") && c.IsSet("session-idle") && (how.SessionIdle == 0 || how.SessionIdle > how.Idle) {
		how.Idle = how.SessionIdle // the end of the browser would be the end of its virtual browsers
	}
	switch {
	case c.Bool("shared") && slices.ContainsFunc(virtualFlags(), c.IsSet):
		return how, c.UsageError("--%s are for virtual browsers, which there are none of with --shared",
			strings.Join(virtualFlags(), ", --"))
	case c.Bool("shared"):
		how.Kind = source.SharedProfile
	case c.Bool("isolated"), c.IsSet("http") && !c.IsSet("cdp"):
		how.Kind = source.SessionsOnly
	}
	if dir := project(c); dir != "" && !c.IsSet("upload-root") {
		how.UploadRoots = []string{dir}
	}
	return how, checkHibernate(c, how)
}

// project is the host's project: the working directory. Many hosts that have no
// project start bmcp in the home directory or in the root: that is no choice of
// files, and would give away every key of the user. It is "" then.
func project(c *cli.Context) string {
	dir, err := c.WorkDir()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil || holds(dir, c.Home()) {
		return ""
	}
	return dir
}

// holds reports whether a directory is the root, the home directory, or above
// that.
func holds(dir, home string) bool {
	if filepath.Dir(dir) == dir {
		return true
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	below, err := filepath.Rel(dir, home)
	return err == nil && filepath.IsLocal(below)
}

// maxIdleMinutes is a year.
const maxIdleMinutes = 365 * 24 * 60

// left leaves the browser to the children, and tells which one they need.
func left(c *cli.Context, browser string, headless bool) *source.Source {
	note := child.PlaywrightNote(browser)
	c.Log.Info(note)
	return source.ChildLaunched(browser, headless, note)
}

// without refuses the options of a browser that would have no effect.
func without(c *cli.Context, why string, but ...string) error {
	for _, name := range slices.Concat(settings.Flags(settings.Launches), virtualFlags(), []string{"shared", "idle"}) {
		if c.Given(name) && !slices.Contains(but, name) {
			return c.UsageError("--%s has no effect: %s", name, why)
		}
	}
	return nil
}

// served returns the browsers of the bpool service that runs.
func served(c *cli.Context) (*source.Source, error) {
	service := client.Pool{Store: c.State(), Socket: client.PoolSocket(c.String("socket"), c.Getenv), Log: c.Log}
	// Report a missing service or state now, before a host connects.
	conn, err := service.Dial(context.Background())
	if err != nil {
		return nil, err
	}
	conn.Close()
	name := c.String("state")
	if name != "" {
		_, err := api.StateGet.Ask(context.Background(), service, api.StateRequest{Name: name})
		if err != nil {
			return nil, err
		}
	}
	return source.Served(func(ctx context.Context) (*control.Client, error) {
		return service.Await(ctx, client.StartWait) // it may be restarted
	}, name), nil
}

// variables are those of --env-file, and the argument that hands it on to
// bpool.
func variables(c *cli.Context) (vars []envfile.Variable, handOn []string, err error) {
	path := c.String("env-file")
	if vars, err = config.ReadVariables(path, c.Log); err != nil || path == "" {
		return nil, nil, err
	}
	path, err = filepath.Abs(path)
	return vars, []string{"--env-file=" + path}, err
}

// detect lists the installed browsers, by bfind.
func detect(ctx context.Context) ([]json.RawMessage, error) {
	path, err := sibling.Sibling("bfind")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, "--no-input", "--output=json", "--log-level=error")
	out, err := cmd.Output()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() == exit.Unavailable {
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
