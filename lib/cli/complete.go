package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"btools/lib/record"
	"btools/lib/shellwords"
	"btools/lib/terminal"
)

// completeWord is the hidden first word by which a shell asks what can stand at
// the end of a command line, which is the second word:
//
//	$ bpool __complete 'bpool drain --off A'
//	values	A
//	A	2 instances, 1 leased
//
// The first line of the answer has the word that is completed, and says what it
// can be besides the values that follow, each with what it is: files,
// directories, or what the command after the first "--" takes. The values begin
// with the whole word, --flag= and the head of a list included.
const completeWord = "__complete"

// completeBound is how long an answer may take. What is known by then is told.
var completeBound = time.Second // tests have a longer one

// maxAbout is the widest that a description of a value gets, in columns.
const maxAbout = 60

// Values offers the values of a flag or an argument. It never blocks for long,
// starts nothing and says nothing. The words before tell it what else is given.
type Values func(*Completion)

// Completion is a value that is being typed.
type Completion struct {
	*Context        // as it would be with the words before: flags that are wrong are left out
	Word     string // what there is of the value

	mu      sync.Mutex
	head    string // of the word, before the value
	how     string
	answers []string
}

// Offer offers a value if it begins as the word does. It may be called by several
// goroutines at a time. Values that would be commands to a terminal are left out.
func (c *Completion) Offer(value, about string) {
	given := strings.FieldsFunc(c.head, func(r rune) bool { return r == ',' || r == '=' })
	if value == "" || !strings.HasPrefix(value, c.Word) || slices.Contains(given, value) ||
		strings.ContainsAny(value, "\t\n") || terminal.Printable(value) != value {
		return
	}
	about = cut(strings.Join(strings.Fields(terminal.Printable(about)), " "), maxAbout)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, strings.TrimSuffix(c.head+value+"\t"+about, "\t"))
}

// Begin moves the first bytes of the word to what stands before the value.
func (c *Completion) Begin(n int) { c.head, c.Word = c.head+c.Word[:n], c.Word[n:] }

// besides says what the word can be besides the values: files rather than
// directories.
func (c *Completion) besides(how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.how != "files" {
		c.how = how
	}
}

// Of offers these values.
func Of(values ...string) Values {
	return func(c *Completion) {
		for _, v := range values {
			c.Offer(v, "")
		}
	}
}

// Files offers files, and Directories directories.
func Files(c *Completion)       { c.besides("files") }
func Directories(c *Completion) { c.besides("directories") }

// Programs offers the programs that begin so: all that there are would be of no
// use.
func Programs(c *Completion) {
	if strings.Contains(c.Word, "/") {
		Files(c)
	} else if c.Word == "" {
		return
	}
	for _, dir := range filepath.SplitList(c.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), c.Word) {
				continue
			}
			if st, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && !st.IsDir() && st.Mode()&0o111 != 0 {
				c.Offer(e.Name(), "")
			}
		}
	}
}

// fields offers the dotted names of the members of records: see Schema.
func fields(also map[string]any) Values {
	return func(c *Completion) {
		s := Schema(also)
		for _, name := range slices.Sorted(maps.Keys(s)) {
			if s[name] == nil {
				c.Offer(name, "")
				continue
			}
			offerMembers(c, name, reflect.TypeOf(s[name]))
		}
	}
}

func offerMembers(c *Completion, name string, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "" || tag == "-" {
			continue
		}
		c.Offer(name+"."+tag, "")
	}
}

// OwnArguments are the arguments of the program itself, after "--".
func OwnArguments(c *Completion) {
	p := *c.program
	p.Commands = nil
	c.words(&p, append(slices.Clone(c.Command), c.Word))
}

// known are the placeholders that mean the same everywhere.
var known = map[string]Values{"FILE": Files, "DIR": Directories, "CMDLINE": Programs, "TYPE": Of(record.Types...),
	"--field": fields(nil)}

// values returns what a flag or placeholder can have, nil if nobody has said.
func (c *Completion) values(key string) Values {
	if p := c.usage.command.Prints; p != nil && key == "--field" {
		return fields(p.Members)
	}
	for _, table := range []map[string]Values{c.usage.command.Values, c.program.Values, known} {
		if v := table[key]; v != nil {
			return v
		}
	}
	return nil
}

// complete answers a shell.
func complete(env *Env, p *Program, line string) {
	words := shellwords.Begun(line)
	if i := slices.IndexFunc(words, func(w string) bool { return filepath.Base(w) == p.Name }); i >= 0 {
		words = words[i:] // what stands before it runs it
	}
	if len(words) < 2 {
		return
	}
	c := &Completion{Context: &Context{Env: env}, how: "values"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.words(p, words[1:])
	}()
	select {
	case <-done:
	case <-time.After(completeBound):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := bufio.NewWriter(env.Stdout)
	fmt.Fprintf(w, "%s\t%s\n", c.how, words[len(words)-1])
	for _, a := range c.answers {
		fmt.Fprintln(w, a)
	}
	w.Flush()
}

// words completes the last one of a program's arguments.
func (c *Completion) words(p *Program, words []string) {
	words, word := words[:len(words)-1], words[len(words)-1]
	for i, w := range words {
		if strings.HasPrefix(w, "~/") {
			words[i] = c.Home() + w[1:]
		}
	}
	c.Word = word
	at := slices.Index(words, "--")
	var after []string
	if at >= 0 {
		words, after = words[:at], words[at+1:]
	}
	a, _ := parse(p, words)
	args := slices.DeleteFunc(a.rest, func(w string) bool { return w == "-" })
	if !a.command.TakesCommand {
		args = append(args, after...)
	}
	// The library has the flags' values: those of the environment too.
	app := &cli.App{
		HideHelp: true, HideVersion: true, DisableSliceFlagSeparator: true, Writer: io.Discard, ErrWriter: io.Discard,
		Flags:          append(slices.Clone(a.command.Flags), append(commonFlags(), helpFlags()...)...),
		ExitErrHandler: func(*cli.Context, error) {},
		Action: func(u *cli.Context) error {
			c.Context = &Context{Context: u, Env: c.Env, Name: p.Name, Log: slog.New(slog.DiscardHandler),
				Messages: io.Discard, args: args, usage: a, program: p}
			if at >= 0 {
				c.Command = after
			}
			c.word(at >= 0, len(words) == 0)
			return nil
		},
	}
	app.RunContext(context.Background(), append([]string{p.Name}, a.flags...))
}

// word completes the word: after "--" or not, and as the first or not.
func (c *Completion) word(after, first bool) {
	flag, value, hasValue := strings.Cut(c.Word, "=")
	command := c.usage.command
	switch {
	case c.usage.open != nil:
		c.flag(c.usage.open)
	case after && command.TakesCommand:
		if v := c.values("--"); v != nil {
			v(c)
		} else {
			c.besides("command")
		}
	case !after && strings.HasPrefix(flag, "-") && hasValue:
		c.Begin(len(c.Word) - len(value))
		for _, f := range c.flags() {
			if slices.Contains(f.Names(), strings.TrimLeft(flag, "-")) {
				c.flag(f)
			}
		}
	case !after && strings.HasPrefix(flag, "-"):
		c.options()
	default:
		if first {
			for _, o := range c.program.Commands {
				if !o.Hidden {
					c.Offer(o.Name, o.Usage)
				}
			}
		}
		c.argument(strings.Fields(command.ArgsUsage), len(c.args))
		if !after && c.Word == "" && len(c.answers) == 0 && c.how == "values" {
			c.options()
		}
	}
}

func (c *Completion) flags() []cli.Flag {
	return slices.Concat(c.usage.command.Flags, commonFlags(), helpFlags())
}

// options offers the flags that can be given, or given again.
func (c *Completion) options() {
	for _, f := range c.flags() {
		_, again := f.(*cli.StringSliceFlag)
		given := slices.ContainsFunc(f.Names(), func(n string) bool { return c.usage.given[n] })
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() || given && !again {
			continue
		}
		usage := strings.ReplaceAll(f.(cli.DocGenerationFlag).GetUsage(), "`", "")
		usage, _, _ = strings.Cut(usage, " (")
		c.Offer(dashes(f.Names()[0]), usage)
	}
}

// flag offers the values of a flag.
func (c *Completion) flag(f cli.Flag) {
	_, rest, _ := strings.Cut(f.(cli.DocGenerationFlag).GetUsage(), "`")
	placeholder, _, _ := strings.Cut(rest, "`")
	if strings.Contains(placeholder, ",") {
		c.Begin(strings.LastIndex(c.Word, ",") + 1)
	}
	if v := c.values("--" + f.Names()[0]); v != nil {
		v(c)
		return
	}
	c.placeholder(placeholder)
}

// argument offers what the argument can be that follows so many, by the usage of
// all. One that can be left out leaves its place to the next.
func (c *Completion) argument(usage []string, n int) {
	last := len(usage) - 1
	if last >= 0 && n > last && strings.Contains(usage[last], "…") {
		n = last
	}
	if n > last {
		return
	}
	c.placeholder(usage[n])
	if usage[n][0] == '[' && n < last {
		c.placeholder(usage[n+1])
	}
}

// placeholder offers what stands for a placeholder, such as PORT, [POOL],
// FILE.mjpeg|DIR or on|off.
func (c *Completion) placeholder(usage string) {
	usage = strings.NewReplacer("[", "", "]", "", "…", "").Replace(usage)
	if v := c.values(usage); v != nil {
		v(c)
		return
	}
	usage, _, _ = strings.Cut(usage, ",")
	for _, name := range strings.Split(usage, "|") {
		name, _, _ = strings.Cut(name, ".")
		if v := c.values(name); v != nil {
			v(c)
		} else if name == strings.ToLower(name) {
			c.Offer(name, "")
		}
	}
}
