// Package options are the flags that say what browser to launch: those that
// blaunch has, and that others hand on to it.
package options

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/record"
	"btools/lib/spell"
)

// Options are what was asked for; what is nil or "" was left to the default.
type Options struct {
	Browser       string   `json:"browser,omitempty"` // a type or a path
	Headless      *bool    `json:"headless,omitempty"`
	Profile       string   `json:"profile,omitempty"` // an absolute path
	Args          []string `json:"args,omitempty"`
	NoDefaultArgs *bool    `json:"no_default_args,omitempty"`
	WindowSize    string   `json:"window_size,omitempty"` // "W,H" in pixels
	Env           []string `json:"env,omitempty"`         // K=V
	Sandbox       string   `json:"sandbox,omitempty"`     // auto, on or off
}

// Flags are the flags of Options.
func Flags(category string) []ucli.Flag {
	return []ucli.Flag{
		&ucli.StringFlag{Name: "browser", Category: category, EnvVars: []string{"BTOOLS_BROWSER"},
			Usage: "launch the best of `TYPE`, or the executable at a PATH (default: the record's on standard input, else the " +
				"best that is installed)"},
		&ucli.BoolFlag{Name: "headless", Category: category, Usage: "run without a window (the default)"},
		&ucli.BoolFlag{Name: "no-headless", Category: category, Usage: "open a window"},
		&ucli.StringFlag{Name: "profile", Category: category,
			Usage: "use and keep the profile in `DIR` (default: a temporary one)"},
		&ucli.StringSliceFlag{Name: "arg", Category: category, Usage: "pass `ARG` to the browser (repeatable)"},
		&ucli.BoolFlag{Name: "no-default-args", Category: category,
			Usage: "pass only the flags that the endpoint and the profile need"},
		&ucli.StringFlag{Name: "window-size", Category: category, Usage: "make the window `W,H` pixels, such as 1280,720"},
		&ucli.StringSliceFlag{Name: "env", Category: category, Usage: "set `K=V` in the browser's environment (repeatable)"},
		&ucli.StringFlag{Name: "sandbox", Category: category, DefaultText: "auto",
			Usage: "set the browser's sandbox to `MODE`: on, off, or auto, which is off for root, in CI, and where user " +
				"namespaces are denied"},
	}
}

// FromFlags reads the flags. What makes no sense is a usage error.
func FromFlags(c *cli.Context) (Options, error) {
	o := Options{Browser: record.Canonical(c.String("browser")), Args: c.StringSlice("arg"),
		WindowSize: c.String("window-size"), Env: c.StringSlice("env"), Sandbox: c.String("sandbox")}
	if c.Bool("headless") && c.Bool("no-headless") {
		return o, c.UsageError("--headless and --no-headless exclude each other")
	}
	if c.IsSet("headless") || c.IsSet("no-headless") {
		headless := c.Bool("headless") || !c.Bool("no-headless")
		o.Headless = &headless
	}
	if c.IsSet("no-default-args") {
		no := c.Bool("no-default-args")
		o.NoDefaultArgs = &no
	}
	// Paths are of this directory, whoever launches.
	for _, p := range []struct {
		name string
		to   *string
	}{{"profile", &o.Profile}, {"browser", &o.Browser}} {
		v := c.String(p.name)
		if p.name == "browser" && !isPath(v) {
			continue
		}
		if c.IsSet(p.name) && v == "" {
			return o, c.UsageError("--%s is a directory, not %q", p.name, v)
		}
		if v != "" {
			abs, err := filepath.Abs(v)
			if err != nil {
				return o, err
			}
			*p.to = abs
		}
	}
	if err := o.Check(); err != "" {
		return o, c.UsageError("%s", err)
	}
	return o, nil
}

// Check returns what is wrong with the options, "" if nothing is.
func (o Options) Check() string {
	// They travel as JSON, which would make other names of them.
	for _, f := range []struct {
		name   string
		values []string
	}{{"browser", []string{o.Browser}}, {"profile", []string{o.Profile}}, {"arg", o.Args}, {"env", o.Env}} {
		for _, v := range f.values {
			if !utf8.ValidString(v) {
				return fmt.Sprintf("--%s %q is not valid UTF-8", f.name, v)
			}
		}
	}
	switch {
	case o.Browser == record.WebKit:
		return "--browser webkit: WebKit has no debugging endpoint to launch it with; clients of Playwright bring their own"
	case o.Browser != "" && !isPath(o.Browser) && !slices.Contains(record.Types, o.Browser):
		wrong := "--browser is a path or one of " + strings.Join(record.Types, ", ") + ", not " + strconv.Quote(o.Browser)
		if near := spell.Nearest(o.Browser, record.Types); near != "" {
			wrong += ": did you mean " + near + "?"
		}
		return wrong
	case o.WindowSize != "" && !validSize(o.WindowSize):
		return "--window-size is W,H in pixels, such as 1280,720, not " + strconv.Quote(o.WindowSize)
	case !slices.Contains([]string{"", "auto", "on", "off"}, o.Sandbox):
		return "--sandbox is auto, on or off, not " + strconv.Quote(o.Sandbox)
	case o.Profile != "" && !filepath.IsAbs(o.Profile):
		return "the profile is not an absolute path: " + strconv.Quote(o.Profile)
	}
	for _, kv := range o.Env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" {
			return "--env is K=V, not " + strconv.Quote(kv)
		}
	}
	for _, a := range o.Args {
		for _, ours := range []string{"--remote-debugging-port", "--user-data-dir", "--remote-debugging-pipe"} {
			if name, _, _ := strings.Cut(a, "="); name == ours {
				return "--arg " + a + ": use the flags --port of blaunch and --profile"
			}
		}
	}
	return ""
}

func isPath(browser string) bool { return strings.ContainsRune(browser, filepath.Separator) }

func validSize(s string) bool {
	w, h, _ := strings.Cut(s, ",")
	for _, n := range []string{w, h} {
		if px, err := strconv.ParseUint(n, 10, 16); err != nil || px == 0 {
			return false
		}
	}
	return true
}

// With is these options where the others are silent, else the others.
func (o Options) With(over Options) Options {
	if over.Browser != "" {
		o.Browser = over.Browser
	}
	if over.Headless != nil {
		o.Headless = over.Headless
	}
	if over.Profile != "" {
		o.Profile = over.Profile
	}
	if over.Args != nil {
		o.Args = over.Args
	}
	if over.NoDefaultArgs != nil {
		o.NoDefaultArgs = over.NoDefaultArgs
	}
	if over.WindowSize != "" {
		o.WindowSize = over.WindowSize
	}
	if over.Env != nil {
		o.Env = over.Env
	}
	if over.Sandbox != "" {
		o.Sandbox = over.Sandbox
	}
	return o
}

// Argv is the options as blaunch takes them.
func (o Options) Argv() []string {
	var argv []string
	add := func(name string, values ...string) {
		for _, v := range values {
			if v != "" {
				argv = append(argv, "--"+name+"="+v)
			}
		}
	}
	add("browser", o.Browser)
	if o.Headless != nil {
		add("no-headless", strconv.FormatBool(!*o.Headless))
	}
	add("profile", o.Profile)
	add("arg", o.Args...)
	if o.NoDefaultArgs != nil {
		add("no-default-args", strconv.FormatBool(*o.NoDefaultArgs))
	}
	add("window-size", o.WindowSize)
	add("env", o.Env...)
	add("sandbox", o.Sandbox)
	return argv
}
