// Package command is what the commands of blaunch do.
package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/exit"
	"btools/lib/find"
	"btools/lib/flags"
	"btools/lib/launch"
	"btools/lib/lifetime"
	"btools/lib/logins"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/run"
	runcommand "btools/lib/run/command"
	"btools/lib/state"
	"btools/lib/systemd"
)

// Browsers are the records of browsers that run.
var Browsers = &cli.Records{Columns: []cli.Column{
	{Head: "ID", Field: "instance.id"}, {Head: "BROWSER", Field: "browser.type"},
	{Head: "VERSION", Field: "browser.version", Spare: 2},
	{Head: "PID", Field: "instance.pid", Spare: 1}, {Head: "ENDPOINT", Field: "instance.http_url"},
	{Head: "AGE", Field: "instance.started_at", Show: cli.Age},
	{Head: "OWNER", Field: "instance.owner"},
}}

// Launch launches a browser and holds it as the flags say.
func Launch(c *cli.Context) error {
	rec, err := c.FirstRecord("")
	if err != nil {
		return err
	}
	cmd, err := runcommand.Read(c, rec, "wait")
	if err != nil {
		return err
	}
	spec, err := newSpec(c, rec)
	if err != nil {
		return err
	}
	spec.Owner = cmd.Owner
	inherited := proc.HideInherited()
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	signals := lifetime.Listen(stop)
	// Without a command, whoever saves a state waits until it is saved.
	stays := c.Bool("wait") || spec.SaveState != nil && !cmd.Given()
	switch {
	case spec.Pipe != nil && !proc.Childless(): // its supervisor would be another process
		return c.UsageError("--pipe-fd needs a process that has no other children")
	case stays && proc.Childless():
		if err := setBrowser(c, spec); err != nil {
			return err
		}
		return wait(ctx, c, spec, stop, signals.Now(), cmd.Print)
	case stays:
		// A shell that became us by exec has left us its children. They are
		// not ours to reap: let the supervisor be a process of its own.
		service := systemd.NewNotifier()
		return held(ctx, c, spec, signals.Now(), func(h *launch.Handle, r *record.Record) error {
			if err := cmd.Print(r); err != nil {
				return err
			}
			service.Tell("READY=1")
			select {
			case <-ctx.Done():
				service.Tell("STOPPING=1")
			case <-h.Ended():
			}
			return nil
		})
	case cmd.Given():
		return withCommand(ctx, c, spec, stop, signals, cmd, inherited)
	}
	return held(ctx, c, spec, signals.Now(), func(h *launch.Handle, r *record.Record) error {
		if err := cmd.Print(r); err != nil {
			return err
		}
		return h.Detach()
	})
}

// wait is the supervisor in the foreground.
func wait(ctx context.Context, c *cli.Context, spec *launch.Spec, stop context.CancelCauseFunc, now <-chan struct{},
	print func(*record.Record) error) error {
	signal.Ignore(syscall.SIGPIPE)
	spec.Owner.Watch(ctx, stop)
	service := systemd.NewNotifier()
	defer context.AfterFunc(ctx, func() { service.Tell("STOPPING=1") })()
	ready := false
	s := &launch.Supervisor{Spec: spec, Store: c.State(), Log: c.Log, Now: now, Ready: func(r *record.Record) error {
		ready = true
		if err := print(r); err != nil {
			return err
		}
		service.Tell("READY=1")
		return nil
	}}
	failed, left := s.Run(ctx)
	if ready {
		return errors.Join(failed, left)
	}
	return interrupted(failed, left)
}

// held runs do with a browser under a supervisor of its own, and stops both
// unless do has let them go.
func held(ctx context.Context, c *cli.Context, spec *launch.Spec, now <-chan struct{},
	do func(*launch.Handle, *record.Record) error) error {
	h, err := launch.Start(c.State(), spec.Owner.FD, c.Messages)
	if err != nil {
		return err
	}
	// It comes up while the browser is found.
	if err := setBrowser(c, spec); err != nil {
		h.Stop(nil)
		return err
	}
	rec, err := h.Launch(ctx, spec)
	if err != nil {
		_, left := h.Stop(now)
		return interrupted(err, left)
	}
	err = do(h, rec)
	failed, left := h.Stop(now)
	switch {
	case err == nil:
		err = failed
	case failed != nil && spec.SaveState != nil: // the code is that of the command
		c.Log.Error(failed.Error())
	}
	return interrupted(err, left)
}

// interrupted gives a launch that a signal ended that signal's exit code; left
// is what could not be cleaned up.
func interrupted(err, left error) error {
	var i *lifetime.Interrupted
	switch {
	case !errors.As(err, &i):
		return errors.Join(err, left)
	case left == nil:
		left = errors.New("nothing is left running")
	}
	return &exit.Error{Code: exit.Signalled + int(i.Signal), Err: fmt.Errorf("interrupted: %w", left)}
}

// withCommand runs the command after "--" with a browser. While it runs the
// signals are its own: it ends when it likes to, when the owner does, or when
// the time to live has expired.
func withCommand(ctx context.Context, c *cli.Context, spec *launch.Spec, stop context.CancelCauseFunc,
	signals *lifetime.Listener, cmd *runcommand.CMD, inherited proc.Inherited) error {
	running, end := context.WithCancelCause(context.Background())
	defer end(nil)
	spec.Owner.Watch(ctx, func(why error) {
		stop(why)
		end(why)
	})
	if err := cmd.Wait(ctx); err != nil {
		return err
	}
	ttl := spec.TTL
	spec.Owner, spec.TTL = lifetime.Owner{}, 0
	name := cmd.Name()
	err := held(ctx, c, spec, signals.Now(), func(h *launch.Handle, r *record.Record) error {
		var i record.Instance
		if _, err := r.Get("instance", &i); err != nil {
			return err
		}
		if ttl > 0 {
			defer lifetime.After(ttl, func() {
				c.Log.Warn(fmt.Sprintf("the browser's time to live (%v) has expired: stopping %s", ttl, name))
				end(launch.Expired)
			})()
		}
		if err := cmd.Evidence.Add(ctx, name, i); err != nil {
			return err
		}
		done := make(chan struct{})
		defer close(done)
		go func() {
			select {
			case <-h.Ended():
				c.Log.Error(fmt.Sprintf("the browser ended while %s runs: %v", name, h.Why()))
			case <-done:
			}
		}()
		its := lifetime.Catch()
		signals.Pause()
		defer signals.Resume()
		if ctx.Err() != nil { // before the command could hear it
			return context.Cause(ctx)
		}
		inherited.Show()
		err := cmd.RunWith(running, run.EndpointOf(i), its)
		if err != nil || cmd.Evidence.IsAlways() {
			cmd.Evidence.End(err != nil) // while there are pages
		}
		return err
	})
	cmd.Evidence.End(err != nil) // the browser's end is a failure, too
	return err
}

// newSpec is the launch that the flags and the record ask for, all but the
// browser.
func newSpec(c *cli.Context, rec *record.Record) (*launch.Spec, error) {
	o, err := flags.ReadBrowser(c)
	if err != nil {
		return nil, err
	}
	s := &launch.Spec{
		Input: rec, Port: c.Int("port"), Headless: o.Headless == nil || *o.Headless, Args: o.Args, Profile: o.Profile,
		NoDefaultArgs: c.Bool("no-default-args"), URL: c.String("url"), WindowSize: o.WindowSize,
		Env: o.Env, Timeout: c.Duration("timeout"), StopTimeout: c.Duration("stop-timeout"),
		TTL: c.Duration("ttl"), OwnedBy: c.String("owner"), LogLevel: c.String("log-level"),
		LogFormat: c.String("log-format"),
	}
	if err := flags.CheckDurations(c, "stop-timeout", "ttl"); err != nil {
		return nil, err
	}
	switch {
	case s.Timeout <= 0:
		return nil, c.UsageError("--timeout is a positive duration such as 15s, not %v", s.Timeout)
	case c.IsSet("port") && (s.Port < 0 || s.Port > 65535):
		return nil, c.UsageError("--port is 0 to 65535, not %d", s.Port)
	}
	if !utf8.ValidString(s.URL) {
		return nil, c.UsageError("--url %q is not valid UTF-8", s.URL)
	}
	if strings.HasPrefix(s.URL, "-") {
		return nil, c.UsageError("--url is an address, not %q, which the browser would take for an option", s.URL)
	}
	if s.SaveState, err = saveState(c, s.Headless); err != nil {
		return nil, err
	}
	if s.Hub, err = readHub(c); err != nil {
		return nil, err
	}
	if s.Pipe, err = readPipe(c); err != nil {
		return nil, err
	}
	if rec != nil && !c.IsSet("port") {
		if _, err := rec.Get("port", &s.Port); err != nil {
			return nil, exit.Errorf(exit.Data, "%v", err)
		}
		if s.Port < 0 || s.Port > 65535 {
			return nil, exit.Errorf(exit.Data, "port %d of the record is not 0 to 65535", s.Port)
		}
	}
	return s, nil
}

// readPipe returns the pipe of --pipe-fd, nil without it.
func readPipe(c *cli.Context) (*launch.Pipe, error) {
	if !c.IsSet("pipe-fd") {
		return nil, nil
	}
	if !c.Bool("wait") {
		return nil, c.UsageError("--pipe-fd needs --wait")
	}
	for _, f := range []string{"port", "state-save", "extension"} {
		if c.IsSet(f) {
			return nil, c.UsageError("--pipe-fd and --%s exclude each other", f)
		}
	}
	commands, err := flags.Pipe(c, c.Int("pipe-fd"))
	if err != nil {
		return nil, err
	}
	answers, err := flags.Pipe(c, c.Int("pipe-fd")+1)
	if err != nil {
		return nil, err
	}
	return &launch.Pipe{Commands: commands, Answers: answers}, nil
}

// readHub returns the hub that the browser joins with --extension, nil without it.
func readHub(c *cli.Context) (*client.Proxy, error) {
	if !c.Bool("extension") {
		if c.IsSet("hub") {
			return nil, c.UsageError("--hub needs --extension")
		}
		return nil, nil
	}
	if c.IsSet("state-save") {
		return nil, c.UsageError("--extension and --state-save exclude each other")
	}
	hub, err := client.Hubs.One(c.State(), " with --hub", c.String("hub"))
	if err != nil {
		return nil, err
	}
	return &hub, nil
}

// saveState returns where --state-save saves the state, nil without it. What would
// keep it from being saved is told before a person logs in.
func saveState(c *cli.Context, headless bool) (*launch.SaveState, error) {
	if !c.IsSet("state-save") {
		return nil, nil
	}
	name := c.String("state-save")
	if err := logins.CheckName(name); err != nil {
		return nil, c.UsageError("--state-save: %v", err)
	}
	if headless {
		return nil, c.UsageError("--state-save needs --no-headless: it saves what a person logs in to in a window")
	}
	store, err := logins.Open(c.Getenv, c.Home())
	if err == nil {
		err = store.Prepare(context.Background())
	}
	if err != nil {
		return nil, err
	}
	return &launch.SaveState{Name: name, Dir: store.Dir}, nil
}

// setBrowser finds the browser and decides on its sandbox.
func setBrowser(c *cli.Context, s *launch.Spec) error {
	b, err := browser(c, s.Input)
	if err != nil {
		return err
	}
	s.Browser = b
	if c.Empty && c.String("browser") == "" {
		c.Log.Info("no record came on standard input: launching " + b.Type + ", the best that is installed")
	}
	if s.SaveState != nil && (b.Type == record.Firefox || b.Type == record.HeadlessShell) {
		return c.UsageError("--state-save needs a browser based on Chromium that has windows, not %s", b.Type)
	}
	if s.Hub != nil && (b.Type == record.Firefox || b.Type == record.HeadlessShell) {
		return c.UsageError("--extension needs a browser based on Chromium that has extensions, not %s", b.Type)
	}
	if !s.Headless && b.Type == record.HeadlessShell {
		return c.UsageError("%s has no windows: --browser names another", b.Type)
	}
	if err := run.Check(c.Command, b.Type == record.Firefox); err != nil {
		return err
	}
	switch c.String("sandbox") {
	case "off":
		s.NoSandbox = true
	case "", "auto":
		if why := launch.SandboxOff(b, c.Getenv); why != "" {
			s.NoSandbox = true
			level := slog.LevelDebug
			if c.State().First("sandbox-off") { // a machine's, not a launch's
				level = slog.LevelInfo
			}
			c.Log.Log(context.Background(), level, "sandbox off: "+why+" (--sandbox on keeps it)")
		}
	}
	return nil
}

// browser is the one that the flag names, else the record's, else the best.
// A type that is not installed is an error: nobody gets another browser than
// they asked for.
func browser(c *cli.Context, rec *record.Record) (record.Browser, error) {
	var b record.Browser
	want := record.Canonical(c.String("browser"))
	if rec != nil && !c.Given("browser") {
		if ok, err := rec.Get("browser", &b); err != nil {
			return b, exit.Errorf(exit.Data, "%v", err)
		} else if ok {
			if b.Path == "" {
				return b, exit.Errorf(exit.Data, "the record's browser has no path")
			}
			if b.Type == "" {
				return inspect(b.Path, "record")
			}
			_, err := inspect(b.Path, b.Source)
			return b, err
		}
	}
	if strings.ContainsRune(want, filepath.Separator) {
		abs, err := filepath.Abs(want)
		if err != nil {
			return b, err
		}
		return inspect(abs, "flag")
	}
	o := find.Options{Getenv: c.Getenv, Home: c.Home()}
	if want != "" {
		o.Types = []string{want}
	}
	o.First = true
	found, _, err := find.Browsers(context.Background(), o)
	if err != nil {
		return b, &exit.Error{Code: exit.Unavailable, Err: err}
	}
	if len(found) == 0 {
		if want != "" {
			return b, &exit.Error{Code: exit.Unavailable, Err: errors.New("no " + want + " is installed"),
				Hint: installed(o)}
		}
		return b, &exit.Error{Code: exit.Unavailable, Err: errors.New("no browser is installed"),
			Hint: "install one (on Debian: apt-get install chromium), or name it with --browser PATH"}
	}
	return found[0], nil
}

// installed is a hint at what there is.
func installed(o find.Options) string {
	o.Types, o.First = nil, false
	found, _, _ := find.Browsers(context.Background(), o)
	var types []string
	for _, b := range found {
		if !slices.Contains(types, b.Type) {
			types = append(types, b.Type)
		}
	}
	if len(types) == 0 {
		return "no browser is installed at all; install one (on Debian: apt-get install chromium), or name it with " +
			"--browser PATH"
	}
	return "installed are: " + strings.Join(types, ", ")
}

func inspect(path, source string) (record.Browser, error) {
	b, err := find.Inspect(path, source)
	if err != nil {
		return b, &exit.Error{Code: exit.Unavailable, Err: err, Hint: "bfind lists the browsers that are installed"}
	}
	return b, nil
}

// List prints the browsers that run.
func List(c *cli.Context) error {
	f, err := c.State().Read()
	if err != nil {
		return state.Explain(err)
	}
	var rs []*record.Record
	for _, i := range f.Instances {
		if i.Record != nil && i.Alive() {
			rs = append(rs, i.Record)
		}
	}
	return c.Out.Print(nil, rs...)
}

// Stop stops browsers. One that no longer runs is not an error.
func Stop(c *cli.Context) error {
	var err error
	ids := c.Args()
	if c.Bool("all") && len(ids) > 0 {
		return c.UsageError("--all and IDs exclude each other")
	}
	if c.Bool("force") && !c.Bool("all") {
		return c.UsageError("--force needs --all")
	}
	if !c.Bool("all") && len(ids) == 0 {
		if ids, err = c.InputIDs("instance", "name the IDs to stop, or --all"); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if !state.ValidID(id) {
			return c.UsageError("%q is not the ID of a browser: they look like inst_1706234567890_abc123", id)
		}
	}
	store := c.State()
	f, err := store.Read()
	if err != nil {
		return state.Explain(err)
	}
	if c.Bool("all") {
		spared := 0
		for _, i := range f.Instances {
			if i.Owner != "" && !c.Bool("force") {
				spared++
				continue
			}
			ids = append(ids, i.ID)
		}
		if spared > 0 {
			c.Log.Info(fmt.Sprintf("left running for their owners: %d (blaunch list shows whose they are; "+
				"--force stops them too)", spared))
		}
	}
	type result struct {
		entry *state.Instance
		err   error
	}
	results := make(chan result, len(ids))
	n := 0
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		e := f.Instance(id)
		if e == nil {
			c.Log.Info(id + " is not running (as " + store.Path() + " has it)")
			continue
		}
		n++
		go func() {
			results <- result{e, launch.StopInstance(store, *e, c.Duration("stop-timeout"))}
		}()
	}
	var errs []error
	for range n {
		r := <-results
		errs = append(errs, r.err)
		if r.err == nil && r.entry.Record != nil {
			errs = append(errs, c.Out.Write(r.entry.Record))
		}
	}
	return c.Out.Print(errors.Join(errs...))
}

// Swept are the records that GC prints.
var Swept = &cli.Records{Columns: []cli.Column{{Head: "SWEPT", Field: "swept.id"},
	{Head: "DIRECTORIES", Field: "swept.dirs"}, {Head: "KILLED", Field: "swept.killed"}},
	Members: map[string]any{"swept": state.Swept{}}}

// GC sweeps and prints what was swept.
func GC(c *cli.Context) error {
	swept, err := c.State().GC(context.Background())
	if err != nil {
		return state.Explain(err)
	}
	var rs []*record.Record
	for _, s := range swept {
		rs = append(rs, record.Of("swept", s))
	}
	if len(swept) == 0 {
		c.Log.Info("nothing to sweep")
	}
	return c.Out.Print(nil, rs...)
}
