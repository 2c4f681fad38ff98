// Package cli is the frame that every program shares: streams, common flags,
// output, exit codes, signals and version. A program says what its flags are
// and what it does; how it speaks is decided here.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// Release is the version that --version prints, set by the linker.
var Release = "0.1.0"

// Exit codes, the table of btools(7).
const (
	Failed      = 1  // it failed
	Usage       = 64 // wrong usage
	Data        = 65 // bad input data
	Unavailable = 69 // no such browser, no healthy instance
	TryAgain    = 75 // timed out, port taken, profile in use
	Config      = 78 // bad configuration
	CannotRun   = 126
	NotFound    = 127
	Signalled   = 128 // plus the signal's number
)

// Error is an error with its exit code and a hint on what to do.
type Error struct {
	Code int
	Err  error
	Hint string
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error without a hint.
func Errorf(code int, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// Exit is the error that ends a program with a code and says nothing.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// Env is the world around a program.
type Env struct {
	Args                  []string // with the program's name
	Stdin, Stdout, Stderr *os.File
	Getenv                func(string) string
}

// OS is the world that the system gave this process.
func OS() *Env {
	return &Env{Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
}

// Command is what a program or one of its subcommands does.
type Command struct {
	Name, Usage string
	// ArgsUsage describes the arguments, "" if it takes none but "-".
	ArgsUsage string
	Flags     []cli.Flag
	Hidden    bool
	// TakesCommand allows "-- CMD ARGS…".
	TakesCommand bool
	Do           func(*Context) error
}

// Program is a command with subcommands.
type Program struct {
	Command
	About    string // a sentence or two for --help
	Commands []*Command
}

// Context is one run of a command.
type Context struct {
	*cli.Context
	*Env
	Name    string   // the program's
	Command []string // after "--"; nil without
	Log     *slog.Logger
	// Messages is standard error for what people read: it never blocks, and
	// carries nothing that a terminal takes for a command.
	Messages io.Writer
	dash     bool // "-" was given
	args     []string
	given    map[string]bool // flags on the command line
}

// commonFlags are the flags of every program and subcommand.
func commonFlags() []cli.Flag {
	const out, log = "Output:", "Messages:"
	return []cli.Flag{
		&cli.StringFlag{Name: "output", Category: out, Usage: "`json` records or a table for people (default: table on a terminal)"},
		&cli.StringFlag{Name: "field", Aliases: []string{"f"}, Category: out, Usage: "print the bare values of `NAME[,NAME]`, such as instance.ws_url"},
		&cli.BoolFlag{Name: "no-input", Category: out, Usage: "do not read standard input"},
		&cli.StringFlag{Name: "log-level", Category: log, EnvVars: []string{"BTOOLS_LOG_LEVEL"}, Value: "info", Usage: "`LEVEL`: debug, info, warn or error"},
		&cli.StringFlag{Name: "log-format", Category: log, EnvVars: []string{"BTOOLS_LOG_FORMAT"}, Value: "text", Usage: "`FORMAT`: text or json"},
	}
}

// Main runs a program in this process's world and exits.
func Main(p *Program) {
	// Paths that are handed on are read in other directories.
	if tmp := os.Getenv("TMPDIR"); tmp != "" && !filepath.IsAbs(tmp) {
		if abs, err := filepath.Abs(tmp); err == nil {
			os.Setenv("TMPDIR", abs)
		}
	}
	os.Exit(Run(OS(), p))
}

// Run runs a program and returns its exit code.
func Run(env *Env, p *Program) int {
	messages := NewMessages(env.Stderr)
	defer messages.Flush(flushBound)
	err := run(env, p, messages)
	var exit Exit
	if err == nil {
		return 0
	}
	if errors.As(err, &exit) {
		return int(exit)
	}
	fmt.Fprintf(messages, "%s: %v\n", p.Name, err)
	code := Failed
	var e *Error
	if errors.As(err, &e) {
		code = e.Code
		if e.Hint != "" {
			fmt.Fprintf(messages, "%s: hint: %s\n", p.Name, e.Hint)
		}
	}
	return code
}

func run(env *Env, p *Program, messages io.Writer) error {
	args, command, split := env.Args, []string(nil), false
	if i := slices.Index(args, "--"); i > 0 {
		args, command, split = args[:i], args[i+1:], true
	}
	args, given := flagsFirst(p, args)
	action := func(c *Command, root bool) cli.ActionFunc {
		return func(u *cli.Context) error {
			ctx := &Context{Context: u, Env: env, Name: p.Name, Messages: messages, given: given}
			rest := u.Args().Slice()
			if !root {
				// By the words, not by what is set: the environment sets flags too.
				if first := args[1]; first != c.Name {
					return usage(p.Name, "flag %s stands before the command %s: put it after", first, c.Name)
				}
			}
			if n := slices.Index(rest, "-"); n >= 0 {
				ctx.dash = true
				rest = slices.DeleteFunc(slices.Clone(rest), func(a string) bool { return a == "-" })
			}
			switch {
			case split && c.TakesCommand && len(command) == 0:
				return usage(p.Name, "no command after --")
			case split && c.TakesCommand:
				ctx.Command = command
			case split:
				rest = append(rest, command...)
			}
			if c.ArgsUsage == "" && len(rest) > 0 {
				if len(p.Commands) > 0 && root {
					return usage(p.Name, "%q is neither a command nor an argument of %s", rest[0], p.Name)
				}
				return usage(p.Name, "unexpected argument %q", rest[0])
			}
			ctx.args = rest
			if err := ctx.prepare(); err != nil {
				return err
			}
			return c.Do(ctx)
		}
	}
	onUsage := func(u *cli.Context, err error, _ bool) error { return usage(p.Name, "%v", err) }
	app := &cli.App{
		Name: p.Name, HelpName: p.Name, Usage: p.Usage, Description: p.About, ArgsUsage: argsUsage(&p.Command),
		Version: Release, HideHelpCommand: true, UseShortOptionHandling: false,
		DisableSliceFlagSeparator: true, OnUsageError: onUsage,
		Flags: append(slices.Clone(p.Flags), commonFlags()...), Action: action(&p.Command, true),
		Writer: env.Stdout, ErrWriter: env.Stderr, ExitErrHandler: func(*cli.Context, error) {},
	}
	for _, c := range p.Commands {
		app.Commands = append(app.Commands, &cli.Command{
			Name: c.Name, Usage: c.Usage, ArgsUsage: argsUsage(c), Hidden: c.Hidden, HideHelpCommand: true,
			Flags: append(slices.Clone(c.Flags), commonFlags()...), Action: action(c, false), OnUsageError: onUsage,
		})
	}
	return app.RunContext(context.Background(), args)
}

// flagsFirst puts the flags before the arguments, as the library takes what
// follows the first argument for arguments. Given holds the flags' names.
func flagsFirst(p *Program, args []string) (sorted []string, given map[string]bool) {
	given = map[string]bool{}
	n, c := 1, &p.Command
	if len(args) > 1 {
		if i := slices.IndexFunc(p.Commands, func(c *Command) bool { return c.Name == args[1] }); i >= 0 {
			n, c = 2, p.Commands[i]
		}
	}
	withValue := map[string]bool{}
	for _, f := range append(slices.Clone(c.Flags), commonFlags()...) {
		_, isBool := f.(*cli.BoolFlag)
		for _, name := range f.Names() {
			withValue[name] = !isBool
		}
	}
	flags, rest := slices.Clone(args[:min(n, len(args))]), []string(nil)
	for i := n; i < len(args); i++ {
		a := args[i]
		if len(a) < 2 || a[0] != '-' {
			rest = append(rest, a)
			continue
		}
		flags = append(flags, a)
		name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		given[name] = true
		if withValue[strings.TrimLeft(a, "-")] && i+1 < len(args) {
			i++
			flags = append(flags, args[i])
		}
	}
	return append(flags, rest...), given
}

func init() {
	// The default takes -v as well, which leaves none for a program.
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true}
	cli.VersionPrinter = func(c *cli.Context) { fmt.Fprintf(c.App.Writer, "%s %s\n", c.App.Name, c.App.Version) }
	cli.HelpFlag = &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show this help", DisableDefaultText: true}
}

func argsUsage(c *Command) string {
	s := c.ArgsUsage
	if c.TakesCommand {
		s = strings.TrimSpace(s + " [-- CMD ARGS…]")
	}
	if s == "" {
		s = " "
	}
	return s
}

func usage(name, format string, args ...any) error {
	return &Error{Code: Usage, Err: fmt.Errorf(format, args...), Hint: "see " + name + " --help"}
}

// UsageError is an error in what the user asked for.
func (c *Context) UsageError(format string, args ...any) error {
	return usage(c.Name, format, args...)
}

// Args are the arguments without "-".
func (c *Context) Args() []string { return c.args }

// Given reports whether the flag itself was given, and not only its variable:
// what comes down the pipe is nearer than the environment.
func (c *Context) Given(name string) bool { return c.given[name] }

// Home is the user's home directory, "" if the environment names none: then
// nothing is read from one, least of all relative to the working directory.
func (c *Context) Home() string {
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return home
}

func (c *Context) prepare() error {
	for _, f := range []struct {
		name string
		of   []string
	}{{"output", []string{"", "json", "table"}}, {"log-level", []string{"debug", "info", "warn", "error"}}, {"log-format", []string{"text", "json"}}} {
		if v := c.String(f.name); !slices.Contains(f.of, v) {
			return c.UsageError("--%s is %s, not %q", f.name, strings.Join(slices.DeleteFunc(f.of, func(s string) bool { return s == "" }), " or "), v)
		}
	}
	// They travel as JSON, which would make other paths of them.
	for _, name := range []string{"TMPDIR", "BTOOLS_STATE"} {
		if v := c.Getenv(name); !utf8.ValidString(v) {
			return c.UsageError("%s %q is not valid UTF-8: set it to another path", name, v)
		}
	}
	if c.IsSet("output") && c.IsSet("field") {
		return c.UsageError("--output and --field exclude each other")
	}
	c.Log = NewLogger(c.Messages, c.Name, c.String("log-level"), c.String("log-format"))
	return nil
}

// NewLogger makes the logger of a program's messages.
func NewLogger(w io.Writer, name, level, format string) *slog.Logger {
	var l slog.Level
	l.UnmarshalText([]byte(level)) // one that can't be read is info
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})).With("program", name)
	}
	return slog.New(&textHandler{w: w, name: name, level: l})
}
