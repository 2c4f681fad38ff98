package command

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/agent/source"
	"btools/lib/agent/toolline"
	"btools/lib/background"
	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/coordinator"
	"btools/lib/exit"
	"btools/lib/flags"
	"btools/lib/jsonrpc"
	"btools/lib/lifetime"
	"btools/lib/mcp/child"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/register"
	"btools/lib/results"
	"btools/lib/settings"
	"btools/lib/shell"
	"btools/lib/shell/relay"
	"btools/lib/shellwords"
	"btools/lib/state"
	"btools/lib/terminal"
	"btools/lib/tools"
)

// Service runs the service of bmcp call, until no session is left.
func Service(c *cli.Context) error {
	ctx, stop, now := lifetime.Context()
	defer stop(nil)
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	store := c.State()
	if len(c.Args()) != 1 {
		return c.UsageError("call runs it, and names its socket")
	}
	path, err := store.Socket(c.Args()[0])
	if err != nil {
		return state.Explain(err)
	}
	var s *shell.Service
	s = &shell.Service{Release: cli.Release(), Stop: func() { stop(nil) }, Path: path,
		Run:    func(ctx context.Context, r relay.Request) (*relay.Answer, error) { return runHere(ctx, s, r) },
		Memory: memoryOf(store), Keep: store.KeptCalls(),
		Settle: func(ctx context.Context, service proc.Identity) { awaitProxies(ctx, store, service.PID) },
		Open:   func(options []string) (shell.Server, error) { return open(c, options) }}
	entry := state.CallService{Process: proc.Self(), Control: path}
	reg := &register.Service{Store: store, Path: path, Shared: true, Log: c.Log, Linger: time.Second,
		Entry: func() state.Service { return entry }}
	if err := reg.Open(ctx); err != nil {
		return err
	}
	reg.Serve(s.Methods().Serve)
	fmt.Fprintln(c.Stdout, background.Ready)
	<-ctx.Done()
	s.Quit()
	ended := make(chan error, 1)
	go func() {
		err := reg.Close()
		s.Close()
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-now:
	}
	return err
}

// memoryOf returns the file in which the services note their sessions.
func memoryOf(store *state.Store) string {
	return filepath.Join(filepath.Dir(store.Path()), "calls.json")
}

// endBound is how long the proxies of a service that was killed may take to end.
const endBound = 10 * time.Second

// awaitProxies waits until the proxies of a bmcp that was killed have ended: they save its sessions once more.
func awaitProxies(ctx context.Context, store *state.Store, pid int) {
	for end := time.Now().Add(endBound); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		all, err := client.Any.All(store)
		owned := func(p client.Proxy) bool { return p.Owner == source.OwnerOf(pid) }
		if err != nil || !slices.ContainsFunc(all, owned) {
			return
		}
	}
}

// open opens a server for the sessions that start with these options.
func open(c *cli.Context, options []string) (shell.Server, error) {
	if at, err := elsewhere(options); err != nil {
		return nil, err
	} else if at != nil {
		useLogins(c, at)
		return shell.At(&at[0]), nil
	}
	var co *coordinator.Server
	err := c.Parse(options, func(c *cli.Context) error {
		o, err := serverOptions(c, func(how *source.Sharing) {
			if how.Kind != source.SharedProfile {
				how.Kind, how.Hibernate, how.SessionIdle = source.SessionsOnly, shell.Hibernate, shell.Idle
				how.UploadRoots = []string{"/"} // the tools have bounds of their own
				how.Keep = c.State().KeptCalls()
			}
		})
		if err == nil {
			o.Large.OfAll = true // as each call asks
			o.Tools = o.Callable // a shell pays nothing for those that it does not call
			co = coordinator.New(o)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return shell.Here(co), nil
}

// callable returns the tools of builtin that may be called, listed or not.
func callable(c *cli.Context) []string {
	all, _ := tools.Names("all") // which is a group
	if c.String("page-tools") == "off" {
		all = slices.DeleteFunc(all, func(name string) bool { return slices.Contains(tools.PageTools(), name) })
	}
	return all
}

// elsewhere returns the server at a URL whose tools a session with these options has; nil: it has those of bmcp here.
func elsewhere(options []string) ([]child.Spec, error) {
	if len(options) == 0 || !strings.HasPrefix(options[0], "--url=") {
		return nil, nil
	}
	at, token := strings.TrimPrefix(options[0], "--url="), ""
	if len(options) > 1 {
		token = strings.TrimPrefix(options[1], "--token-file=")
	}
	spec, err := child.Remote("", at, nil, token)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--url %s: %v", spec.Shown(), err)
	}
	return []child.Spec{spec}, nil
}

// atURL returns the options of a session that has the tools of a server at a URL.
func atURL(c *cli.Context) ([]string, error) {
	for _, name := range sessionOptions() {
		if c.Given(name) {
			return nil, c.UsageError("--%s has no effect on a session at --url", name)
		}
	}
	options := []string{"--url=" + c.String("url")}
	if c.IsSet("token-file") {
		path, err := c.Abs(c.String("token-file"))
		if err != nil {
			return nil, err
		}
		options = append(options, "--token-file="+path)
	}
	_, err := elsewhere(options)
	return options, err
}

// sessionOptions returns the options of bmcp with which a session of bmcp call starts.
func sessionOptions() []string {
	ofSessions := settings.Flags(settings.Request)
	names := slices.DeleteFunc(settings.Flags(settings.Agent), func(name string) bool {
		return !slices.Contains(ofSessions, name) || name == "upload-root" || name == "download-root" // all are
	})
	return slices.Concat(names, settings.Flags(settings.Launches), []string{"mcp", "config", "extension", "cdp",
		"isolated", "pool", "socket", "pool-config", "env-file", "allow-unrestricted-file-access", "image-responses",
		"page-tools", "secrets"})
}

// CallFlags returns the flags of bmcp with which a session of bmcp call can start.
func CallFlags() []ucli.Flag {
	names := sessionOptions()
	return slices.DeleteFunc(ServerFlags(), func(f ucli.Flag) bool { return !slices.Contains(names, f.Names()[0]) })
}

// target returns the session that a command is for.
func target(c *cli.Context) (t shell.Target, err error) {
	t = shell.Target{Session: c.String("session"), Release: cli.Release()}
	if t.Session != "" || c.Given("session") {
		if err := source.CheckSession("--session", t.Session); err != nil {
			return t, c.UsageError("%v", err)
		}
	}
	if c.IsSet("bind-pid") {
		o, err := flags.ReadOwner(c)
		if err != nil {
			return t, err
		}
		t.Owner = o.PID
	}
	if c.IsSet("url") {
		t.Given = true
		t.Options, err = atURL(c)
		return t, err
	}
	if c.IsSet("token-file") {
		return t, c.UsageError("--token-file is for --url")
	}
	for _, name := range sessionOptions() {
		if !c.IsSet(name) || c.IsSet("cdp") && !c.Given(name) { // a variable is for a browser that is launched
			continue
		}
		t.Given = t.Given || c.Given(name)
		values := []string{c.String(name)}
		switch v := c.Value(name).(type) {
		case ucli.StringSlice:
			values = v.Value()
		case bool:
			if !v {
				continue
			}
		}
		for _, v := range values {
			if name == "cdp" {
				at, err := source.ParseEndpoint(v)
				if err != nil {
					return t, c.UsageError("--cdp: %v", err)
				}
				v = at.URL
			}
			if slices.Contains([]string{"config", "socket", "pool-config", "env-file", "profile", "secrets",
				"init-script"}, name) ||
				name == "browser" && strings.ContainsRune(v, filepath.Separator) {
				if v, err = c.Abs(v); err != nil {
					return t, err
				}
			}
			t.Options = append(t.Options, "--"+name+"="+v)
		}
	}
	if c.IsSet("profile") || c.IsSet("cdp") && !c.Bool("isolated") {
		t.Options = append(t.Options, "--shared")
	}
	if c.Bool("pool") && !c.IsSet("socket") {
		if path := client.PoolSocket("", c.Getenv); path != "" { // the service has an environment of its own
			if path, err = c.Abs(path); err != nil {
				return t, err
			}
			t.Options = append(t.Options, "--socket="+path)
		}
	}
	return t, nil
}

// around returns the surroundings of a session with these options.
func around(env *cli.Env, options []string) (relay.Around, error) {
	programs := slices.ContainsFunc(options, func(option string) bool {
		name, value, _ := strings.Cut(option, "=")
		return name == "--mcp" || name == "--config" || name == "--browser" && value == record.WebKit
	})
	dir, err := env.WorkDir()
	if err != nil && programs {
		return relay.Around{}, err
	}
	return relay.AroundCall(env.Environ(), dir, programs), nil
}

// callClient makes calls on the session of a target, which it tells where the session begins. With start, it starts the
// service if none runs.
func callClient(c *cli.Context, t *shell.Target, start bool) (*shell.Client, error) {
	a, err := around(c.Env, t.Options)
	if err != nil {
		return nil, err
	}
	name := a.Socket()
	t.Own = c.State().SocketPath(name)
	cl := &shell.Client{Store: c.State(), Own: t.Own}
	if start {
		cl.Start = func() (*exec.Cmd, error) {
			cmd, err := background.Command("bmcp", "calls", "--log-level="+c.String("log-level"), name)
			if err != nil {
				return nil, err
			}
			cmd.Dir, cmd.Env = a.Dir, append(a.Env, "BTOOLS_STATE="+c.State().Path())
			return cmd, nil
		}
	}
	return cl, nil
}

// caller makes calls: a *shell.Client, or the service itself.
type caller interface {
	Do(ctx context.Context, method string, params, result any) error
}

// Call runs a tool, and prints its result.
func Call(c *cli.Context) error {
	err := error(errNotHere)
	if p := relay.Take(); p != nil {
		err = resume(p)
	}
	if errors.Is(err, errNotHere) {
		err = call(c, func(t *shell.Target) (caller, func(), error) {
			cl, err := callClient(c, t, true)
			if err != nil {
				return nil, nil, err
			}
			return cl, cl.Close, nil
		})
	}
	var signal *lifetime.Interrupted
	if errors.As(err, &signal) {
		return exit.Status(exit.Signalled + int(signal.Signal))
	}
	return err
}

// call runs a tool by the caller for its target.
func call(c *cli.Context, by func(*shell.Target) (caller, func(), error)) error {
	args := c.Args()
	switch {
	case c.Bool("batch") && len(args) > 0:
		return c.UsageError("--batch reads the tools from standard input")
	case c.Bool("bail") && !c.Bool("batch"):
		return c.UsageError("--bail is for --batch")
	case c.Bool("once") && (c.Bool("batch") || c.Given("session") || c.Given("bind-pid")):
		return c.UsageError("--once has a session of its own: --batch, --session and --bind-pid exclude it")
	case len(args) == 0 && !c.Bool("batch"):
		return c.UsageError("name a tool: bmcp call --help lists them")
	}
	f, err := form(c)
	if err != nil {
		return err
	}
	switch {
	case c.Bool("batch") && (f.Value || c.IsSet("output")):
		return c.UsageError("--batch prints JSON: --save, --raw, --json and --output have no effect on it")
	case c.Bool("once") && (f.Value || f.Snapshot || c.IsSet("output") || c.IsSet("max-inline")):
		return c.UsageError("of --once each command has its own options for its result: 'get_markdown --raw'")
	}
	t, err := target(c)
	if err != nil {
		return err
	}
	if c.Bool("once") {
		self := proc.Self()
		t.Session, t.Owner = "", &self
	}
	ctx, stop := context.WithCancelCause(cmp.Or(c.Caller, context.Background()))
	defer stop(nil)
	if c.Caller == nil {
		lifetime.Signals(stop)
	}
	cl, end, err := by(&t)
	if err != nil {
		return err
	}
	defer end()
	r := shell.Request{Target: t, Dir: project(c), Form: f}
	if !utf8.ValidString(r.Dir) {
		r.Dir, r.DirBytes = "", []byte(r.Dir)
	}
	switch {
	case c.Bool("batch"):
		return batch(ctx, c, cl, r)
	case c.Bool("once"):
		return once(ctx, c, cl, r, args)
	}
	return one(ctx, c, cl, r, args)
}

// form returns how much of a result is printed: to a terminal all, and elsewhere a beginning, as somebody who pays for
// each word may read it.
func form(c *cli.Context) (f results.Form, err error) {
	const most = 8 << 10
	var alone []string
	for _, name := range []string{"save", "raw", "json", "output"} {
		if c.IsSet(name) {
			alone = append(alone, "--"+name)
		}
	}
	f.Command = "bmcp call"
	for _, name := range []string{"session", "bind-pid"} {
		if c.IsSet(name) {
			f.Command += " --" + name + " " + c.String(name)
		}
	}
	f.JSON, f.Snapshot = c.Bool("json"), c.Bool("snapshot")
	f.Value = f.JSON || c.Bool("raw") || c.IsSet("save")
	switch text := c.String("max-inline"); {
	case len(alone) > 1:
		return f, c.UsageError("%s exclude each other", strings.Join(alone, " and "))
	case c.IsSet("save") && c.String("save") == "":
		return f, c.UsageError("--save needs a file, or - for standard output")
	case c.IsSet("field"):
		return f, c.UsageError("--field is for records: --raw prints the value of a result alone")
	case f.Value && (text != "" || f.Snapshot):
		return f, c.UsageError("--save, --raw and --json are for the whole result alone: --max-inline and --snapshot " +
			"have no effect on it")
	case text != "":
		if f.Text, err = parseSize(text); err != nil {
			return f, c.UsageError("--max-inline: %v", err)
		}
	case !f.Value && !terminal.Is(c.Stdout):
		f.Text = most
	}
	if c.Bool("batch") || c.String("output") == "json" { // data is text there
		f.Data = f.Text
	}
	return f, nil
}

// once makes the calls of command lines, until one fails, in a session that ends then, or with this process.
func once(ctx context.Context, c *cli.Context, cl caller, r shell.Request, lines []string) (err error) {
	defer func() {
		var ended shell.Ended
		cl.Do(context.WithoutCancel(ctx), "end", shell.EndRequest{Target: r.Target}, &ended)
	}()
	for _, line := range lines {
		words, err := shellwords.Split(line)
		if err != nil {
			return c.UsageError("cannot read %q: %v", line, err)
		}
		if err = c.Again(append([]string{"--once"}, words...), func(c *cli.Context) error {
			t, err := target(c)
			if err == nil && (t.Given || c.Bool("batch") || c.Given("session") || c.Given("bind-pid")) {
				err = c.UsageError("options of the session and of calls stand before the commands of --once: %q", line)
			}
			if err == nil && len(c.Args()) == 0 {
				err = c.UsageError("there is no tool in a command of --once: %q", line)
			}
			if err != nil {
				return err
			}
			if r.Form, err = form(c); err != nil {
				return err
			}
			return one(ctx, c, cl, r, c.Args())
		}); err != nil {
			return err
		}
	}
	return nil
}

// one makes one call, or two of a picture or PDF of a page at a URL.
func one(ctx context.Context, c *cli.Context, cl caller, r shell.Request, args []string) error {
	if n := c.After(); n > 0 && n < len(args) {
		args = slices.Insert(slices.Clone(args), len(args)-n, "--")
	}
	save, cut := c.String("save"), r.Form
	if c.Bool("once") { // nobody can ask for the rest
		r.Form.Text, r.Form.Data = 0, 0
	}
	if page := readShot(args); page != nil {
		switch {
		case save != "" && page.file != "":
			return c.UsageError("%s is to be written to %s and to --save %s", args[0], page.file, save)
		case page.file != "" && (c.Bool("json") || c.String("output") == "json"):
			return c.UsageError("%s is to be written to %s, and not to be printed as JSON", args[0], page.file)
		}
		open := r // what it says of the page is for the next call
		open.Tool, open.Words = "navigate", []string{page.url}
		open.Form = results.Form{Command: r.Form.Command, Value: true}
		a, err := do(ctx, c, cl, open)
		if err != nil {
			return err
		}
		if string(jsonrpc.Get(a.Result, "isError")) == "true" {
			return show(c, "navigate", save, a.Result)
		}
		if bytes.Contains(a.Result, []byte("is a file, which is downloaded: the page before it")) {
			return exit.Errorf(exit.Failed, "%s is a file, which is downloaded: no page is open to be saved", page.url)
		}
		args, save, r.Form.Value = page.args, cmp.Or(save, page.file), r.Form.Value || page.file != ""
	}
	r.Tool, r.Words = args[0], args[1:]
	if c.Dash() {
		if len(r.Words) > 0 {
			return c.UsageError("- reads all arguments from standard input, so there are no others")
		}
		var err error
		if r.Arguments, err = io.ReadAll(c.Stdin); err != nil {
			return cli.InputError(err)
		}
		if !json.Valid(r.Arguments) {
			return exit.Errorf(exit.Data, "standard input is not a JSON object")
		}
	}
	a, err := do(ctx, c, cl, r)
	if err != nil {
		return err
	}
	if c.Bool("once") {
		a.Result = cut.Cut(a.Result)
	}
	return show(c, args[0], save, a.Result)
}

// shot is a picture or PDF of a page.
type shot struct {
	url, file string   // where it is written to; "": as another result
	args      []string // of the call that makes it
}

// readShot reads TOOL URL [FILE] [ARGUMENT…], nil if it is another call.
func readShot(args []string) *shot {
	if len(args) < 2 || !slices.Contains([]string{"screenshot", "take_screenshot", "pdf", "pdf_save"},
		strings.TrimPrefix(args[0], "browser_")) || !strings.Contains(args[1], "://") {
		return nil
	}
	s := &shot{url: args[1], args: append([]string{args[0]}, args[2:]...)}
	if len(args) > 2 && args[2] != "--" && !strings.Contains(args[2], "=") {
		s.file, s.args = args[2], append([]string{args[0]}, args[3:]...)
	}
	kind := strings.TrimPrefix(strings.ToLower(filepath.Ext(s.file)), ".")
	if kind == "jpg" {
		kind = "jpeg"
	}
	if kind == "jpeg" || kind == "webp" {
		s.args = append(s.args, "type="+kind)
	}
	return s
}

// do makes a call, and tells its notes.
func do(ctx context.Context, c *cli.Context, cl caller, r shell.Request) (a shell.Answer, err error) {
	if err = cl.Do(ctx, "call", r, &a); err != nil {
		return a, err
	}
	for _, note := range a.Notes {
		c.Log.Warn(note)
	}
	return a, nil
}

// batch makes the calls of standard input, a line each, and prints a line for each.
func batch(ctx context.Context, c *cli.Context, cl caller, r shell.Request) error {
	lines := bufio.NewReaderSize(c.Stdin, 64<<10)
	out := bufio.NewWriter(c.Stdout)
	var failed, ended error
	for n := 1; ended == nil && ctx.Err() == nil; n++ {
		var line string
		var tooLong bool
		next := make(chan struct{})
		go func() {
			defer close(next)
			line, tooLong, ended = readLine(lines)
		}()
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		r.Line = strings.TrimSpace(line)
		if r.Line == "" || r.Line[0] == '#' {
			continue
		}
		var a shell.Answer
		var err error
		if tooLong || !fits(r) {
			err = exit.Errorf(exit.Usage, "line %d is too long: a call has at most %d bytes", n, control.MaxLine)
		} else {
			a, err = do(ctx, c, cl, r)
		}
		result := a.Result
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			result, _ = json.Marshal(map[string]any{"error": control.ErrorOf(err)})
		} else if string(jsonrpc.Get(result, "isError")) == "true" {
			code, _ := strconv.Atoi(string(jsonrpc.Get(result, "_meta", results.MetaExit)))
			err = exit.Status(cmp.Or(code, exit.Failed))
		}
		out.Write(append(result, '\n'))
		if err := out.Flush(); err != nil {
			return err
		}
		if err != nil {
			failed = exit.Status(codeOf(err))
			if c.Bool("bail") {
				break
			}
		}
	}
	if ended != nil && ended != io.EOF && failed == nil {
		return cli.InputError(ended)
	}
	return failed
}

// fits reports whether a request is one that the service reads.
func fits(r shell.Request) bool {
	const around = 100 // bytes of its number and method
	b, err := json.Marshal(r)
	return err == nil && len(b)+around <= control.MaxLine
}

// readLine reads a line, of one that is too long the beginning. The last one comes with an error, io.EOF at the end.
func readLine(r *bufio.Reader) (line string, tooLong bool, err error) {
	var b []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(b) <= control.MaxLine {
			b = append(b, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return string(b), len(b) > control.MaxLine, err
		}
	}
}

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	var e *exit.Error
	var status exit.Status
	switch {
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &e):
		return e.Code
	}
	return exit.Failed
}

// SessionRecords are the records of the sessions of bmcp call.
var SessionRecords = &cli.Records{Columns: []cli.Column{{Head: "NAME", Field: "session.name"},
	{Head: "OWNER", Field: "session.owner.name"},
	{Head: "PID", Field: "session.owner.pid"}, {Head: "TABS", Field: "session.tab_count"},
	{Head: "IDLE", Field: "session.idle_seconds", Show: cli.Seconds},
	{Head: "KEPT", Field: "session.kept_at", Show: cli.Clock, Spare: 1}, {Head: "TITLE", Field: "session.title"},
	{Head: "URL", Field: "session.url"}}, Members: map[string]any{"session": shell.Session{}}}

// sessionsOf gives a function the sessions of bmcp call, and those that a service has left which was killed.
func sessionsOf(ctx context.Context, store *state.Store, take func([]shell.Session)) error {
	err := shell.All(ctx, store, "sessions", nil, take)
	take(shell.Left(memoryOf(store), store.KeptCalls()))
	if errors.Is(err, shell.ErrNoService) {
		return nil
	}
	return err
}

// Sessions lists the sessions of bmcp call.
func Sessions(c *cli.Context) error {
	ctx, stop, _ := lifetime.Context()
	defer stop(nil)
	var rs []*record.Record
	failed := sessionsOf(ctx, c.State(), func(all []shell.Session) {
		for _, s := range all {
			rs = append(rs, record.Of("session", s))
		}
	})
	return errors.Join(failed, c.Out.Print(nil, rs...))
}

// End ends sessions of bmcp call.
func End(c *cli.Context) error {
	args := c.Args()
	if len(args) > 1 || len(args) == 1 && (c.Bool("all") || c.IsSet("session")) {
		return c.UsageError("give a session, --all, or nothing for your own session")
	}
	t, err := target(c)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		if err := source.CheckSession("the name of a session", args[0]); err != nil {
			return c.UsageError("%v", err)
		}
		t.Session = args[0]
	} else if c.Bool("all") {
		t.Session = ""
	}
	ctx, stop, _ := lifetime.Context()
	defer stop(nil)
	var ended shell.Ended
	err = shell.ErrNoService
	if c.Bool("all") {
		err = shell.All(ctx, c.State(), "end", shell.EndRequest{Target: t, All: true}, func(here shell.Ended) {
			ended.Sessions += here.Sessions
		})
	}
	if errors.Is(err, shell.ErrNoService) { // one is started for what another has left that was killed
		cl, failed := callClient(c, &t, shell.HasLeft(memoryOf(c.State())))
		if failed != nil {
			return failed
		}
		defer cl.Close()
		err = cl.Do(ctx, "end", shell.EndRequest{Target: t, All: c.Bool("all")}, &ended)
	}
	switch {
	case errors.Is(err, shell.ErrNoService) && t.Session != "":
		return exit.Errorf(exit.Unavailable, "there is no session named %s", t.Session)
	case errors.Is(err, shell.ErrNoService), err == nil && ended.Sessions == 0:
		c.Log.Info("there is no session to end")
		return nil
	}
	return err
}

// CallHelp returns what --help says of a tool, or which tools there are.
func CallHelp(env *cli.Env, words []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	all := sessionTools(ctx, env).Tools
	if len(words) == 0 {
		return toolGroups(all), nil
	}
	tool, err := toolline.Of(all).Find(words[0])
	return tool.Help(), err
}

// toolGroups lists tools, those for browsing first.
func toolGroups(all []json.RawMessage) string {
	const rest, other = "large results", "other"
	builtin, _ := tools.Names("all") // which is a group
	groups := map[string][]json.RawMessage{}
	for _, tool := range all {
		name := jsonrpc.GetString(tool, "name")
		group := tools.GroupOf(name)
		switch {
		case slices.Contains(coordinator.Readers(), name):
			group = rest
		case !slices.Contains(builtin, name):
			group = other
		}
		groups[group] = append(groups[group], tool)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Tools:\n%s", toolline.List(groups[""], toolline.Width))
	for _, name := range slices.Concat([]string{rest}, tools.Groups(), []string{other}) {
		if groups[name] != nil {
			fmt.Fprintf(&b, "\nTools, %s:\n%s", name, toolline.List(groups[name], toolline.Width))
		}
	}
	return b.String()
}

// completeTimeout is how long a service may take to say which tools its session has.
const completeTimeout = time.Second

// sessionTools returns the tools of the caller's session, or those that a new one has.
func sessionTools(ctx context.Context, env *cli.Env) (t shell.Tools) {
	a, _ := around(env, nil)
	store := state.Open(env.Getenv)
	cl := &shell.Client{Store: store, Own: store.SocketPath(a.Socket())}
	defer cl.Close()
	target := shell.Target{Session: env.Getenv("BTOOLS_SESSION"), Release: cli.Release(), Own: cl.Own}
	if err := cl.Do(ctx, "tools", target, &t); err != nil || t.Tools == nil {
		all, _ := tools.Names("all") // which is a group
		t.Tools = slices.Concat(tools.List(all), coordinator.ListReaders())
	}
	return t
}
