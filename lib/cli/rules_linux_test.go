package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"btools/lib/exit"
	"btools/lib/record"
	"btools/lib/terminal/ptytest"
)

// The rules of the package comment, one test each.

// open opens a file that is closed when the test ends.
func open(t *testing.T, name string, flag int) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// pipe has a record in it, and nobody who writes more.
func pipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	io.WriteString(w, `{"port":1}`+"\n")
	w.Close()
	return r
}

func file(t *testing.T) *os.File {
	t.Helper()
	name := t.TempDir() + "/input"
	if err := os.WriteFile(name, []byte(`{"port":1}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return open(t, name, os.O_RDONLY)
}

func socket(t *testing.T) *os.File {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := c.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// runWith runs the program with these streams, and returns its code and messages.
func runWith(t *testing.T, stdin, stdout *os.File, do func(*Context) error, args ...string) (code int, errs string) {
	t.Helper()
	stderr := open(t, t.TempDir()+"/stderr", os.O_CREATE|os.O_RDWR)
	code = Run(&Env{Args: append([]string{"bprog"}, args...), Stdin: stdin, Stdout: stdout, Stderr: stderr,
		Getenv: func(string) string { return "" }}, program(do))
	b, err := os.ReadFile(stderr.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(b)
}

func TestWhatInputIsRead(t *testing.T) {
	t.Parallel()
	null := func(t *testing.T) *os.File { return open(t, os.DevNull, os.O_RDWR) }
	tty := func(t *testing.T) *os.File { _, tty := ptytest.Open(t); return tty }
	for name, c := range map[string]struct {
		stdin func(*testing.T) *os.File
		args  string
		read  bool
	}{
		"a pipe":                            {pipe, "", true},
		"a file":                            {file, "", true},
		"not a terminal":                    {tty, "", false},
		"not a device":                      {null, "", false},
		"not a socket":                      {socket, "", false},
		"not the command's":                 {pipe, "-- cat", false},
		"the command's, as - says":          {pipe, "- -- cat", true},
		"nothing with --no-input":           {pipe, "--no-input", false},
		"nothing with --no-input, not by -": {pipe, "--no-input -", false},
	} {
		t.Run(name, func(t *testing.T) {
			var rec *record.Record
			code, errs := runWith(t, c.stdin(t), null(t), func(c *Context) (err error) {
				rec, err = c.FirstRecord("")
				return err
			}, strings.Fields(c.args)...)
			if code != 0 || rec != nil != c.read {
				t.Errorf("exit %d, %s; a record was read: %v, want %v", code, errs, rec != nil, c.read)
			}
		})
	}
	t.Run("- demands a record", func(t *testing.T) {
		code, errs := runWith(t, null(t), null(t), func(c *Context) error {
			_, err := c.FirstRecord("")
			return err
		}, "-")
		if code != 65 || !strings.Contains(errs, "bprog: hint: ") {
			t.Errorf("exit %d, %s; want 65 and a hint", code, errs)
		}
	})
	t.Run("what is not a record", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		io.WriteString(w, "garbage\n")
		w.Close()
		code, errs := runWith(t, r, null(t), func(c *Context) error {
			_, err := c.FirstRecord("")
			return err
		})
		if code != 65 || !strings.Contains(errs, "line 1") || !strings.Contains(errs, "--no-input") {
			t.Errorf("exit %d, %s; want 65, the line and what to do", code, errs)
		}
	})
}

// A program whose input does not come says what it waits for.
func TestInputThatDoesNotCome(t *testing.T) {
	t.Parallel()
	stdin, late, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	said, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	defer stderr.Close()
	go func() {
		b := make([]byte, 1000)
		n, _ := said.Read(b)
		fmt.Fprintf(late, "{\"said\":%q}\n", b[:n]) // only then
		late.Close()
	}()
	code := Run(&Env{Args: []string{"bprog"}, Stdin: stdin, Stdout: open(t, os.DevNull, os.O_WRONLY), Stderr: stderr,
		Getenv: func(string) string { return "" }}, program(func(c *Context) error {
		rec, err := c.FirstRecord("")
		if err != nil {
			return err
		}
		if said := string(rec.Raw("said")); !strings.Contains(said, "bprog: waiting for records on standard input") {
			t.Errorf("it says %s, want what it waits for", said)
		}
		return nil
	}))
	if code != 0 {
		t.Errorf("exit %d, want 0", code)
	}
}

// write is a command that prints two records.
func write(c *Context) error {
	cols := []Column{{Head: "PORT", Field: "port"}, {Head: "ID", Field: "instance.id"}}
	out, err := c.Output(cols, Schema(nil), nil)
	if err != nil {
		return err
	}
	for line := range strings.Lines(asRecords) {
		rec, err := record.Parse([]byte(line))
		if err != nil {
			return err
		}
		if err := out.Write(rec); err != nil {
			return err
		}
	}
	return out.Close()
}

const (
	asRecords = `{"v":1,"port":7.0,"instance":{"id":"a\tb\u001b","http_url":null},"x":{"y":1.0}}` + "\n" + `{"v":1}` +
		"\n"
	asTable = "PORT  ID\n7.0   a\\tb\\x1b\n\n"
)

// Standard output is a table on a terminal and records elsewhere, unless
// --output or --field say what it is.
func TestFormOfTheOutput(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		terminal bool
		args     string
		want     string
	}{
		"records":                    {false, "", asRecords},
		"a table on a terminal":      {true, "", asTable},
		"records on a terminal":      {true, "--output json", asRecords},
		"a table in a file":          {false, "--output=table", asTable},
		"fields":                     {false, "-f port,instance.id,instance.http_url", "7.0\ta\\tb\x1b\t\n"},
		"fields on a terminal":       {true, "--field instance.id", "a\\tb\\x1b\n"},
		"a whole member as a field":  {false, "-f v,instance", "1\t{\"id\":\"a\\tb\\u001b\",\"http_url\":null}\n1\t\n"},
		"a field with spaces around": {false, "--field= v", "1\n1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout := open(t, t.TempDir()+"/stdout", os.O_CREATE|os.O_RDWR)
			read := func() string { b, _ := os.ReadFile(stdout.Name()); return string(b) }
			if c.terminal {
				var master *os.File
				master, stdout = ptytest.Open(t)
				read = func() string {
					io.WriteString(stdout, "\x00") // the end of it
					var got strings.Builder
					for b := make([]byte, 1); ; got.WriteByte(b[0]) {
						if _, err := master.Read(b); err != nil || b[0] == 0 {
							return strings.ReplaceAll(got.String(), "\r\n", "\n")
						}
					}
				}
			}
			args := strings.Split(c.args, " ")
			if c.args == "" {
				args = nil
			} else if strings.HasSuffix(args[0], "=") {
				args = []string{c.args}
			}
			code, errs := runWith(t, open(t, os.DevNull, os.O_RDONLY), stdout, write, args...)
			if got := read(); code != 0 || errs != "" || got != c.want {
				t.Errorf("exit %d, %q, prints\n%q, want\n%q", code, errs, got, c.want)
			}
		})
	}
}

// A field that no record can have is an error before anything is done.
func TestFieldsAreCheckedFirst(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"nonsense", "instance.nonsense", "port.x", "instance.", "", "v,,port", "instance.ID"} {
		done := false
		code, out, errs := try(t, func(c *Context) error {
			if _, err := c.Output(nil, Schema(nil), nil); err != nil {
				return err
			}
			done = true
			return nil
		}, "", "--field", bad)
		if code != 64 || out != "" || done || !strings.Contains(errs, "field") {
			t.Errorf("--field %q: exit %d, %q, done: %v; want 64 and nothing done", bad, code, errs, done)
		}
	}
	known, err := record.Parse([]byte(`{"x":{"y":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	code, _, errs := try(t, func(c *Context) error {
		_, err := c.Output(nil, Schema(map[string]any{"proxies": nil}), known)
		return err
	}, "", "--field", "x.y,proxies,lease.id")
	if code != 0 {
		t.Errorf("exit %d, %s; want fields of the input and of the program to be known", code, errs)
	}
	code, _, errs = try(t, write, "", "-f", "v", "--output", "json")
	if code != 64 || !strings.Contains(errs, "exclude") {
		t.Errorf("exit %d, %s; want 64, as --output and --field exclude each other", code, errs)
	}
}

// A result that cannot be written is an error, in each of its forms.
func TestFullOutput(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"-f", "v"}, {"--output", "table"}} {
		code, errs := runWith(t, open(t, os.DevNull, os.O_RDONLY), open(t, "/dev/full", os.O_WRONLY), write, args...)
		if code != 1 || !strings.Contains(errs, "cannot write the result: ") {
			t.Errorf("%q: exit %d, %q; want 1: cannot write the result", args, code, errs)
		}
	}
}

// An error is told once, in a line with the program's name, and carries its
// exit code through whatever context is added to it.
func TestErrorsAndCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
		errs string
	}{
		{nil, 0, ""},
		{errors.New("no"), 1, "bprog: no\n"},
		{exit.Errorf(exit.TryAgain, "port %d is taken", 7), 75, "bprog: port 7 is taken\n"},
		{fmt.Errorf("cannot launch: %w", &exit.Error{Code: 69, Err: errors.New("no display"), Hint: "use xvfb-run"}),
			69, "bprog: cannot launch: no display\nbprog: hint: use xvfb-run\n"},
		{exit.Status(143), 143, ""},
		{fmt.Errorf("%w", exit.Status(7)), 7, ""},
		{errors.New("\x1b[2Jit says \u202eoops"), 1, "bprog: \\x1b[2Jit says \\u202eoops\n"},
	} {
		code, out, errs := try(t, func(*Context) error { return c.err }, "")
		if code != c.code || errs != c.errs || out != "" {
			t.Errorf("%v: exit %d, %q, prints %q; want exit %d, %q", c.err, code, errs, out, c.code, c.errs)
		}
	}
}

func TestLogLevelAndFormat(t *testing.T) {
	t.Parallel()
	do := func(c *Context) error {
		c.Log.Debug("one")
		c.Log.Info("two", "key", "a value", "empty", "", "plain", 7)
		c.Log.With("more", "x").Warn("three\x1b")
		c.Log.Error("four")
		return nil
	}
	all := []string{"bprog: one\n", `bprog: two key="a value" empty="" plain=7` + "\n",
		"bprog: warning: three\\x1b more=x\n", "bprog: four\n"}
	for level, from := range map[string]int{"debug": 0, "info": 1, "warn": 2, "error": 3} {
		if _, _, errs := try(t, do, "", "--log-level", level); errs != strings.Join(all[from:], "") {
			t.Errorf("--log-level %s:\n%s want\n%s", level, errs, strings.Join(all[from:], ""))
		}
	}
	_, _, errs := try(t, do, "", "--log-level=error", "--log-format=json")
	if !strings.HasPrefix(errs, "{") || !strings.Contains(errs, `"msg":"four","program":"bprog"}`) {
		t.Errorf("as JSON: %q, want an object with the message and the program", errs)
	}
	// Then all lines are JSON: errors, also of the arguments, and what other programs say.
	for _, c := range []struct {
		do   func(*Context) error
		args []string
		want []string
	}{
		{func(*Context) error {
			return &exit.Error{Code: 69, Err: errors.New("no\ndisplay"), Hint: "use xvfb-run"}
		},
			[]string{"--log-format", "json"},
			[]string{`"level":"ERROR","msg":"no\ndisplay","program":"bprog","hint":"use xvfb-run"}`}},
		{do, []string{"--log-format=json", "--nothing"}, []string{`"msg":"there is no option --nothing`}},
		{func(c *Context) error {
			for _, part := range []string{"other: one\n\n{\"msg\":", "\"two\"}\nthree", "\n"} {
				io.WriteString(c.Messages, part)
			}
			return nil
		}, []string{"--log-format=json"}, []string{`"msg":"other: one","program":"bprog"}`, `{"msg":"two"}`,
			`"msg":"three"`}},
	} {
		_, _, errs := try(t, c.do, "", c.args...)
		lines := strings.Split(strings.TrimSuffix(errs, "\n"), "\n")
		if len(lines) != len(c.want) {
			t.Errorf("%q prints\n%s", c.args, errs)
			continue
		}
		for i, l := range lines {
			if !json.Valid([]byte(l)) || !strings.Contains(l, c.want[i]) {
				t.Errorf("%q prints %s, want %s", c.args, l, c.want[i])
			}
		}
	}
	for flag, want := range map[string]string{
		"--log-level=loud": "debug or info or warn or error", "--log-format=xml": "text or json",
	} {
		if code, _, errs := try(t, do, "", flag); code != 64 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %q; want 64 and %q", flag, code, errs, want)
		}
	}
}

// A flag goes before the environment, and that before the default.
func TestPrecedence(t *testing.T) {
	t.Setenv("BPROG_BROWSER", "firefox")
	t.Setenv("BTOOLS_LOG_LEVEL", "error")
	for flag, want := range map[string]string{"--headless": "firefox false", "--browser=chrome": "chrome true"} {
		var got string
		_, _, errs := try(t, func(c *Context) error {
			got = fmt.Sprint(c.String("browser"), " ", c.Given("browser"))
			c.Log.Warn("not told")
			return nil
		}, "", flag)
		if got != want || errs != "" {
			t.Errorf("%s: %q, and says %q; want %q, and silence", flag, got, errs, want)
		}
	}
}

// --help and --version do nothing else, wherever they are.
func TestHelpAndVersionDoNothing(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--help", "-h", "help", "version", "--version", "list --help", "help config",
		"list --version", "--log-level loud --help", "unexpected --help", "--help -- cmd"} {
		done := false
		code, out, errs := try(t, func(*Context) error { done = true; return nil }, "", strings.Fields(args)...)
		if code != 0 || out == "" || errs != "" || done {
			t.Errorf("%s: exit %d, %q, messages %q, done: %v; want only a text", args, code, out, errs, done)
		}
	}
}

// What a program is to be started with later is checked now, and nothing of
// it happens.
func TestParse(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"--port 7": "", "--port x": "--port is a number", "--prot 7": "did you mean --port?",
		"list": "unexpected argument", "--help": "only prints something", "--port 8": "eight is too many",
	} {
		code, out, errs := try(t, func(c *Context) error {
			return c.Parse(strings.Fields(words), func(c *Context) error {
				if c.Int("port") == 8 {
					return c.UsageError("eight is too many")
				}
				return nil
			})
		}, "")
		wantCode := exit.Usage
		if want == "" {
			wantCode = 0
		}
		if out != "" || code != wantCode || !strings.Contains(errs, want) {
			t.Errorf("%q: exit %d, prints %q and %q; want exit %d and %q", words, code, out, errs, wantCode, want)
		}
	}
}

// Paths that travel as JSON must survive that.
func TestPathsAreUTF8(t *testing.T) {
	t.Parallel()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, name := range []string{"TMPDIR", "BTOOLS_STATE"} {
		code := Run(&Env{Args: []string{"bprog"}, Stdin: null, Stdout: null, Stderr: null,
			Getenv: func(n string) string {
				if n == name {
					return "/tmp/\xff"
				}
				return ""
			}}, program(func(*Context) error { return nil }))
		if code != 64 {
			t.Errorf("%s that is not UTF-8: exit %d, want 64", name, code)
		}
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	for ago, want := range map[time.Duration]string{
		5500 * time.Millisecond: "5s", 119 * time.Second: "1m", 3*time.Hour + 59*time.Minute: "3h",
		47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		if got := Age(time.Now().Add(-ago).Format(time.RFC3339Nano)); got != want {
			t.Errorf("%v ago is %q, want %q", ago, got, want)
		}
	}
	if got := Age("never"); got != "never" {
		t.Errorf("what is not a time is %q, want it as it is", got)
	}
}
