//go:build linux

package main_test

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

	"btools/lib/cmdtest"
)

// The browser is killed at many moments of its launch: the launch fails or
// the browser ends, and nothing is left.
func TestBrowserKilledDuringLaunch(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	step := 40
	if cmdtest.IsLong {
		step = 20
	}
	for ms := 0; ms < 200; ms += step {
		c := w.Cmd("blaunch")
		cmdtest.Start(t, c)
		pid := 0
		cmdtest.Until(t, "the browser is started", func() bool {
			for _, i := range w.State().Instances {
				pid = i.Browser.PID
			}
			return pid != 0
		})
		time.Sleep(time.Duration(ms) * time.Millisecond) // the moment is what varies
		syscall.Kill(pid, syscall.SIGKILL)
		c.Wait()
		w.Clean()
	}
}

func TestUnusableDirectories(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	os.WriteFile(w.Dir+"/file", nil, 0o600)
	w.Run("blaunch", "--profile", "/proc/x").Exits(t, 1, "cannot make the profile directory")
	w.Run("blaunch", "--profile", w.Dir+"/file").Exits(t, 1, "cannot make the profile directory")
	env := w.Env
	w.Env = append(env, "TMPDIR="+w.Dir+"/nowhere")
	w.Run("blaunch").Exits(t, 1, "cannot make the browser's directory")
	w.Env = append(env, "BTOOLS_STATE=/proc/x/state.json")
	w.Run("blaunch").Exits(t, 1, "cannot lock the state file")
	w.Run("bport").Exits(t, 1, "cannot lock the state file")
	w.Env = env
	w.Clean()
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	full, fill := w.SmallDisk()
	env := w.Env
	t.Run("state", func(t *testing.T) {
		w.Env = append(env, "BTOOLS_STATE="+full+"/s/state.json")
		w.Run("bport").Exits(t, 0, "")
		before, _ := os.ReadFile(full + "/s/state.json")
		fill(0)
		w.Run("bport").Exits(t, 1, "no space left on device")
		w.Run("blaunch", "--browser", cmdtest.Bin+"/fakebrowser").Exits(t, 1, "no space left on device")
		if after, _ := os.ReadFile(full + "/s/state.json"); !bytes.Equal(before, after) {
			t.Errorf("the state file was changed: %s", after)
		}
		os.Remove(full + "/ballast")
	})
	t.Run("temporary directory", func(t *testing.T) {
		w.Env = append(env, "TMPDIR="+full)
		for _, left := range []int{0, 4 << 10, 32 << 10} {
			fill(left)
			r := w.Run("blaunch", "--browser", "chromium")
			if r.Code == 0 && left > 0 { // Chromium gets by with little at times
				w.Run("blaunch", "stop", "--all").Exits(t, 0, "")
			} else if r.Code == 0 || r.Out != "" {
				t.Errorf("%d bytes left: %+v", left, r)
			}
			if dirs, _ := filepath.Glob(full + "/btools-*"); len(dirs) > 0 {
				t.Errorf("directories are left: %v", dirs)
			}
		}
		os.Remove(full + "/ballast")
	})
	w.Env = env
	w.Clean()
}

// What a running browser lives in is deleted under it.
func TestVanishingDirectories(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	x := cmdtest.Parse(t, w.Run("blaunch"))
	os.RemoveAll(filepath.Dir(x.Instance.UserDataDir))
	os.RemoveAll(w.Dir + "/state")
	syscall.Kill(x.Instance.PID, syscall.SIGKILL)
	w.Clean()
}

// A browser that somebody else started holds the profile.
func TestProfileOfAStranger(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	path := cmdtest.Parse(t, w.Run("bfind", "--type", "chromium", "--first")).Browser.Path
	profile := w.Dir + "/p"
	c := w.Cmd(path, "--headless", "--no-sandbox", "--disable-background-networking", "--disable-crashpad-for-testing",
		"--remote-debugging-port=0", "--user-data-dir="+profile)
	c.Env = append(c.Env, "TMPDIR="+w.Dir+"/strange") // what it leaves is not ours
	os.Mkdir(w.Dir+"/strange", 0o700)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmdtest.Start(t, c)
	defer func() {
		syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		c.Wait()
	}()
	cmdtest.Until(t, "it has locked its profile", func() bool {
		_, err := os.Readlink(profile + "/SingletonLock")
		return err == nil
	})
	inUse := fmt.Sprintf("is in use by pid %d on host ", c.Process.Pid)
	w.Run("blaunch", "--profile", profile).Exits(t, 75, inUse)
	os.RemoveAll(w.Dir + "/strange") // as programs do that clean /tmp: its socket is gone
	w.Run("blaunch", "--profile", profile).Exits(t, 75, inUse)
	if c.Process.Signal(syscall.Signal(0)) != nil {
		t.Error("the stranger was ended")
	}
}

func TestInputRules(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for _, from := range []string{": |", "</dev/null", "<&-", "printf '\\n\\n' |"} {
		script := from + " bport -f port"
		if strings.HasPrefix(from, "<") {
			script = "bport -f port " + from
		}
		if r := w.Run("sh", "-c", script); r.Code != 0 || len(strings.Fields(r.Out)) != 1 ||
			strings.HasSuffix(from, "|") != strings.Contains(r.Err, "no record came on standard input") {
			t.Errorf("%s: %+v", script, r)
		}
	}
	r := w.Run("sh", "-c", `echo '{"x":1}' >`+w.Dir+`/f; bport <`+w.Dir+`/f`)
	if !strings.HasPrefix(r.Out, `{"v":1,"x":1,"port":`) {
		t.Errorf("a file is not read: %+v", r)
	}
	if r := w.Pipe(`{"x":1}`, "bport", "--no-input"); strings.Contains(r.Out, "x") {
		t.Errorf("--no-input reads: %+v", r)
	}
	// With -- CMD the input is the command's, unless - says otherwise.
	r = w.Run("sh", "-c", `bfind --type chrome-headless-shell | blaunch -f port - -- sh -c 'cat; echo $BTOOLS_PORT'`)
	if len(strings.Fields(r.Out)) != 1 || r.Code != 0 {
		t.Errorf("%+v, want the port alone: nothing is left of the input for CMD", r)
	}
}

// Who waits for input that does not come is told so.
func TestSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	c := w.Cmd("bport")
	in, _ := c.StdinPipe()
	c.Stderr = nil
	errs, _ := c.StderrPipe()
	var out bytes.Buffer
	c.Stdout = &out
	cmdtest.Start(t, c)
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
	t.Parallel()
	w := cmdtest.New(t)
	for _, mode := range []string{"--wait", "--ttl=1h"} {
		c := w.Cmd("sh", "-c", `exec blaunch `+mode+` --browser fakebrowser --env FAKE=stubborn --stop-timeout 10m`)
		c.Args[2] = strings.Replace(c.Args[2], "fakebrowser", cmdtest.Bin+"/fakebrowser", 1)
		out := cmdtest.StartRead(t, c)
		var x cmdtest.Record
		if err := json.NewDecoder(out).Decode(&x); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		stop, _ := os.FindProcess(x.Instance.SupervisorPID)
		for stop.Signal(syscall.SIGTERM) == nil && time.Since(began) < cmdtest.Patience && len(w.Processes()) > 0 {
			time.Sleep(20 * time.Millisecond) // again and again, as an impatient user does
		}
		c.Wait()
		w.Clean()
	}
}

func TestListOutputs(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	a, b := cmdtest.Parse(t, w.Fake("")), cmdtest.Parse(t, w.Fake(""))
	table := w.Run("blaunch", "list", "--output", "table")
	if l := strings.Split(table.Out, "\n"); len(l) != 4 || !strings.HasPrefix(l[0], "ID ") ||
		!strings.HasPrefix(l[1], a.Instance.ID) || !strings.HasPrefix(l[2], b.Instance.ID) {
		t.Errorf("want a head and the rows of %s and %s, got\n%s", a.Instance.ID, b.Instance.ID, table.Out)
	}
	f := w.Run("blaunch", "list", "-f", "instance.pid,instance.nothing")
	f.Exits(t, 64, "no record has a field")
	f = w.Run("blaunch", "list", "-f", "instance.pid,instance.temporary")
	if want := fmt.Sprintf("%d\ttrue\n%d\ttrue\n", a.Instance.PID, b.Instance.PID); f.Out != want {
		t.Errorf("got %q want %q", f.Out, want)
	}
	r := w.Run("sh", "-c", "blaunch list | blaunch stop -f instance.id")
	if len(strings.Fields(r.Out)) != 2 || r.Code != 0 {
		t.Errorf("%+v, want the IDs of 2 browsers", r)
	}
	w.Clean()
}

func TestRefusalsOfRealBrowsers(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	r := w.Run("blaunch", "--no-headless", "--browser", "chromium")
	r.Exits(t, 69, "there is no display")
	w.Run("blaunch", "--no-headless", "--browser", "chrome-headless-shell").Exits(t, 64, "has no windows")
	if os.Getuid() == 0 {
		r.Exits(t, 69, "sandbox off: ")
		w.Run("blaunch", "--sandbox", "on", "--browser", "chromium").Exits(t, 1, "--sandbox off")
		if r := w.Run("blaunch", "--browser", "chromium"); r.Code != 0 || r.Err != "" {
			t.Errorf("the second launch says %+v", r)
		}
	}
}

// A browser has the names that other programs give it.
func TestNamesOfBrowsers(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	exe, err := os.ReadFile(cmdtest.Bin + "/fakebrowser")
	if err != nil {
		t.Fatal(err)
	}
	edge := w.Dir + "/msedge"
	os.WriteFile(edge, exe, 0o700)
	r := w.Run("bfind", "--type", "msedge", "--path", edge, "-f", "browser.type,browser.path")
	if r.Out != "edge\t"+edge+"\n" {
		t.Errorf("%+v, want an edge at %s", r, edge)
	}
	w.Run("bfind", "--type", "webkit").Exits(t, 69, "no webkit found")
	w.Run("blaunch", "--browser", "webkit").Exits(t, 64, "clients of Playwright bring their own")
	w.Env = append(w.Env, "PATH="+w.Dir)
	w.Run(cmdtest.Bin+"/blaunch", "--browser", "msedge", "-f", "browser.type").Exits(t, 0, "")
}
