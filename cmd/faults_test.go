//go:build linux

package cmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The browser is killed at many moments of its launch: the launch fails or
// the browser ends, and nothing is left.
func TestBrowserKilledDuringLaunch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for ms := 0; ms < 200; ms += 20 {
		c := w.cmd("blaunch")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		pid := 0
		until(t, "the browser is started", func() bool {
			for _, i := range w.state().Instances {
				pid = i.Browser.PID
			}
			return pid != 0
		})
		time.Sleep(time.Duration(ms) * time.Millisecond) // the moment is what varies
		syscall.Kill(pid, syscall.SIGKILL)
		c.Wait()
		w.clean()
	}
}

func TestUnusableDirectories(t *testing.T) {
	w := newWorld(t)
	os.WriteFile(w.dir+"/file", nil, 0o600)
	w.run("blaunch", "--profile", "/proc/x").wants(t, 1, "cannot make the profile directory")
	w.run("blaunch", "--profile", w.dir+"/file").wants(t, 1, "cannot make the profile directory")
	env := w.env
	w.env = append(env, "TMPDIR="+w.dir+"/nowhere")
	w.run("blaunch").wants(t, 1, "cannot make the browser's directory")
	w.env = append(env, "BTOOLS_STATE=/proc/x/state.json")
	w.run("blaunch").wants(t, 1, "cannot lock the state file")
	w.run("bport").wants(t, 1, "cannot lock the state file")
	w.env = env
	w.clean()
}

// smallDisk is a directory with room for 256 KiB; fill leaves so much of it.
func (w *world) smallDisk() (dir string, fill func(left int)) {
	w.t.Helper()
	dir = w.dir + "/full"
	os.Mkdir(dir, 0o700)
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		w.t.Skipf("cannot mount: %v", err)
	}
	w.t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir, func(left int) { os.WriteFile(dir+"/ballast", make([]byte, 256<<10-left), 0o600) }
}

func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	full, fill := w.smallDisk()
	env := w.env
	t.Run("state", func(t *testing.T) {
		w.env = append(env, "BTOOLS_STATE="+full+"/s/state.json")
		w.run("bport").wants(t, 0, "")
		before, _ := os.ReadFile(full + "/s/state.json")
		fill(0)
		w.run("bport").wants(t, 1, "no space left on device")
		w.run("blaunch", "--browser", bin+"/fakebrowser").wants(t, 1, "no space left on device")
		if after, _ := os.ReadFile(full + "/s/state.json"); !bytes.Equal(before, after) {
			t.Errorf("the state file was changed: %s", after)
		}
		os.Remove(full + "/ballast")
	})
	t.Run("temporary directory", func(t *testing.T) {
		w.env = append(env, "TMPDIR="+full)
		for _, left := range []int{0, 4 << 10, 32 << 10} {
			fill(left)
			if r := w.run("blaunch"); r.code == 0 || r.out != "" {
				t.Errorf("%d bytes left: %+v", left, r)
			}
			if dirs, _ := filepath.Glob(full + "/btools-*"); len(dirs) > 0 {
				t.Errorf("directories are left: %v", dirs)
			}
		}
		os.Remove(full + "/ballast")
	})
	w.env = env
	w.clean()
}

// What a running browser lives in is deleted under it.
func TestVanishingDirectories(t *testing.T) {
	w := newWorld(t)
	x := parse(t, w.run("blaunch"))
	os.RemoveAll(filepath.Dir(x.Instance.UserDataDir))
	os.RemoveAll(w.dir + "/state")
	syscall.Kill(x.Instance.PID, syscall.SIGKILL)
	w.clean()
}

// A browser that somebody else started holds the profile.
func TestProfileOfAStranger(t *testing.T) {
	w := newWorld(t)
	path := parse(t, w.run("bfind", "--type", "chromium", "--first")).Browser.Path
	profile := w.dir + "/p"
	c := w.cmd(path, "--headless", "--no-sandbox", "--disable-background-networking", "--disable-crashpad-for-testing",
		"--remote-debugging-port=0", "--user-data-dir="+profile)
	c.Env = append(c.Env, "TMPDIR="+t.TempDir()) // what it leaves is not ours
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		c.Wait()
	}()
	until(t, "it has locked its profile", func() bool {
		_, err := os.Readlink(profile + "/SingletonLock")
		return err == nil
	})
	w.run("blaunch", "--profile", profile).wants(t, 75, fmt.Sprintf("is in use by pid %d on host ", c.Process.Pid))
	if c.Process.Signal(syscall.Signal(0)) != nil {
		t.Error("the stranger was ended")
	}
}

func TestInputRules(t *testing.T) {
	w := newWorld(t)
	for _, from := range []string{": |", "</dev/null", "<&-", "printf '\\n\\n' |"} {
		script := from + " bport -f port"
		if strings.HasPrefix(from, "<") {
			script = "bport -f port " + from
		}
		if r := w.run("sh", "-c", script); r.code != 0 || len(strings.Fields(r.out)) != 1 ||
			strings.HasSuffix(from, "|") != strings.Contains(r.err, "no record came on standard input") {
			t.Errorf("%s: %+v", script, r)
		}
	}
	r := w.run("sh", "-c", `echo '{"x":1}' >`+w.dir+`/f; bport <`+w.dir+`/f`)
	if !strings.HasPrefix(r.out, `{"v":1,"x":1,"port":`) {
		t.Errorf("a file is not read: %+v", r)
	}
	if r := w.pipe(`{"x":1}`, "bport", "--no-input"); strings.Contains(r.out, "x") {
		t.Errorf("--no-input reads: %+v", r)
	}
	// With -- CMD the input is the command's, unless - says otherwise.
	r = w.run("sh", "-c", `bfind --type chromium | blaunch -f port - -- sh -c 'cat; echo $BTOOLS_PORT'`)
	if len(strings.Fields(r.out)) != 1 || r.code != 0 {
		t.Errorf("%+v, want the port alone: nothing is left of the input for CMD", r)
	}
}

// Who waits for input that does not come is told so.
func TestSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.cmd("bport")
	in, _ := c.StdinPipe()
	errs, _ := c.StderrPipe()
	var out bytes.Buffer
	c.Stdout = &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 200)
	n, _ := errs.Read(line)
	if !strings.Contains(string(line[:n]), "waiting for") {
		t.Errorf("the message is %q, want that it is waiting for records", line[:n])
	}
	in.Close()
	if err := c.Wait(); err != nil || out.Len() == 0 {
		t.Errorf("%v %s", err, out.String())
	}
}

// The second signal ends a browser that takes its time.
func TestSecondSignal(t *testing.T) {
	w := newWorld(t)
	for _, mode := range []string{"--wait", "--ttl=1h"} {
		c := w.cmd("sh", "-c", `exec blaunch `+mode+` --browser fakebrowser --env FAKE=stubborn --stop-timeout 10m`)
		c.Args[2] = strings.Replace(c.Args[2], "fakebrowser", bin+"/fakebrowser", 1)
		out, _ := c.StdoutPipe()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		var x rec
		if err := json.NewDecoder(out).Decode(&x); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		stop, _ := os.FindProcess(x.Instance.SupervisorPID)
		for stop.Signal(syscall.SIGTERM) == nil && time.Since(began) < patience && len(w.ours()) > 0 {
			time.Sleep(20 * time.Millisecond) // again and again, as an impatient user does
		}
		c.Wait()
		w.clean()
	}
}

func TestListOutputs(t *testing.T) {
	w := newWorld(t)
	a, b := parse(t, w.fake("")), parse(t, w.fake(""))
	table := w.run("blaunch", "list", "--output", "table")
	if l := strings.Split(table.out, "\n"); len(l) != 4 || !strings.HasPrefix(l[0], "ID ") ||
		!strings.HasPrefix(l[1], a.Instance.ID) || !strings.HasPrefix(l[2], b.Instance.ID) {
		t.Errorf("want a head and the rows of %s and %s, got\n%s", a.Instance.ID, b.Instance.ID, table.out)
	}
	f := w.run("blaunch", "list", "-f", "instance.pid,instance.nothing")
	f.wants(t, 64, "no record has a field")
	f = w.run("blaunch", "list", "-f", "instance.pid,instance.temporary")
	if want := fmt.Sprintf("%d\ttrue\n%d\ttrue\n", a.Instance.PID, b.Instance.PID); f.out != want {
		t.Errorf("got %q want %q", f.out, want)
	}
	r := w.run("sh", "-c", "blaunch list | blaunch stop -f instance.id")
	if len(strings.Fields(r.out)) != 2 || r.code != 0 {
		t.Errorf("%+v, want the IDs of 2 browsers", r)
	}
	w.clean()
}

func TestRefusalsOfRealBrowsers(t *testing.T) {
	w := newWorld(t)
	w.run("blaunch", "--no-headless", "--browser", "chromium").wants(t, 69, "there is no display")
	if os.Getuid() == 0 {
		w.run("blaunch", "--sandbox", "on", "--browser", "chromium").wants(t, 1, "--sandbox off")
		r := w.run("blaunch", "--browser", "chromium")
		r.wants(t, 0, "sandbox off: ")
	}
}

// A browser has the names that other programs give it.
func TestNamesOfBrowsers(t *testing.T) {
	w := newWorld(t)
	exe, err := os.ReadFile(bin + "/fakebrowser")
	if err != nil {
		t.Fatal(err)
	}
	edge := w.dir + "/msedge"
	os.WriteFile(edge, exe, 0o700)
	r := w.run("bfind", "--type", "msedge", "--path", edge, "-f", "browser.type,browser.path")
	if r.out != "edge\t"+edge+"\n" {
		t.Errorf("%+v, want an edge at %s", r, edge)
	}
	w.run("bfind", "--type", "webkit").wants(t, 69, "no webkit found")
	w.run("blaunch", "--browser", "webkit").wants(t, 64, "clients of Playwright bring their own")
	w.env = append(w.env, "PATH="+w.dir)
	w.run(bin+"/blaunch", "--browser", "msedge", "-f", "browser.type").wants(t, 0, "")
}
