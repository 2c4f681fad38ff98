// Package cli is the frame that every program shares: streams, common flags,
// output, exit codes, signals and version. A program says what its flags are
// and what it does; how it speaks is decided here, by these rules.
//
// Input. Standard input is read for records when it is a pipe or a file: not
// from a terminal, a device or a socket, and not with "-- CMD", where it is
// CMD's. The argument "-" reads it regardless and demands a record; --no-input
// never reads it. If nothing has come after two seconds, a message says what
// the program waits for.
//
// Output. Standard output is the result and nothing else: a table on a
// terminal, records elsewhere. --output decides by hand; --field prints bare
// values, tab-separated, for scripts. Names of fields are checked before
// anything is done.
//
// Messages. Everything else goes to standard error, one line a message, with
// the program's name in front. An error says what could not be done, to what,
// and why, lower case and without a final period:
//
//	blaunch: cannot launch: there is no display to open a window on
//	blaunch: hint: leave out --no-headless, or run under a display (xvfb-run)
//
// A hint says what to do, where there is something. The caller adds context
// once; who returns an error does not print it too. A message that nobody reads
// is dropped rather than waited for, and no byte of a browser, a page or
// another program reaches a terminal as a command. A program that waits for
// more than a second says for what.
//
// Exit codes are a closed list, in package exit and btools(7); an error carries
// its code. With "-- CMD" the code is CMD's.
//
// Precedence: a flag, then the environment, then a file, then the default.
//
// --help, --version and completions launch, write and delete nothing. Help
// texts fit 80 columns and name every flag that the man page names.
//
// Signals. The first INT, TERM or HUP stops a program gracefully within a
// bound, the second at once (package life). SIGPIPE ends filters, while
// long-running programs ignore it.
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
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"btools/lib/exit"
	"btools/lib/terminal"
)

// Env is the world around a program.
type Env struct {
	Args                  []string // with the program's name
	Stdin, Stdout, Stderr *os.File
	Getenv                func(string) string
	Environ               func() []string
	// Dir is the working directory; "": that of this process.
	Dir string
	// Caller ends with who waits for the run; nil: a signal ends it.
	Caller context.Context
}

// OS is the world that the system gave this process.
func OS() *Env {
	return &Env{Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		Environ: os.Environ}
}

// WorkDir returns the working directory.
func (e *Env) WorkDir() (string, error) {
	if e.Dir != "" {
		return e.Dir, nil
	}
	return os.Getwd()
}

// Abs returns the absolute form of a path, which may be relative to the working directory.
func (e *Env) Abs(path string) (string, error) {
	if e.Dir != "" && !filepath.IsAbs(path) {
		return filepath.Join(e.Dir, path), nil
	}
	return filepath.Abs(path)
}

// width is how many columns standard output has: as COLUMNS says, else the
// terminal's, else the default.
func (e *Env) width(unknown int) int {
	if n, err := strconv.Atoi(e.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if n := terminal.Width(e.Stdout); n > 0 {
		return n
	}
	return unknown
}

// Command is what a program or one of its subcommands does.
type Command struct {
	Name, Usage string
	// ArgsUsage describes the arguments, "" if it takes none but "-".
	ArgsUsage string
	// Examples are the first things that --help shows: three of a program, any number
	// of its commands.
	Examples []string
	Flags    []cli.Flag
	// Common are the names of the options that a program's --help shows without
	// --all; nil means all of them.
	Common []string
	Group  string // of commands that --help lists in one row
	Hidden bool
	// TakesCommand allows "-- CMD ARGS…".
	TakesCommand bool
	// Values are what flags ("--state") and placeholders ("POOL") can have, for
	// completions; those of the program are its commands' too.
	Values map[string]Values
	Do     func(*Context) error // nil of a program that only has commands
	// Prints are the records that it prints; nil: none.
	Prints *Records
	// Help is what --help shows besides; or instead, with words.
	Help func(env *Env, words []string) (string, error)
}

// Program is a command with subcommands.
type Program struct {
	Command
	About    string // a sentence or two for --help
	Commands []*Command
	// Elsewhere is what people look for here and another program does.
	Elsewhere Elsewhere
	// Old are the options that the program and its commands had under other names,
	// and today's; "" means that what the option of the program asks for is always so.
	Old map[string]string
	// Tag is an option whose value is a member of each message with --log-format json; "": none is.
	Tag string
}

// Elsewhere is a line for --help, and hints for those who give these words as a command.
type Elsewhere struct {
	Line  string
	Hints map[string]string
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
	Out      *Output // of the records that the command prints; nil if it has none, or takes a command
	Empty    bool    // there was an input, without a record
	dash     bool    // "-" was given
	args     []string
	after    int // how many of them stand after "--"
	usage    *arguments
	program  *Program
}

// commonFlags are the flags of every program and subcommand.
func commonFlags() []cli.Flag {
	const out, log = "Output:", "Messages:"
	return []cli.Flag{
		&cli.StringFlag{Name: "output", Category: out,
			Usage: "print `json|table`: records or a table (default: table on a terminal)"},
		&cli.StringFlag{Name: "field", Aliases: []string{"f"}, Category: out,
			Usage: "print the bare values of `NAME[,NAME]`, such as instance.ws_url"},
		&cli.BoolFlag{Name: "no-input", Category: out, Usage: "do not read standard input"},
		&cli.StringFlag{Name: "log-level", Category: log, EnvVars: []string{"BTOOLS_LOG_LEVEL"}, Value: "info",
			Usage: "print messages of the level `debug|info|warn|error` and above"},
		&cli.StringFlag{Name: "log-format", Category: log, EnvVars: []string{"BTOOLS_LOG_FORMAT"}, Value: "text",
			Usage: "print messages as `text|json`"},
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
	if len(env.Args) == 3 && env.Args[1] == completeWord {
		complete(env, p, env.Args[2])
		return 0
	}
	if err := checkFiles(); err != nil {
		return tell(env, env.Stderr, p, err) // without a timer, for which Go opens files
	}
	dropping := NewDroppingWriter(env.Stderr)
	defer dropping.Close(flushBound)
	var messages io.Writer = dropping
	if wantsJSON(env) {
		messages = &jsonLines{w: dropping, name: p.Name}
	}
	return tell(env, messages, p, run(env, p, messages))
}

// tell prints why a program failed, in the form of its messages, and returns its exit code.
func tell(env *Env, messages io.Writer, p *Program, err error) int {
	var status exit.Status
	if err == nil {
		return 0
	}
	if errors.As(err, &status) {
		return int(status)
	}
	e := &exit.Error{Code: exit.Failed}
	errors.As(err, &e)
	if wantsJSON(env) {
		log := NewLogger(messages, p.Name, "error", "json")
		if e.Hint != "" {
			log = log.With("hint", e.Hint)
		}
		log.Error(err.Error())
		return e.Code
	}
	fmt.Fprintf(messages, "%s: %v\n", p.Name, err)
	if e.Hint != "" {
		fmt.Fprintf(messages, "%s: hint: %s\n", p.Name, e.Hint)
	}
	return e.Code
}

// wantsJSON reports whether messages are JSON, also those about the arguments.
func wantsJSON(env *Env) bool {
	format := env.Getenv("BTOOLS_LOG_FORMAT")
	for i, word := range env.Args {
		name, value, ok := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch {
		case word == "--":
			return format == "json"
		case name != "log-format" || name == word:
		case ok:
			format = value
		case i+1 < len(env.Args):
			format = env.Args[i+1]
		}
	}
	return format == "json"
}

func run(env *Env, p *Program, messages io.Writer) error {
	words, command, split := env.Args[1:], []string(nil), false
	if i := slices.Index(words, "--"); i >= 0 {
		words, command, split = words[:i], words[i+1:], true
	}
	if len(words) > 0 && (words[0] == "help" || words[0] == "version") {
		words = append(slices.Clone(words[1:]), "--"+words[0])
	}
	args, err := parse(p, words)
	c := args.command
	switch {
	case (args.given["help"] || args.given["h"]) && c.Help != nil && len(args.rest) > 0:
		text, err := c.Help(env, args.rest)
		fmt.Fprint(env.Stdout, text)
		return err
	case args.given["help"], args.given["h"]:
		help(env.Stdout, p, c, env.width(80), args.given["all"])
		if c.Help != nil {
			text, err := c.Help(env, nil)
			fmt.Fprint(env.Stdout, "\n", text)
			return err
		}
		return nil
	case args.given["version"]:
		return printVersion(env.Stdout, p.Name, slices.Contains(args.flags, "--output=json"))
	case err != nil:
		return err
	}
	if c == &p.Command {
		// By the words, not by what is set: the environment sets flags too.
		// Only the first word can be a command: after a misspelt one, "list" is its argument.
		if i := slices.IndexFunc(args.rest, func(w string) bool { return w != "-" }); i >= 0 && slices.ContainsFunc(
			p.Commands, func(c *Command) bool { return c.Name == args.rest[i] }) {
			return args.usage(p, "%s is a command of %s: put it first, and options after it", args.rest[i], p.Name)
		}
	}
	ctx := &Context{Env: env, Name: p.Name, Messages: messages, usage: args, program: p}
	rest := args.rest
	if slices.Contains(rest, "-") {
		ctx.dash = true
		rest = slices.DeleteFunc(slices.Clone(rest), func(a string) bool { return a == "-" })
	}
	switch {
	case split && c.TakesCommand && len(command) == 0:
		return args.usage(p, "no command after --")
	case split && c.TakesCommand:
		ctx.Command = command
	case split:
		rest = append(slices.Clone(rest), command...)
		ctx.after = len(command)
	}
	if len(rest) > 0 && (c.ArgsUsage == "" || c.Do == nil) {
		return args.stray(p, rest[0])
	}
	if c.Do == nil {
		return args.usage(p, "name a command")
	}
	if n := len(strings.Fields(c.ArgsUsage)); len(rest) > n && !strings.Contains(c.ArgsUsage, "…") {
		return args.usage(p, "expected %s, not %d arguments", c.ArgsUsage, len(rest))
	}
	if len(rest) > 0 && c != &p.Command {
		if err := args.misspelt(p, rest[0]); err != nil {
			return err
		}
	}
	ctx.args = rest
	// The library has the flags' values: those of the environment too.
	app := &cli.App{
		Name: p.Name, HideHelp: true, HideVersion: true, DisableSliceFlagSeparator: true, Writer: env.Stdout,
		ErrWriter:      messages,
		Flags:          slices.DeleteFunc(slices.Concat(c.Flags, args.common), args.isEmpty),
		OnUsageError:   func(_ *cli.Context, err error, _ bool) error { return args.usage(p, "%v", err) },
		ExitErrHandler: func(*cli.Context, error) {},
		Action: func(u *cli.Context) error {
			ctx.Context = u
			if err := ctx.prepare(); err != nil {
				return err
			}
			if c.Prints != nil && !c.TakesCommand {
				var err error
				if ctx.Out, err = ctx.Records(nil); err != nil {
					return err
				}
			}
			return c.Do(ctx)
		},
	}
	return app.RunContext(context.Background(), append([]string{p.Name}, args.flags...))
}

// helpFlags are those that only print.
func helpFlags() []cli.Flag {
	return []cli.Flag{&cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "print a help text"},
		&cli.BoolFlag{Name: "version", Usage: "print the version"}}
}

func argsUsage(c *Command) string {
	s := c.ArgsUsage
	if c.TakesCommand {
		s = strings.TrimSpace(s + " [-- CMD ARGS…]")
	}
	return s
}

// UsageError is an error in what the user asked for.
func (c *Context) UsageError(format string, args ...any) error {
	return c.usage.usage(c.program, format, args...)
}

// Parse reads words as the arguments of the program without a command, and has
// check look at them. It does nothing else.
func (c *Context) Parse(words []string, check func(*Context) error) error {
	p, env, seen := *c.program, *c.Env, false
	p.Commands = nil
	p.Do = func(c *Context) error {
		seen = true
		return check(c)
	}
	env.Args, env.Stdout = append([]string{p.Name}, words...), nil // not even a help text is printed
	err := run(&env, &p, c.Messages)
	if err == nil && !seen {
		return c.UsageError("%s only prints something", strings.Join(env.Args, " "))
	}
	return err
}

// Again reads words as the arguments of another run of the command that runs, which do carries out.
func (c *Context) Again(words []string, do func(*Context) error) error {
	p, env, command := *c.program, *c.Env, *c.usage.command
	command.Do = do
	p.Commands, env.Args = []*Command{&command}, append([]string{p.Name, command.Name}, words...)
	return run(&env, &p, c.Messages)
}

// AtTerminal reports whether standard input is a terminal.
func (c *Context) AtTerminal() bool { return terminal.Is(c.Stdin) }

// Args are the arguments without "-".
func (c *Context) Args() []string { return c.args }

// Arg returns the first argument, or "" without one.
func (c *Context) Arg() string {
	if len(c.args) == 0 {
		return ""
	}
	return c.args[0]
}

// After returns how many of the arguments stand after "--".
func (c *Context) After() int { return c.after }

// Dash reports whether "-" was given: standard input is to be read.
func (c *Context) Dash() bool { return c.dash }

// Given reports whether the flag itself was given, and not only its variable:
// what comes down the pipe is nearer than the environment.
func (c *Context) Given(name string) bool { return c.usage.given[name] }

// IsSet reports whether a flag or its variable was given. That of the library looks through all flags, with a regular
// expression for each.
func (c *Context) IsSet(name string) bool {
	f := c.usage.byName[name]
	return f != nil && (c.usage.set[f] || f.IsSet())
}

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
	}{{"output", []string{"", "json", "table"}}, {"log-level", []string{"debug", "info", "warn", "error"}},
		{"log-format", []string{"text", "json"}}} {
		if v := c.String(f.name); !slices.Contains(f.of, v) {
			return c.UsageError("--%s is %s, not %q", f.name,
				strings.Join(slices.DeleteFunc(f.of, func(s string) bool { return s == "" }), " or "), v)
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
	if j, ok := c.Messages.(*jsonLines); ok && c.program.Tag != "" {
		if value := c.String(c.program.Tag); value != "" {
			j.tell(slog.String(c.program.Tag, value))
		}
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
