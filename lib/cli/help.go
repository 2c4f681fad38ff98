package cli

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"btools/lib/lazy"
	"btools/lib/terminal"
)

// maxHelp is the widest that help texts get, in columns: longer lines are
// hard to read.
const maxHelp = 100

// help prints what a program, or one of its commands, is for. A program's own
// is a screen with examples, the options of Common and the commands' names,
// unless all is asked for.
func help(w io.Writer, p *Program, c *Command, width int, all bool) {
	h := &helper{w, min(width, maxHelp)}
	if c != &p.Command {
		name := p.Name + " " + c.Name
		h.wrap(0, name+" - "+c.Usage)
		h.line("")
		h.examples(c)
		h.synopsis(p, c, name)
		h.options(c)
		h.line("\nMore: man " + p.Name)
		return
	}
	h.wrap(0, p.Name+" - "+c.Usage)
	h.line("")
	h.examples(c)
	h.synopsis(p, c, p.Name)
	if p.About != "" && (all || c.Common == nil) {
		h.line("")
		h.wrap(0, p.About)
	}
	details := "man " + p.Name
	if len(p.Commands) > 0 {
		details = p.Name + " COMMAND --help, " + details
	}
	if all {
		h.commands(p, true)
		h.options(c)
		h.more(p, details)
		return
	}
	if len(c.Flags) > 0 {
		h.line("\nOptions:")
		var rows [][2]string
		for _, category := range categories(c.Flags) {
			for _, f := range category.flags {
				if c.Common == nil || slices.Contains(c.Common, f.Names()[0]) {
					rows = append(rows, row(f))
				}
			}
		}
		h.short(rows)
	}
	h.commands(p, false)
	h.more(p, p.Name+" --help --all, "+details)
}

// more says where the rest is.
func (h *helper) more(p *Program, details string) {
	h.line("")
	if p.Elsewhere.Line != "" {
		h.wrap(0, p.Elsewhere.Line)
	}
	h.line("More: " + details)
}

func (h *helper) examples(c *Command) {
	for _, e := range c.Examples {
		h.line("  " + e)
	}
	if len(c.Examples) > 0 {
		h.line("")
	}
}

// commands lists a program's commands: each with its usage, or those of a group
// in a row.
func (h *helper) commands(p *Program, all bool) {
	var rows [][2]string
	for _, c := range p.Commands {
		switch {
		case c.Hidden:
		case all || c.Group == "":
			rows = append(rows, [2]string{c.Name, c.Usage})
		default:
			i := slices.IndexFunc(rows, func(r [2]string) bool { return r[0] == c.Group })
			if i < 0 {
				rows = append(rows, [2]string{c.Group, c.Name})
			} else {
				rows[i][1] += ", " + c.Name
			}
		}
	}
	switch {
	case len(rows) == 0:
	case all:
		h.line("\nCommands:")
		h.rows(rows)
	default:
		h.line("\nCommands:")
		h.short(rows)
	}
}

// options lists a command's options by their categories, and those of every program.
func (h *helper) options(c *Command) {
	for _, category := range categories(c.Flags) {
		h.line("\n" + category.name)
		var rows [][2]string
		for _, f := range category.flags {
			rows = append(rows, row(f))
		}
		h.rows(rows)
	}
	h.line("\nOf every program:")
	h.wrap(2, "--output json|table, --field NAME[,NAME] (-f), --no-input, --log-level LEVEL, --log-format text|json, "+
		"--help, --version: see btools(7)")
}

type helper struct {
	w     io.Writer
	width int
}

func (h *helper) line(s string) { fmt.Fprintln(h.w, s) }

// synopsis is the ways to call it.
func (h *helper) synopsis(p *Program, c *Command, name string) {
	line := "Usage: " + name
	if len(c.Flags) > 0 {
		line += " [OPTIONS]"
	}
	if u := argsUsage(c); u != "" {
		line += " " + u
	}
	if c != &p.Command || c.Do != nil {
		h.line(line)
	}
	if c == &p.Command && len(p.Commands) > 0 {
		start := "Usage: "
		if c.Do != nil {
			start = "       "
		}
		h.line(start + name + " COMMAND [OPTIONS]")
	}
}

// more begins the part of a usage that the rest stands without.
var more = lazy.Regexp(`; | \(`)

// short prints rows that don't need more than a line without what is in
// parentheses or after a semicolon.
func (h *helper) short(rows [][2]string) {
	left := 0
	for _, r := range rows {
		left = max(left, utf8.RuneCountInString(r[0]))
	}
	for i, r := range rows {
		room := h.width - min(left, names) - 4
		ends := more().FindAllStringIndex(r[1], -1)
		for utf8.RuneCountInString(rows[i][1]) > room && len(ends) > 0 {
			rows[i][1] = r[1][:ends[len(ends)-1][0]]
			ends = ends[:len(ends)-1]
		}
	}
	h.rows(rows)
}

// names is the widest that names get, in columns: a longer one has a line of its
// own.
const names = 26

// rows prints names and what they mean, in two columns.
func (h *helper) rows(rows [][2]string) {
	left := 0
	for _, r := range rows {
		if n := utf8.RuneCountInString(r[0]); n <= names {
			left = max(left, n)
		}
	}
	for _, r := range rows {
		n := utf8.RuneCountInString(r[0])
		text := terminal.Fill(r[1], h.width-left-4)
		if n > left {
			h.line("  " + r[0])
		} else {
			h.line("  " + r[0] + strings.Repeat(" ", left-n+2) + text[0])
			text = text[1:]
		}
		for _, t := range text {
			h.line(strings.Repeat(" ", left+4) + t)
		}
	}
}

// wrap prints a paragraph.
func (h *helper) wrap(indent int, text string) {
	for _, l := range terminal.Fill(text, h.width-indent) {
		h.line(strings.Repeat(" ", indent) + l)
	}
}

type category struct {
	name  string
	flags []cli.Flag
}

// categories are the flags by their categories, in the order of the flags.
func categories(flags []cli.Flag) (all []category) {
	for _, f := range flags {
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
			continue
		}
		name := "Options:"
		if c, ok := f.(cli.CategorizableFlag); ok && c.GetCategory() != "" {
			name = c.GetCategory()
		}
		i := slices.IndexFunc(all, func(c category) bool { return c.name == name })
		if i < 0 {
			i = len(all)
			all = append(all, category{name: name})
		}
		all[i].flags = append(all[i].flags, f)
	}
	return all
}

// row is a flag with its placeholder, and what it means with its default.
func row(f cli.Flag) [2]string {
	d := f.(cli.DocGenerationFlag)
	usage, placeholder := d.GetUsage(), ""
	if a, rest, ok := strings.Cut(usage, "`"); ok {
		if p, b, ok := strings.Cut(rest, "`"); ok {
			usage, placeholder = a+p+b, " "+p
		}
	}
	var names []string
	for _, n := range f.Names() {
		names = append(names, dashes(n))
	}
	if v := defaultOf(f); v != "" {
		usage += " (default: " + v + ")"
	}
	if env := d.GetEnvVars(); len(env) > 0 {
		usage += " [$" + strings.Join(env, ", $") + "]"
	}
	return [2]string{strings.Join(names, ", ") + placeholder, usage}
}

// defaultOf is a flag's default, "" if it has none or its usage tells it.
func defaultOf(f cli.Flag) string {
	switch f := f.(type) {
	case *cli.StringFlag:
		if f.DefaultText != "" {
			return f.DefaultText
		}
		return f.Value
	case *cli.IntFlag:
		if f.Value != 0 && f.DefaultText == "" {
			return strconv.Itoa(f.Value)
		}
		return f.DefaultText
	case *cli.DurationFlag:
		if f.Value != 0 && f.DefaultText == "" {
			return shortDuration(f.Value)
		}
		return f.DefaultText
	}
	return ""
}

// shortDuration writes 5m0s as 5m.
func shortDuration(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// kindOf says what a flag takes: "" for one without a value.
func kindOf(f cli.Flag) string {
	switch f.(type) {
	case *cli.BoolFlag:
		return ""
	case *cli.IntFlag:
		return "a number"
	case *cli.DurationFlag:
		return "a duration"
	case *cli.StringFlag, *cli.StringSliceFlag:
		return "a value"
	}
	panic("cli: a flag of type " + reflect.TypeOf(f).String())
}
