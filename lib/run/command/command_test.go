//go:build unix

package command

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	urfave "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/flags"
	"btools/lib/record"
	"btools/lib/run"
	awaitcommand "btools/lib/waitfor/command"
)

// program runs a program that holds a browser for its command, and returns its exit code and what it printed.
// It calls serving as soon as its browser is served.
func program(t *testing.T, at run.Endpoint, serving func(), args ...string) (code int, out, errs string) {
	t.Helper()
	var files [2]*os.File
	for i := range files {
		var err error
		if files[i], err = os.Create(t.TempDir() + "/out"); err != nil {
			t.Fatal(err)
		}
		defer files[i].Close()
	}
	browser := record.New()
	browser.MustSet("instance", map[string]string{"id": "inst_1"})
	do := func(c *cli.Context) error {
		m, err := Read(c, nil, "wait")
		if err != nil {
			return err
		}
		ctx, stop, _ := m.Begin(m.Owner, false)
		defer stop(nil)
		serve := func(ctx context.Context) error {
			serving()
			<-ctx.Done()
			return nil
		}
		return m.Serve(ctx, stop, serve, browser, func() (run.Endpoint, error) { return at, nil })
	}
	code = cli.Run(&cli.Env{Args: append([]string{"bprog"}, args...), Stdin: files[0], Stdout: files[0],
		Stderr: files[1], Getenv: os.Getenv}, &cli.Program{Command: cli.Command{Name: "bprog", TakesCommand: true,
		Do: do, Flags: append(append(append([]urfave.Flag{&urfave.BoolFlag{Name: "wait"},
			&urfave.DurationFlag{Name: "stop-timeout", Value: time.Second}}, awaitcommand.Flags("")...),
			flags.Evidence("")...), flags.Owner("", "stop")...)}})
	var texts [2]string
	for i, f := range files {
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(b)
	}
	return code, texts[0], texts[1]
}

// The first of several faults is told, before anything is launched; then the code is that of the command.
func TestPreface(t *testing.T) {
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	nobody := closed.Addr().String()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	gone := strconv.Itoa(ended.Process.Pid)
	for line, want := range map[string]struct {
		code int
		errs string // has this; "": is silent
	}{
		"--field nope --wait -- no-such-program":                     {64, `"nope"`},
		"--wait -- no-such-program":                                  {64, "--wait"},
		"--wait-for 3000 -- no-such-program":                         {127, "no-such-program"},
		"--wait-for 3000 -- /dev/null":                               {126, "/dev/null"},
		"--wait-for 3000 --evidence= -- true":                        {64, "--wait-for"},
		"--wait-for " + nobody:                                       {64, "hint: bport --wait"},
		"--wait-timeout 1s -- true":                                  {64, "--wait-for"},
		"--evidence= --bind-pid " + gone + " -- true":                {64, "--evidence"},
		"--evidence-always -- true":                                  {64, "--evidence DIR"},
		"--evidence " + os.DevNull + " -- true":                      {1, "evidence"},
		"--evidence x":                                               {64, "-- CMD"},
		"--bind-pid " + gone + " -- true":                            {64, "--bind-pid"},
		"--bind-fd 1 -- true":                                        {64, "--bind-fd"},
		"--wait-for " + nobody + " --wait-timeout 1ms -- sh -c exit": {75, nobody},
		"-- echo {cdp_endpoint}":                                     {64, run.WSEndpoint},
		"-- false":                                                   {1, ""},
		"-- sh -c exit":                                              {0, ""},
	} {
		code, out, errs := program(t, run.Endpoint{Protocol: record.BiDi, Port: 1}, func() {}, strings.Fields(line)...)
		if code != want.code || out != "" || !strings.Contains(errs, want.errs) || want.errs == "" && errs != "" {
			t.Errorf("%s: exit %d, prints %q and %q; want %d and %q", line, code, out, errs, want.code, want.errs)
		}
	}
	for script, want := range map[string]int{"exit 7": 7, "kill -TERM $$": 143, `test "$BTOOLS_PORT" = 9222`: 0} {
		code, out, errs := program(t, run.Endpoint{Port: 9222}, func() {}, "--", "sh", "-c", script)
		if code != want || out+errs != "" {
			t.Errorf("%s: exit %d, prints %q and %q; want %d and silence", script, code, out, errs, want)
		}
	}
}

// The end of the owner is that of a program without a command, of a command, and of the wait for an application.
func TestOwnerEnds(t *testing.T) {
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	begun := filepath.Join(t.TempDir(), "begun") // a pipe to which the command writes
	if err := syscall.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		args  []string
		begun func() // waits until the program does what it is named for
		code  int
		out   string
	}{
		{"no command", nil, func() {}, 0, `{"v":1,"instance":{"id":"inst_1"}}` + "\n"},
		{"a command", []string{"--", "sh", "-c", "echo > " + begun + "; exec sleep 60"}, func() { os.ReadFile(begun) },
			143, ""},
		{"it waits", []string{"--wait-for", "http://" + silent.Addr().String(), "--", "true"}, func() {
			if conn, err := silent.Accept(); err == nil {
				defer conn.Close()
			}
		}, 1, ""},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := syscall.Dup(int(r.Fd())) // the program's own
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		process := exec.Command("sleep", "60")
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		for _, owner := range []struct {
			flag, name string
			end        func()
		}{
			{"--bind-fd", strconv.Itoa(fd), func() { w.Close() }},
			{"--bind-pid", strconv.Itoa(process.Process.Pid), func() {
				process.Process.Kill()
				process.Wait()
			}},
		} {
			end := func() {
				go func() {
					c.begun()
					owner.end()
				}()
			}
			code, out, errs := program(t, run.Endpoint{}, end, append([]string{owner.flag, owner.name}, c.args...)...)
			if code != c.code || out != c.out {
				t.Errorf("%s %s: exit %d, prints %q and %q; want %d and %q", c.name, owner.flag, code, out, errs,
					c.code, c.out)
			}
		}
	}
}
