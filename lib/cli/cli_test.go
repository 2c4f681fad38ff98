package cli

import (
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"btools/lib/exit"
)

// program is one with every kind of flag.
func program(do func(*Context) error) *Program {
	return &Program{
		Command: Command{
			Name: "bprog", Usage: "do things", TakesCommand: true, Do: do,
			Examples: []string{"bprog -- true"},
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "headless", Usage: "without a window"},
				&cli.IntFlag{Name: "port", DefaultText: "any", Usage: "on port `N`"},
				&cli.StringFlag{Name: "url", Usage: "open `URL`"},
				&cli.StringFlag{Name: "browser", Usage: "launch `TYPE`", EnvVars: []string{"BPROG_BROWSER"}},
				&cli.StringSliceFlag{Name: "arg", Usage: "pass `ARG`"},
				&cli.DurationFlag{Name: "timeout", Value: 15 * time.Second,
					Usage: "within `DURATION`, and here is a text that is long enough for it to be broken into lines"},
			},
		},
		About:     "About it.",
		Elsewhere: Elsewhere{"Lists of others: bother list", map[string]string{"lists": "bother list"}},
		Commands: []*Command{
			{Name: "list", Usage: "list them", Do: do},
			{Name: "serve", Usage: "serve it", Do: do, Flags: []cli.Flag{&cli.StringFlag{Name: "listen",
				Usage: "at `PORT`"}}},
			{Name: "config", Usage: "print it", ArgsUsage: "NAME", TakesCommand: true, Do: do},
		},
	}
}

// try runs the program in a world of its own.
func try(t *testing.T, do func(*Context) error, input string, args ...string) (code int, out, errs string) {
	t.Helper()
	file := func() *os.File {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	in, stdout, stderr := file(), file(), file()
	io.WriteString(in, input)
	in.Seek(0, io.SeekStart)
	env := &Env{Args: append([]string{"bprog"}, args...), Stdin: in, Stdout: stdout, Stderr: stderr,
		Getenv: func(string) string { return "" }}
	code = Run(env, program(do))
	o, _ := os.ReadFile(stdout.Name())
	e, _ := os.ReadFile(stderr.Name())
	return code, string(o), string(e)
}

// The commonest slips are told in words that say what to do.
func TestSlips(t *testing.T) {
	t.Parallel()
	shell := "sh"
	if runtime.GOOS == "windows" {
		shell = "cmd"
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--timeout", "5"}, `--timeout is a duration such as 5s or 1m30s, not "5"`},
		{[]string{"--timeout=30000"}, "30000 milliseconds are 30s"},
		{[]string{"--port", "abc"}, `--port is a number, not "abc"`},
		{[]string{"--port"}, "--port takes a number"},
		{[]string{"--headless=maybe"}, `--headless is true or false, not "maybe"`},
		{[]string{"--headles"}, "there is no option --headles: did you mean --headless?"},
		{[]string{"list", "--nonsense"}, "see bprog list --help"},
		{[]string{"config", "x", "--headless"}, "options for bprog go after --: bprog config … -- --headless"},
		{[]string{shell, "-x", "--posix"}, "to run it with a browser: bprog -- " + shell + " …"},
		{[]string{shell}, "to run it with a browser: bprog -- " + shell + " …"},
		{[]string{"https://example.org"}, "a page to open is given as --url https://example.org"},
		{[]string{"9222"}, "a port is given as --port 9222"},
		{[]string{"serve", "9222"}, "a port to listen on is given as --listen 9222"},
		{[]string{"serve", "--port", "9222"}, "there is no option --port"},
		{[]string{"serve", "--port", "9222"}, "a port to listen on is given as --listen 9222"},
		{[]string{"serve", "--port=9222"}, "a port to listen on is given as --listen 9222"},
		{[]string{"serve", "--port"}, "a port to listen on is given as --listen PORT"},
		{[]string{"lst"}, `"lst" is not a command of bprog: did you mean list?`},
		{[]string{"--headless", "list"}, "list is a command of bprog: put it first"},
		{[]string{"-", "list"}, "list is a command of bprog: put it first"},
		{[]string{"srve", "list"}, `"srve" is not a command of bprog: did you mean serve?`},
		{[]string{"list", "more"}, `unexpected argument "more"`},
		{[]string{"lists", "--nonsense"}, `"lists" is not a command of bprog`},
		{[]string{"lists", "x"}, "hint: bother list"},
		{[]string{"--"}, "no command after --"},
		{[]string{"--output", "xml"}, "--output is json or table"},
	} {
		code, out, errs := try(t, func(*Context) error { return nil }, "", c.args...)
		if code != exit.Usage || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit %d, %q, want %q", c.args, code, errs, c.want)
		}
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	ran := false
	code, _, errs := try(t, func(c *Context) error {
		ran = true
		if !c.Bool("headless") || c.Int("port") != 7 || len(c.StringSlice("arg")) != 2 ||
			c.StringSlice("arg")[0] != "--browser,x" || c.Duration("timeout") != time.Minute {
			t.Errorf("%v %v %q %v", c.Bool("headless"), c.Int("port"), c.StringSlice("arg"), c.Duration("timeout"))
		}
		if c.Given("browser") || !c.Given("port") {
			t.Error("what is given is taken for something else")
		}
		if len(c.Command) != 3 || c.Command[1] != "--browser" {
			t.Errorf("command %q", c.Command)
		}
		return nil
	}, "", "--port", "7", "--headless", "--arg", "--browser,x", "-arg=y", "--timeout", "1m", "--", "cmd", "--browser",
		"x")
	if !ran || code != 0 {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--help"}, {"-h"}, {"help"}, {"--port", "7", "--help"}, {"--help", "--all"},
		{"help", "--all"}} {
		code, out, _ := try(t, nil, "", args...)
		wants := []string{"bprog - do things\n\n  bprog -- true\n\nUsage: bprog", "list    list them", "--port N",
			"\n\nLists of others: bother list\nMore: bprog "}
		if args[len(args)-1] == "--all" {
			wants = append(wants, "(default: 15s)", "(default: any)", "[$BPROG_BROWSER]", "--log-level LEVEL")
		}
		for _, want := range wants {
			if code != 0 || !strings.Contains(out, want) {
				t.Errorf("%q: exit %d, %q is missing in\n%s", args, code, want, out)
			}
		}
		for _, line := range strings.Split(out, "\n") {
			if len([]rune(line)) > 80 {
				t.Errorf("wider than 80 columns: %s", line)
			}
		}
		for _, bad := range []string{"(default: 0)", "(default: false)", "(default: 0s)", "global options"} {
			if strings.Contains(out, bad) {
				t.Errorf("%q in\n%s", bad, out)
			}
		}
	}
	if code, out, _ := try(t, nil, "", "help", "list"); code != 0 ||
		!strings.HasPrefix(out, "bprog list - list them\n") {
		t.Errorf("exit %d, %s", code, out)
	}
	if code, out, _ := try(t, nil, "", "version"); code != 0 || out != "bprog "+Release()+"\n" {
		t.Errorf("exit %d, %s", code, out)
	}
	code, out, _ := try(t, nil, "", "--version", "--output", "json")
	if want := `{"program":"bprog","version":"` + Release() + `","go":"`; code != 0 || !strings.HasPrefix(out, want) {
		t.Errorf("exit %d, %s", code, out)
	}
}

// An input without a record is told; "-" demands one.
func TestEmptyInput(t *testing.T) {
	t.Parallel()
	read := func(c *Context) error {
		_, err := c.FirstRecord("doing without")
		return err
	}
	if code, _, errs := try(t, read, ""); code != 0 ||
		!strings.Contains(errs, "no record came on standard input: doing without") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if code, _, errs := try(t, read, "", "-"); code != exit.Data ||
		!strings.Contains(errs, "no record came on standard input") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestInputIDs(t *testing.T) {
	t.Parallel()
	var got []string
	read := func(c *Context) (err error) {
		got, err = c.InputIDs("instance", "name them")
		return err
	}
	if code, _, errs := try(t, read, "a\n\n{\"instance\":{\"id\":\"b\"}}\n c \n", "-"); code != 0 ||
		strings.Join(got, " ") != "a b c" {
		t.Errorf("exit %d, %q, %s", code, got, errs)
	}
	for _, bad := range []string{"two words\n", "{\"lease\":{\"id\":\"x\"}}\n", "{\n"} {
		if code, _, errs := try(t, read, bad, "-"); code != exit.Data {
			t.Errorf("%q: exit %d, %s", bad, code, errs)
		}
	}
}

// A table fits where it is shown: spare columns go first, the end is cut last.
func TestTableFits(t *testing.T) {
	t.Parallel()
	cols := []Column{{Head: "ID", Field: "id"}, {Head: "NOTE", Field: "note", Spare: 1}, {Head: "PATH", Field: "path"}}
	var b strings.Builder
	tab := &table{w: &b, cols: cols}
	show := func(width int) string {
		b.Reset()
		tab.width = width
		tab.add([]byte(`{"id":"x1","note":"a note","path":"/some/long/path"}`))
		if err := tab.flush(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for width, want := range map[int]string{
		0:  "ID  NOTE    PATH\nx1  a note  /some/long/path\n",
		27: "ID  NOTE    PATH\nx1  a note  /some/long/path\n",
		26: "ID  PATH\nx1  /some/long/path\n",
		12: "ID  PATH\nx1  /some/l…\n",
	} {
		if got := show(width); got != want {
			t.Errorf("width %d:\n%swant\n%s", width, got, want)
		}
	}
}

// What is long and rare has a line of its own, below its row.
func TestTableBelow(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	tab := &table{w: &b, width: 20, cols: []Column{{Head: "ID", Field: "id"},
		{Head: "ERROR", Field: "error", Below: true},
		{Head: "N", Field: "n"}}}
	tab.add([]byte(`{"id":"x1","error":"there is no display","n":1}`))
	tab.add([]byte(`{"id":"x2","n":2}`))
	if err := tab.flush(); err != nil || b.String() != "ID  N\nx1  1\n    there is no dis…\nx2  2\n" {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// Nobody who does not read standard error holds a program up.
func TestUnreadMessages(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	m := NewDroppingWriter(w)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 5000 {
			m.Write([]byte(strings.Repeat("x", 100) + "\n"))
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it still waits to be read")
	}
}
