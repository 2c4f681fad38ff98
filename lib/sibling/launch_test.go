//go:build unix

package sibling

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/exit"
	"btools/lib/proc"
	"btools/lib/record"
)

// patience is how long a test waits before it says that something hangs: a busy
// machine is slow.
const patience = time.Minute

// shell is a Spec whose program is a script; $1 is a directory of the test's
// own.
func shell(t *testing.T, script string) Spec {
	return Spec{Argv: []string{"sh", "-c", script, "sh", t.TempDir()}, Timeout: patience, Grace: patience,
		Stderr: &buffer{}}
}

// buffer is what a program that runs has said so far.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// launch launches what must come up.
func launch(t *testing.T, spec Spec) *Browser {
	t.Helper()
	b, err := Launch(t.Context(), spec)
	if err != nil {
		t.Fatalf("cannot launch: %v", err)
	}
	t.Cleanup(b.Stop)
	return b
}

// processOf is the process whose number the script has written to a file.
func processOf(t *testing.T, spec Spec, file string) proc.Identity {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(spec.Argv[4], file))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	id, err := proc.Of(pid)
	if err != nil {
		return proc.Identity{} // which is not alive
	}
	return id
}

// hasEnded waits until the program has ended.
func hasEnded(t *testing.T, b *Browser) {
	t.Helper()
	select {
	case <-b.Ended():
	case <-time.After(patience):
		t.Fatal("the program still runs")
	}
}

func codeOf(err error) (code int, hint string) {
	var e *exit.Error
	if errors.As(err, &e) {
		return e.Code, e.Hint
	}
	return 0, ""
}

// A launch that fails has the exit code and the words of the program that
// failed, and leaves nothing running.
func TestFailedLaunch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script, message, hint string
		code                  int
	}{
		"its own words":   {"echo 'sh: no display' >&2; echo 'sh: hint: xvfb' >&2; exit 69", "no display", "xvfb", 69},
		"no words":        {"exit 1", "exit status 1", "", 1},
		"no record":       {"exit 0", "sh printed no record", "", 1},
		"try again":       {"exit 75", "75", "", 75},
		"configuration":   {"exit 78", "78", "", 78},
		"wrong usage":     {"exit 64", "64", "", 64},
		"not found":       {"exec " + t.TempDir() + "/none", "not found", "", 69},
		"killed":          {"kill -9 $$", "killed", "", 1},
		"not JSON":        {"echo garbage; exec sleep 1000", "garbage", "", 1},
		"not a browser":   {`echo '{"port":9222}'; exec sleep 1000`, "it has no instance", "", 1},
		"from the future": {`echo '{"v":99}'; exec sleep 1000`, "update btools", "", 1},
		"without a port":  {`echo '{"instance":{}}'; exec sleep 1000`, "no port", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := shell(t, "echo $$ >$1/pid; "+c.script)
			b, err := Launch(t.Context(), spec)
			if err == nil {
				b.Stop()
				t.Fatalf("launched %s, want an error with %q", b.Record.Line(), c.message)
			}
			code, hint := codeOf(err)
			if code != c.code || hint != c.hint || !strings.Contains(err.Error(), c.message) {
				t.Errorf("code %d, %q, hint %q; want code %d, %q, hint %q", code, err, hint, c.code, c.message, c.hint)
			}
			if id := processOf(t, spec, "pid"); id.Alive() {
				t.Errorf("process %d is left", id.PID)
			}
		})
	}
	t.Run("no program", func(t *testing.T) {
		none := t.TempDir() + "/none"
		_, err := Launch(t.Context(), Spec{Argv: []string{none}, Timeout: time.Minute})
		if code, _ := codeOf(err); code != 69 || !strings.Contains(err.Error(), none) {
			t.Errorf("code %d, %v; want 69 and its name", code, err)
		}
	})
}

// Who waits for a record does so within a bound, and may think better of it.
func TestLaunchWithoutEnd(t *testing.T) {
	t.Parallel()
	const script = "echo $$ >$1/pid; echo here >&2; exec sleep 1000"
	t.Run("the time is over", func(t *testing.T) {
		t.Parallel()
		spec := shell(t, script)
		spec.Timeout = time.Second
		_, err := Launch(t.Context(), spec)
		if code, _ := codeOf(err); code != 75 || !strings.Contains(err.Error(), "1s") {
			t.Errorf("code %d, %v; want 75 and the bound", code, err)
		}
		if id := processOf(t, spec, "pid"); id.Alive() {
			t.Errorf("process %d is left", id.PID)
		}
	})
	t.Run("it is cancelled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the host has gone")
		spec := shell(t, script)
		spec.Stderr = writer(func() { cancel(why) }) // it runs
		if _, err := Launch(ctx, spec); err != why {
			t.Errorf("%v, want %v", err, why)
		}
		if id := processOf(t, spec, "pid"); id.Alive() {
			t.Errorf("process %d is left", id.PID)
		}
	})
	t.Run("it was cancelled before", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		spec := shell(t, script)
		if _, err := Launch(ctx, spec); err != context.Canceled {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
		if _, err := os.Stat(filepath.Join(spec.Argv[4], "pid")); err == nil {
			t.Error("the program was run")
		}
	})
}

// writer calls a function for each write.
type writer func()

func (w writer) Write(b []byte) (int, error) {
	w()
	return len(b), nil
}

// The program is given a record, prints one, and writes on: nobody reads
// more than the first line, and it is not held up.
func TestRecordOfTheProgram(t *testing.T) {
	t.Parallel()
	spec := shell(t, `read line; printf '\n \n%s' '{"instance":{"port":9222},"given":'; echo "$line}"
		head -c 1000000 /dev/zero; echo written >&2; exec sleep 1000`)
	written := make(chan struct{})
	spec.Stderr = writer(sync.OnceFunc(func() { close(written) }))
	spec.Input = &record.Record{}
	spec.Input.MustSet("x", 7)
	b := launch(t, spec)
	if got, want := string(b.Record.Raw("given")), `{"v":1,"x":7}`; got != want {
		t.Errorf("its input was %s, want %s", got, want)
	}
	if want := (record.Instance{Host: "127.0.0.1", Port: 9222, Protocol: record.CDP}); b.Instance != want {
		t.Errorf("instance %+v, want %+v", b.Instance, want)
	}
	select {
	case <-written:
	case <-time.After(patience):
		t.Error("its output is not read to the end")
	}
}

func TestServiceNeedsNoBrowser(t *testing.T) {
	t.Parallel()
	spec := shell(t, `echo '{"service":{"socket":"/s"}}'; exec sleep 1000`)
	spec.Service = true
	if b := launch(t, spec); b.Record.Raw("service") == nil {
		t.Errorf("record %s, want that of the service", b.Record.Line())
	}
}

// The messages of a launch that fails are in its error alone, if that tells
// all; those of one that succeeds are passed on.
func TestMessagesOfALaunch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script string
		once   bool
		want   string
	}{
		{"echo why >&2; exit 1", true, ""},
		{"echo why >&2; exit 1", false, "why\n"},
		{`echo note >&2; echo '{"instance":{"port":1}}'; exec sleep 1000`, true, "note\n"},
		{`echo note >&2; echo '{"instance":{"port":1}}'; exec sleep 1000`, false, "note\n"},
	} {
		spec := shell(t, c.script)
		spec.Once = c.once
		if b, err := Launch(t.Context(), spec); err == nil {
			b.Stop()
		}
		if got := spec.Stderr.(*buffer).String(); got != c.want {
			t.Errorf("%q, Once %v: said %q, want %q", c.script, c.once, got, c.want)
		}
	}
}

const ready = `echo '{"instance":{"port":9222}}'; `

// Stop asks first, and lets nobody stay.
func TestStop(t *testing.T) {
	t.Parallel()
	t.Run("one that ends by itself", func(t *testing.T) {
		t.Parallel()
		b := launch(t, shell(t, `trap 'exit 0' TERM; `+ready+`while :; do sleep 0.01; done`))
		b.Stop()
		hasEnded(t, b)
		if b.Err() != nil {
			t.Errorf("it ended with %v, want nothing to complain of", b.Err())
		}
		b.Stop() // once more is nothing
	})
	t.Run("one that does not listen", func(t *testing.T) {
		t.Parallel()
		spec := shell(t, `trap '' TERM; `+ready+`while :; do sleep 0.01; done`)
		spec.Grace = 10 * time.Millisecond
		b := launch(t, spec)
		b.Stop()
		hasEnded(t, b)
		if b.Err() == nil || !strings.Contains(b.Err().Error(), "killed") {
			t.Errorf("it ended with %v, want it killed", b.Err())
		}
	})
	t.Run("no grace any more", func(t *testing.T) {
		t.Parallel()
		// The shell also says there that its sleep was ended, before the trap
		// runs: a second word at that moment would be one with the first.
		spec := shell(t, `exec 4>&2 2>/dev/null; trap 'n=x$n; [ $n != xx ] || exit 0; echo `+
			`asked >&4' TERM; `+ready+`while :; do sleep 0.01; done`)
		spec.Grace = time.Hour
		now := make(chan struct{})
		spec.Now, spec.Stderr = now, writer(sync.OnceFunc(func() { close(now) }))
		b := launch(t, spec)
		b.Stop()
		hasEnded(t, b)
		if b.Err() != nil {
			t.Errorf("it ended with %v, want it asked a second time", b.Err())
		}
	})
	t.Run("what it has started", func(t *testing.T) {
		t.Parallel()
		spec := shell(t, `sleep 1000 >/dev/null 2>&1 & echo $! >$1/child; `+ready+`wait`)
		b := launch(t, spec)
		child := processOf(t, spec, "child")
		b.Stop()
		hasEnded(t, b)
		if err := child.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What a program has started may hold its streams: that is no fault of the program.
func TestEndWithOpenStreams(t *testing.T) {
	t.Parallel()
	b := launch(t, shell(t, `sleep 1000 & `+ready+`read line <&3; exit 0`))
	b.program.Release()
	hasEnded(t, b)
	if b.Err() != nil {
		t.Errorf("it ended with %v", b.Err())
	}
}

// A browser of Windows has to be reached from here, and be the one that was launched.
func TestReach(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"Browser":"Chrome/1","webSocketDebuggerUrl":"ws://`+r.Host+`/devtools/browser/a"}`)
	}))
	defer s.Close()
	at := s.Listener.Addr().String()
	_, port, _ := strings.Cut(at, ":")
	for _, c := range []struct{ instance, want string }{
		{`{"port":` + port + `,"ws_url":"ws://` + at + `/devtools/browser/a"}`, ""},
		{`{"port":` + port + `,"ws_url":"ws://` + at + `/devtools/browser/b"}`, "another browser answers there"},
		{`{"port":` + port + `,"protocol":"bidi"}`, ""},
		{`{"port":9,"protocol":"bidi"}`, "its endpoint 127.0.0.1:9 can't be reached from WSL"},
		{`{"port":9}`, "its endpoint 127.0.0.1:9 can't be reached from WSL"},
	} {
		spec := shell(t, `echo '{"instance":`+c.instance+`}'; exec cat >/dev/null`)
		spec.Windows = true
		b, err := Launch(t.Context(), spec)
		if err == nil {
			if b.Instance.PID != b.program.PID() {
				t.Errorf("%s: its process is %d, not %d", c.instance, b.Instance.PID, b.program.PID())
			}
			b.Stop()
			hasEnded(t, b)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.instance, err, c.want)
		}
	}
}

// When the program ends, so does all that it leaves, and why is told in its
// own words.
func TestEndOfTheProgram(t *testing.T) {
	t.Parallel()
	spec := shell(t, `sleep 1000 >/dev/null 2>&1 & echo $! >$1/child; `+ready+
		`read line <&3; echo 'sh: the browser has crashed' >&2; exit 1`)
	b := launch(t, spec)
	child := processOf(t, spec, "child")
	b.program.Release() // as when its owner is gone
	hasEnded(t, b)
	if err := b.Err(); err == nil || err.Error() != "the browser has crashed" {
		t.Errorf("it ended with %v, want %q", err, "the browser has crashed")
	}
	if child.Alive() {
		t.Errorf("process %d is left", child.PID)
	}
}

// A browser on a debugging pipe is there when it answers on it, or has a port after
// all. The script has its ends as descriptors 4 and 5.
func TestPipe(t *testing.T) {
	t.Parallel()
	const piped = `echo '{"instance":{"protocol":"cdp"}}'; `
	const asked = `{"id":1,"method":"Browser.getVersion"}` + "\x00"
	start := func(t *testing.T, script string, set func(*Spec)) (*Browser, Spec, error) {
		spec := shell(t, "echo $$ >$1/pid; "+script)
		spec.Pipe = true
		if set != nil {
			set(&spec)
		}
		b, err := Launch(t.Context(), spec)
		if err == nil {
			t.Cleanup(b.Stop)
		}
		return b, spec, err
	}
	t.Run("it answers", func(t *testing.T) {
		t.Parallel()
		b, spec, err := start(t, piped+`head -c 39 <&4 >$1/asked; printf '{"id":1,' >&5; printf '"result":{}}\0' >&5; `+
			`read line <&4; printf 'hello\0' >&5; cat <&4; exit 0`, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(spec.Argv[4] + "/asked"); string(got) != asked {
			t.Errorf("it was asked %q", got)
		}
		b.Pipe().Commands.WriteString("\n")
		said := make([]byte, 6)
		if _, err := io.ReadFull(b.Pipe().Answers, said); err != nil || string(said) != "hello\x00" {
			t.Errorf("it says %q, %v", said, err)
		}
		if Addr(b.Instance) != "" {
			t.Errorf("it has the address %s", Addr(b.Instance))
		}
		b.Pipe().Commands.Close()
		hasEnded(t, b)
		if b.Err() != nil {
			t.Errorf("it ended with %v", b.Err())
		}
	})
	t.Run("it has a port", func(t *testing.T) {
		t.Parallel()
		b, _, err := start(t, ready+`cat <&4; exec sleep 1000`, nil)
		if err != nil || b.Pipe() != nil || Addr(b.Instance) != "127.0.0.1:9222" {
			t.Errorf("%v, %+v, want a port and no pipe", err, b)
		}
	})
	for name, c := range map[string]struct {
		script, want string
		code         int
		set          func(*Spec)
	}{
		"it closes its pipe": {piped + "exec 4<&- 5>&-; exec sleep 1000", "the browser has closed its pipe", 0,
			func(s *Spec) { s.Grace = 10 * time.Millisecond }},
		"it ends": {piped + "echo 'sh: no display' >&2; exit 69", "no display", 69, nil},
		"it does not answer": {piped + "exec sleep 1000", "has not answered on its pipe after 300ms", 75,
			func(s *Spec) { s.Timeout = Margin + 300*time.Millisecond }},
		"it has neither": {`echo '{"instance":7}'; exec sleep 1000`, "no record of a browser", 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, spec, err := start(t, c.script, c.set)
			if code, _ := codeOf(err); err == nil || code != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("code %d, %v; want %d, %s", code, err, c.code, c.want)
			}
			if id := processOf(t, spec, "pid"); id.Alive() {
				t.Errorf("process %d is left", id.PID)
			}
		})
	}
	t.Run("it is cancelled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		spec := shell(t, piped+"head -c 1 <&4 >/dev/null; echo asked >&2; exec sleep 1000")
		spec.Pipe, spec.Stderr = true, writer(cancel)
		if _, err := Launch(ctx, spec); err != context.Canceled {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
	})
}

// Nobody's browser is stopped by who only uses it.
func TestForeignBrowserStays(t *testing.T) {
	t.Parallel()
	rec := &record.Record{}
	if _, err := Foreign(rec); err == nil {
		t.Error("a record without an instance is taken for a browser's")
	}
	rec.MustSet("instance", record.Instance{WSURL: "ws://10.0.0.1:9333/devtools/browser/x"})
	b, err := Foreign(rec)
	if err != nil {
		t.Fatal(err)
	}
	b.Stop()
	select {
	case <-b.Ended():
		t.Error("it has ended")
	default:
	}
	if got := Addr(b.Instance); got != "10.0.0.1:9333" {
		t.Errorf("it is at %s, want 10.0.0.1:9333", got)
	}
}

// An instance of others need not say all of it: the address has the rest.
func TestEndpoint(t *testing.T) {
	t.Parallel()
	for instance, want := range map[string]string{
		`{"port":9222}`:                                          "cdp 127.0.0.1:9222",
		`{"port":9222,"host":"::1"}`:                             "cdp [::1]:9222",
		`{"ws_url":"ws://127.0.0.2:9333/x"}`:                     "cdp 127.0.0.2:9333",
		`{"http_url":"http://example.org"}`:                      "cdp example.org:80",
		`{"ws_url":"ws://[::1]:1/session","protocol":"bidi"}`:    "bidi [::1]:1",
		`{"port":9222,"ws_url":"ws://10.0.0.1:9333/x"}`:          "cdp 10.0.0.1:9222",
		`{"http_url":"http://a:1","ws_url":"ws://b:2","port":0}`: "cdp b:2",
		`{}`:                             "its instance has no port and no ws_url",
		`{"port":65536}`:                 "its instance has no port and no ws_url",
		`{"ws_url":"wss://x"}`:           "which is neither ws:// nor http://",
		`{"http_url":"http://[::1"}`:     "which is neither ws:// nor http://",
		`{"port":"9222"}`:                "instance",
		`7`:                              "instance",
		`{"http_url":"http://x:999999"}`: "its instance has",
	} {
		rec, err := record.Parse([]byte(`{"instance":` + instance + `}`))
		if err != nil {
			t.Fatal(err)
		}
		i, err := Endpoint(rec)
		got := i.Protocol + " " + Addr(i)
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != want || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", instance, got, want)
		}
	}
}

// Blaunch is found beside this program or on PATH, and bound to us; its own
// bounds hold before ours.
func TestBlaunch(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	make := func() (Spec, error) {
		return Blaunch(30*time.Second, 3*time.Second, &buffer{}, "info", "text", []string{"--browser=x"})
	}
	_, err := make()
	if code, _ := codeOf(err); code != 69 || !strings.Contains(err.Error(), "cannot find blaunch") {
		t.Errorf("code %d, %v; want 69: cannot find blaunch", code, err)
	}
	if err := os.WriteFile(dir+"/blaunch", []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec, err := make()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{dir + "/blaunch", "--wait", "--output=json", "--timeout=30s", "--stop-timeout=3s",
		"--log-level=warn", "--log-format=text", "--bind-fd=3", "--browser=x"}
	if !slices.Equal(spec.Argv, want) {
		t.Errorf("it runs %q, want %q", spec.Argv, want)
	}
	if spec.Timeout <= 30*time.Second || spec.Grace <= 3*time.Second {
		t.Errorf("timeout %v and grace %v, want more than its own 30s and 3s", spec.Timeout, spec.Grace)
	}
}
