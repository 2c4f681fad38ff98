//go:build linux

package cmd_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"image/jpeg"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/jsonrpc"
)

// driven is a command that runs with a browser, which the test drives.
type driven struct {
	t      *testing.T
	cmd    *exec.Cmd
	input  io.Writer
	said   *cmdtest.SyncBuffer
	dir    string // of the evidence
	url    string
	client *cmdtest.Wire
}

// drive runs a command whose exit code comes from its input.
func drive(t *testing.T, w *cmdtest.World, name, dir string, args ...string) *driven {
	t.Helper()
	args = append(args, "--evidence", dir)
	d := &driven{t: t, said: &cmdtest.SyncBuffer{}, dir: dir,
		cmd: w.Cmd(name, append(args, "--", "sh", "-c", "echo $BTOOLS_WS_URL; read code; exit $code")...)}
	d.cmd.Stderr = d.said
	var err error
	if d.input, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	d.url, err = bufio.NewReader(cmdtest.StartRead(t, d.cmd)).ReadString('\n')
	if err != nil {
		d.cmd.Wait()
		t.Fatalf("the command did not run: %v\n%s", err, d.said)
	}
	d.url = strings.TrimSpace(d.url)
	d.client = cmdtest.Dial(t, d.url)
	return d
}

// open opens a page, has it go to an address, and waits for its title.
func (d *driven) open(url, title string) {
	d.t.Helper()
	id := jsonrpc.GetString([]byte(d.client.Ask("Target.createTarget", `{"url":"about:blank"}`)), "result", "targetId")
	base, _, _ := strings.Cut(d.url, "/devtools/browser")
	cmdtest.AskOnce(d.t, base+"/devtools/page/"+id, "Page.navigate", fmt.Sprintf(`{"url":%q}`, url))
	cmdtest.Until(d.t, "a page has the title "+title, func() bool {
		return strings.Contains(d.client.Ask("Target.getTargets", `{}`), fmt.Sprintf(`"title":%q`, title))
	})
}

// end ends the command with a code, which must be that of the program.
func (d *driven) end(code int) {
	d.t.Helper()
	fmt.Fprintln(d.input, code)
	d.cmd.Wait()
	if got := d.cmd.ProcessState.ExitCode(); got != code {
		d.t.Errorf("exit %d, want %d: %s", got, code, d.said)
	}
}

// recorder returns the process that records.
func (d *driven) recorder() (pid int) {
	d.t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		b, _ := os.ReadFile(path)
		var parent int
		if _, rest, is := strings.Cut(string(b), " (bproxy) "); is {
			fmt.Sscanf(rest, "%1s %d", new(string), &parent)
		}
		if parent == d.cmd.Process.Pid {
			fmt.Sscan(string(b), &pid)
			return pid
		}
	}
	d.t.Fatal("nothing records")
	return 0
}

// shop is a page that prints, fails, and is green in the end.
func shop(t *testing.T) string {
	return cmdtest.Serve(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api":
			http.Error(rw, "it is broken", 500)
		case "/":
			rw.Header().Set("Set-Cookie", "who=CookieValue1")
			fmt.Fprint(rw, `<!doctype html><title>starts</title><body style="margin: 0; background: red"><script>
				console.log("hello", 7, {a: 1}, "\x1b[31m");
				setTimeout(() => { throw new Error("oops") });
				fetch("/api", {headers: {Authorization: "Basic Token" + "Value1"}}).then(r => r.text()).then(() =>
				requestAnimationFrame(() => {
					document.body.style.background = "rgb(0, 255, 0)"; document.title = "Shop: cart/1" }));
				</script>`)
		}
	})
}

// wantsEvidence asserts what is in a directory of evidence, with these of its values.
func wantsEvidence(t *testing.T, dir, site string, values ...string) {
	t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile(dir + "/" + name)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	var a struct {
		Log struct {
			Entries []struct {
				Pageref  string
				Request  struct{ URL string }
				Response struct {
					Status  int
					Content struct{ Text string }
				}
			}
			Pages []struct{ ID, Title string }
		}
	}
	if err := json.Unmarshal([]byte(read("requests.har")), &a); err != nil {
		t.Errorf("the archive: %v", err)
	}
	has := map[string]bool{}
	for _, e := range a.Log.Entries {
		has[fmt.Sprint(e.Request.URL, e.Response.Status, strings.TrimSpace(e.Response.Content.Text), e.Pageref != "")] =
			true
	}
	if !has[site+"/api500it is brokentrue"] || len(a.Log.Pages) != 1 || a.Log.Pages[0].Title != "Shop: cart/1" {
		t.Errorf("the archive has %v and the pages %v", has, a.Log.Pages)
	}
	for _, value := range []string{"CookieValue1", "TokenValue1", "{{TOKEN}}"} {
		if strings.Contains(read("requests.har"), value) != slices.Contains(values, value) {
			t.Errorf("that the archive has %s is wrong", value)
		}
	}
	console := read("console.txt")
	for _, want := range []string{" page 1 log: hello 7 Object", "\\x1b[31m (" + site + "/:2:", "oops\n\t",
		" page 1 exception: Uncaught Error: oops", " page 1 network error: Failed to load resource"} {
		if !strings.Contains(console, want) {
			t.Errorf("the console has no %q:\n%s", want, console)
		}
	}
	film := "1-Shop-cart-1.html"
	if _, err := exec.LookPath("ffmpeg"); err == nil {
		film = "1-Shop-cart-1.webm"
	}
	if len(read(film)) == 0 {
		t.Error("the film is empty")
	}
	f, err := os.Open(dir + "/1-Shop-cart-1.jpg")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	image, err := jpeg.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if r, g, b, _ := image.At(9, 9).RGBA(); r>>8 > 50 || g>>8 < 200 || b>>8 > 50 {
		t.Errorf("the last image has the color %d %d %d, want green", r>>8, g>>8, b>>8)
	}
	files, _ := filepath.Glob(dir + "/*")
	if len(files) != 4 {
		t.Errorf("the files are %v, want 4: %s", files, read("missing.txt"))
	}
}

// A command that fails leaves what its pages have done; one that does not leaves nothing.
func TestEvidence(t *testing.T) {
	t.Parallel()
	site := shop(t)
	for name, x := range map[string]struct {
		args []string
		dir  string
	}{
		"blaunch": {nil, "sh"}, "bproxy": {nil, "sh"}, "bproxy share": {nil, "default"},
		"bpool": {[]string{"OWN"}, "sh"}, "bpool shared": {[]string{"SHARED"}, "sh"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := cmdtest.New(t)
			if strings.HasPrefix(name, "bpool") {
				w.Pool("BROWSER=chrome-headless-shell", "_OWN_INSTANCES=1", "_OWN_START=lazy", "_SHARED_INSTANCES=1",
					"_SHARED_ISOLATION=context", "_SHARED_START=lazy", "_SHARED_IS_DEFAULT=1")
			}
			program, rest, _ := strings.Cut(name, " ")
			var args []string
			switch {
			case program == "bpool":
				args = []string{"lease"}
			case rest != "":
				args = []string{rest}
			}
			run := func(more ...string) *driven {
				t.Helper()
				return drive(t, w, program, w.Dir+"/out/e", slices.Concat(args, x.args, more)...)
			}
			w.Run(program, slices.Concat(args, x.args, []string{"--evidence", "/proc/x", "--", "echo", "ran"})...).
				Exits(t, 1, "cannot record evidence: mkdir /proc/x")
			d := run()
			d.open(site, "Shop: cart/1")
			d.end(3)
			if !strings.Contains(d.said.String(), "evidence is in "+w.Dir+"/out/e\n") {
				t.Errorf("it says %s", d.said)
			}
			wantsEvidence(t, w.Dir+"/out/e/"+x.dir, site)
			run().end(0)
			if files, _ := filepath.Glob(w.Dir + "/out/e/*"); len(files) != 1 {
				t.Errorf("after a command that has not failed: %v", files)
			}
			if program != "blaunch" {
				return
			}
			file := w.Dir + "/s.env"
			cmdtest.WriteFile(t, file, "# origins: *\nTOKEN=TokenValue1\n")
			w.Run("blaunch", "--evidence", w.Dir, "--secrets", file, "--", "true").Exits(t, 78, "chmod 600 "+file)
			os.Chmod(file, 0o600)
			d = run("--evidence-always", "--evidence-logins", "--secrets", file)
			d.open(site, "Shop: cart/1")
			d.end(0)
			wantsEvidence(t, w.Dir+"/out/e/"+x.dir+"-2", site, "CookieValue1", "{{TOKEN}}")
			os.RemoveAll(w.Dir + "/out/e")
			run().end(0)
			if _, err := os.Stat(w.Dir + "/out/e"); err == nil {
				t.Error("an empty directory is left")
			}
			w.Run("blaunch", "--evidence", w.Dir).Exits(t, 64, "--evidence needs a command")
			w.Run("blaunch", "--evidence-always", "--", "true").Exits(t, 64, "--evidence-always needs --evidence")
			w.Run("blaunch", "--evidence-logins", "--", "true").Exits(t, 64, "--evidence-logins needs --evidence")
		})
	}
}

// Each session of a shared browser has a directory of its own; what belongs to one
// connection is named.
func TestEvidenceOfSessions(t *testing.T) {
	t.Parallel()
	site := shop(t)
	w := cmdtest.New(t)
	d := drive(t, w, "bproxy", w.Dir+"/e", "share")
	root := strings.Replace(d.url, "/session/default/devtools/browser/default", "", 1)
	other := &driven{t: t, dir: d.dir, url: root + "/session/other/devtools/browser/other"}
	other.client = cmdtest.Dial(t, other.url)
	cmdtest.Until(t, "the session is recorded", func() bool {
		_, err := os.Stat(w.Dir + "/e/other/console.txt")
		return err == nil
	})
	other.open(site, "Shop: cart/1")
	w.Run("bproxy", "session", "end", "other").Exits(t, 0, "")
	cmdtest.Dial(t, root+"/devtools/browser")
	cmdtest.Until(t, "it is named what is not recorded", func() bool {
		return strings.Contains(d.said.String(), "a session that belongs to one connection")
	})
	d.end(1)
	if _, err := os.Stat(w.Dir + "/e/default"); err == nil || strings.Contains(d.said.String(), "there were none") {
		t.Errorf("a session in which nothing was opened has left a directory: %s", d.said)
	}
	files, _ := filepath.Glob(w.Dir + "/e/other/*") // a film only if the page was there for long enough
	if b, err := os.ReadFile(w.Dir + "/e/other/requests.har"); err != nil || !strings.Contains(string(b), site+"/api") {
		t.Errorf("of the session that has ended there are %v: %v, %s", files, err, b)
	}
}

// Pages that open at once each have their files, whatever their titles.
func TestEvidenceOfPages(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	d := drive(t, w, "blaunch", w.Dir+"/e")
	const pages = 5
	var all sync.WaitGroup
	for range pages {
		client := cmdtest.Dial(t, d.url)
		all.Go(func() { client.Ask("Target.createTarget", `{"url":"data:text/html,<title>same</title>same"}`) })
	}
	all.Wait()
	cmdtest.Until(t, "all have their title", func() bool {
		return strings.Count(d.client.Ask("Target.getTargets", `{}`), `"title":"same"`) == pages
	})
	cmdtest.Until(t, "all have a film, with the blank one", func() bool {
		films, _ := filepath.Glob(w.Dir + "/e/sh/page-*")
		begun := 0
		for _, path := range films {
			if info, err := os.Stat(path); err == nil && info.Size() > 0 {
				begun++
			}
		}
		return begun >= pages && len(films) == strings.Count(d.client.Ask("Target.getTargets", `{}`), `"type":"page"`)
	})
	d.end(1)
	for _, kind := range []string{"same.jpg", "same.*m*"} { // .webm, or .html without ffmpeg
		files, _ := filepath.Glob(w.Dir + "/e/sh/*-" + kind)
		if len(files) != pages {
			t.Errorf("%d pages have the files %v: %s", pages, files, d.said)
		}
	}
	w.Clean()
}

// However a recorded command ends, no process is left, and its evidence is whole.
func TestEvidenceFaults(t *testing.T) {
	t.Parallel()
	site := shop(t)
	t.Run("the program is killed", func(t *testing.T) {
		t.Parallel()
		w := cmdtest.New(t)
		d := drive(t, w, "blaunch", w.Dir+"/e")
		d.open(site, "Shop: cart/1")
		cmdtest.Until(t, "there is a film", func() bool {
			films, _ := filepath.Glob(w.Dir + "/e/sh/page-*")
			return len(films) > 0
		})
		d.cmd.Process.Kill()
		d.cmd.Wait()
		w.Clean()
		if _, err := os.Stat(w.Dir + "/e/sh/requests.har"); err != nil {
			t.Error(err)
		}
	})
	t.Run("the recorder is killed", func(t *testing.T) {
		t.Parallel()
		w := cmdtest.New(t)
		d := drive(t, w, "blaunch", w.Dir+"/e")
		d.open(site, "Shop: cart/1")
		syscall.Kill(d.recorder(), syscall.SIGKILL)
		d.end(3)
		if !strings.Contains(d.said.String(), "cannot finish the recording "+w.Dir+"/e/sh: signal: killed\n") {
			t.Errorf("it says %s", d.said)
		}
		if _, err := os.Stat(w.Dir + "/e/sh/trace.jsonl"); err != nil {
			t.Error(err)
		}
		d = drive(t, w, "blaunch", w.Dir+"/e")
		syscall.Kill(d.recorder(), syscall.SIGKILL)
		d.end(0)
		if files, _ := filepath.Glob(w.Dir + "/e/*"); len(files) != 1 {
			t.Errorf("after a command that has not failed: %v", files)
		}
		w.Clean()
	})
	t.Run("the browser ends first", func(t *testing.T) {
		t.Parallel()
		w := cmdtest.New(t)
		d := drive(t, w, "blaunch", w.Dir+"/e")
		d.open(site, "Shop: cart/1")
		cmdtest.Until(t, "a page is filmed", func() bool {
			films, _ := filepath.Glob(w.Dir + "/e/sh/*.html")
			encoded, _ := filepath.Glob(w.Dir + "/e/sh/*.webm")
			return len(encoded) > 0 || slices.ContainsFunc(films, func(film string) bool {
				info, err := os.Stat(film)
				return err == nil && info.Size() > 0
			})
		})
		for _, i := range w.State().Instances {
			syscall.Kill(i.Browser.PID, syscall.SIGKILL)
		}
		d.client.AwaitEnd()
		fmt.Fprintln(d.input, 0)
		d.cmd.Wait()
		if d.cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("exit %v, want 1", d.cmd.ProcessState)
		}
		if files, _ := filepath.Glob(w.Dir + "/e/sh/*"); len(files) < 3 {
			t.Errorf("there are %v", files)
		}
		w.Clean()
	})
	t.Run("the disk is full", func(t *testing.T) {
		t.Parallel()
		w := cmdtest.New(t)
		full := w.Dir + "/full"
		if err := os.Mkdir(full, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", full, "tmpfs", 0, "size=8k"); err != nil {
			t.Skip(err)
		}
		defer syscall.Unmount(full, syscall.MNT_DETACH)
		d := drive(t, w, "blaunch", full+"/e")
		d.open(site, "Shop: cart/1")
		d.end(3)
		if !strings.Contains(d.said.String(), "not in "+full+"/e/sh: ") ||
			!strings.Contains(d.said.String(), "no space left") {
			t.Errorf("it says %s", d.said)
		}
		w.Clean()
	})
	t.Run("Firefox", func(t *testing.T) {
		t.Parallel()
		w := cmdtest.New(t)
		r := w.Run("blaunch", "--browser", "firefox", "--evidence", w.Dir+"/e", "--", "false")
		r.Exits(t, 1, "no evidence of false is recorded: Firefox has one client at a time")
		w.Clean()
	})
	t.Run("no sibling", func(t *testing.T) {
		t.Parallel()
		w := cmdtest.New(t)
		if err := exec.Command("cp", cmdtest.Bin+"/blaunch", w.Dir+"/blaunch").Run(); err != nil {
			t.Fatal(err)
		}
		w.Env = append(w.Env, "PATH=/usr/bin:/bin")
		w.Run(w.Dir+"/blaunch", "--browser", cmdtest.Bin+"/fakebrowser", "--evidence", w.Dir+"/e", "--", "echo",
			"ran").Exits(t, 69, "cannot find bproxy")
		w.Clean()
	})
}
