package cli

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"btools/lib/exit"
	"btools/lib/spell"
)

// arguments are a program's arguments, looked through before the library
// does, whose errors don't say what to do.
type arguments struct {
	command *Command
	flags   []string        // with their values
	rest    []string        // the words that are not flags
	given   map[string]bool // the flags' names
	byName  map[string]cli.Flag
	set     map[cli.Flag]bool // those that are given
	common  []cli.Flag
	open    cli.Flag // the last one, if its value is missing
}

// parse looks through the arguments, those after "--" left out. With the first
// error it returns what the others say.
func parse(p *Program, args []string) (*arguments, error) {
	a := &arguments{command: &p.Command, given: map[string]bool{}, byName: map[string]cli.Flag{},
		set: map[cli.Flag]bool{}, common: commonFlags()}
	var first error
	fail := func(err error) {
		if first == nil {
			first = err
		}
	}
	if len(args) > 0 {
		if i := slices.IndexFunc(p.Commands, func(c *Command) bool { return c.Name == args[0] }); i >= 0 {
			a.command = p.Commands[i]
			args = args[1:]
		}
	}
	var names []string
	for _, f := range slices.Concat(a.command.Flags, a.common, helpFlags()) {
		for _, n := range f.Names() {
			a.byName[n] = f
			names = append(names, dashes(n))
		}
	}
	for i := 0; i < len(args); i++ {
		word := args[i]
		if len(word) < 2 || word[0] != '-' {
			a.rest = append(a.rest, word)
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
		f := a.byName[name]
		if today, old := p.Old[name]; old && f == nil {
			if today == "" && a.command == &p.Command {
				continue
			}
			name, f = today, a.byName[today]
		}
		if name == "all" && f == nil && slices.ContainsFunc(args, asksForHelp) {
			a.given[name] = true
			continue
		}
		if f == nil {
			// It may be an option of a command that "--" is missing before.
			if len(a.rest) > 0 && a.command == &p.Command && (p.Elsewhere.Hints[a.rest[0]] != "" ||
				p.TakesCommand && isProgram(a.rest[0])) {
				fail(a.stray(p, a.rest[0]))
			}
			if !hasValue && i+1 < len(args) {
				value = args[i+1]
			}
			fail(a.unknown(p, name, value, names))
			continue
		}
		a.given[name], a.set[f] = true, true
		kind := kindOf(f)
		if kind != "" && !hasValue {
			i++
			if i == len(args) {
				a.open = f
				fail(a.usage(p, "%s takes %s", dashes(name), kind))
				break
			}
			value = args[i]
		}
		if err := a.check(p, f, name, value, hasValue); err != nil {
			fail(err)
			continue
		}
		word = "--" + name
		if kind != "" || hasValue {
			word += "=" + value
		}
		a.flags = append(a.flags, word)
	}
	return a, first
}

// isEmpty reports whether a flag has no value: it is not given, and has none by default or from the environment. The
// library needs not know it: for each of its flags it looks through all, with regular expressions.
func (a *arguments) isEmpty(f cli.Flag) bool {
	switch f := f.(type) {
	case *cli.StringFlag:
		return !a.set[f] && f.Value == "" && f.EnvVars == nil
	case *cli.BoolFlag:
		return !a.set[f] && !f.Value && f.EnvVars == nil
	case *cli.StringSliceFlag:
		return !a.set[f] && f.Value == nil && f.EnvVars == nil
	}
	return false
}

func asksForHelp(word string) bool { return word == "--help" || word == "-h" }

// usage is an error in the arguments.
func (a *arguments) usage(p *Program, format string, args ...any) *exit.Error {
	name := p.Name
	if a.command != &p.Command {
		name += " " + a.command.Name
	}
	return &exit.Error{Code: exit.Usage, Err: fmt.Errorf(format, args...), Hint: "see " + name + " --help"}
}

// unknown is an option that does not exist, and the value that it may have been
// given.
func (a *arguments) unknown(p *Program, name, value string, names []string) error {
	e := a.usage(p, "there is no option %s", dashes(name))
	if name == "port" && a.has("listen") {
		if !isPort(value) {
			value = "PORT"
		}
		e.Hint = listenHint + value
		return e
	}
	if near := spell.Nearest(dashes(name), names); near != "" && len(name) > 1 {
		e = a.usage(p, "there is no option %s: did you mean %s?", dashes(name), near)
	}
	if of := p.owners(name); a.command != &p.Command && len(of) > 0 && len(of) < 4 {
		e = a.usage(p, "%s is an option of %s, not of %s %s", dashes(name), strings.Join(of, ", "), p.Name,
			a.command.Name)
		if of[0] == p.Name && a.command.TakesCommand && a.command.ArgsUsage != "" {
			// What is after -- is not CMD, but the program's.
			e.Hint = fmt.Sprintf("options for %s go after --: %s %s … -- %s", p.Name, p.Name, a.command.Name,
				dashes(name))
		}
	}
	return e
}

// owners are the program and its commands that show a flag.
func (p *Program) owners(flag string) (names []string) {
	for _, c := range append([]*Command{&p.Command}, p.Commands...) {
		if slices.ContainsFunc(c.Flags, func(f cli.Flag) bool {
			v, ok := f.(cli.VisibleFlag)
			return slices.Contains(f.Names(), flag) && (!ok || v.IsVisible()) && !c.Hidden
		}) {
			name := p.Name
			if c != &p.Command {
				name += " " + c.Name
			}
			names = append(names, name)
		}
	}
	return names
}

// misspelt is a first argument that is nearly one of the words that the command
// takes there, such as list|new|end.
func (a *arguments) misspelt(p *Program, word string) error {
	first, _, _ := strings.Cut(a.command.ArgsUsage, " ")
	words := strings.Split(first, "|")
	if first != strings.ToLower(first) || slices.Contains(words, word) {
		return nil
	}
	near := spell.Nearest(word, words)
	if near == "" {
		return nil
	}
	return a.usage(p, "%q is not a command of %s %s: did you mean %s?", word, p.Name, a.command.Name, near)
}

// check refuses a value that is not of the flag's kind.
func (a *arguments) check(p *Program, f cli.Flag, name, value string, hasValue bool) error {
	switch f.(type) {
	case *cli.BoolFlag:
		if _, err := strconv.ParseBool(value); hasValue && err != nil {
			return a.usage(p, "%s is true or false, not %q", dashes(name), value)
		}
	case *cli.IntFlag:
		if _, err := strconv.Atoi(value); err != nil {
			return a.usage(p, "%s is a number, not %q", dashes(name), value)
		}
	case *cli.DurationFlag:
		if _, err := time.ParseDuration(value); err != nil {
			e := a.usage(p, "%s is a duration such as 5s or 1m30s, not %q", dashes(name), value)
			if n, err := strconv.Atoi(value); err == nil && n >= 0 {
				e.Hint = fmt.Sprintf("%d seconds are %ds; %d milliseconds are %v", n, n, n,
					time.Duration(n)*time.Millisecond)
			}
			return e
		}
	}
	return nil
}

// stray is an argument where none is taken.
func (a *arguments) stray(p *Program, word string) error {
	var names []string
	for _, c := range p.Commands {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	what := "unexpected argument " + strconv.Quote(word)
	if a.command == &p.Command && len(names) > 0 {
		what = strconv.Quote(word) + " is not a command of " + p.Name
	}
	e := a.usage(p, "%s", what)
	switch near := spell.Nearest(word, names); {
	case a.command == &p.Command && p.Elsewhere.Hints[word] != "":
		e.Hint = p.Elsewhere.Hints[word]
	case a.command == &p.Command && near != "":
		e.Err = fmt.Errorf("%s: did you mean %s?", what, near)
	case isPort(word) && a.has("port"):
		e.Hint = "a port is given as --port " + word
	case isPort(word) && a.has("listen"):
		e.Hint = listenHint + word
	case strings.Contains(word, "://") && a.has("url"):
		e.Hint = "a page to open is given as --url " + word
	case a.command.TakesCommand && isProgram(word):
		e.Hint = fmt.Sprintf("to run it with a browser: %s -- %s …", p.Name, word)
	}
	return e
}

// listenHint is for a port that stands elsewhere.
const listenHint = "a port to listen on is given as --listen "

// has reports whether the command has the flag.
func (a *arguments) has(flag string) bool {
	return slices.ContainsFunc(a.command.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), flag) })
}

func isPort(word string) bool {
	_, err := strconv.ParseUint(word, 10, 16)
	return err == nil
}

func isProgram(word string) bool {
	_, err := exec.LookPath(word)
	return err == nil
}
