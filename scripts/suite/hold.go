//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"btools/lib/proc"
)

// cost is what the tests of a package cost, with all that they started.
type cost struct {
	Package   string
	CPU, Wall time.Duration
}

// leavers is how long a process may still run when the tests have ended.
const leavers = 5 * time.Second

// hold runs the test of one package for go test -exec: DIR TEST ARGUMENT…. Its
// temporary directory is its own, and what it leaves running becomes a child of
// hold: both are looked at when it has ended.
func hold(args []string) int {
	dir, argv := args[0], args[1:]
	name, err := os.Getwd() // that of the package
	if err == nil {
		err = proc.Subreaper()
	}
	var own string
	for n := 1; err == nil; n++ { // the shortest name
		own = fmt.Sprintf("%s/%d", dir, n)
		if err = os.Mkdir(own, 0o711); err == nil {
			break
		} else if os.IsExist(err) {
			err = nil
		}
	}
	if err != nil {
		fmt.Println("suite: cannot hold", argv, err)
		return 1
	}
	if os.Getenv("KEEP") == "" {
		inMemory(own)
	}
	name = strings.TrimPrefix(name, root()+"/")
	began := time.Now()
	signal.Ignore(syscall.SIGQUIT) // of go test's time limit: the test says where it hangs
	c := exec.Command(argv[0], argv[1:]...)
	// Else a test that is built for -race waits a second at its end.
	c.Env = append(os.Environ(), "TMPDIR="+own, "GORACE=atexit_sleep_ms=0")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := c.Start(); err != nil {
		fmt.Println("suite:", err)
		return 1
	}
	cpu, status := reap(c.Process.Pid)
	left := children()
	for end := time.Now().Add(leavers); len(left) > 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		cpu += reapEnded()
		left = children()
	}
	code := status.ExitStatus()
	if status.Signaled() {
		fmt.Println("suite: the tests ended by", status.Signal())
		code = 1
	}
	var names []string
	for _, pid := range left {
		names = append(names, described(pid))
	}
	for end := time.Now().Add(leavers); len(children()) > 0 &&
		time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		proc.KillDescendants()
		cpu += reapEnded()
	}
	for _, name := range names { // after their end: nobody may read this any more
		fmt.Printf("suite: a test has left a process: %s\n", name)
		code = 1
	}
	entries, _ := os.ReadDir(own)
	for _, e := range entries {
		by, _ := os.ReadFile(filepath.Join(own, e.Name(), "test"))
		fmt.Printf("suite: a test has left %s: %s\n", filepath.Join(own, e.Name()), strings.TrimSpace(string(by)))
		code = 1
	}
	note, _ := json.Marshal(cost{name, cpu, time.Since(began)})
	os.WriteFile(own+".cost", note, 0o600)
	return code
}

// inMemory has this thread, and what it starts, see a file system in memory at a
// directory: it takes a fifteenth of the processor time less than a disk, and ends
// with the last process that sees it. Where only root may do that, the directory
// stays as it is.
func inMemory(dir string) {
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil {
		unix.Mount("none", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=711")
	}
}

// root is the directory of the project, in which go runs each test somewhere.
func root() string {
	dir, _ := os.Getwd()
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir + "/go.mod"); err == nil {
			break
		}
	}
	return dir
}

// reap waits until a child has ended. It returns its status, and the processor
// time of all children that have ended by then.
func reap(pid int) (cpu time.Duration, status unix.WaitStatus) {
	for {
		var usage unix.Rusage
		var s unix.WaitStatus
		ended, err := unix.Wait4(-1, &s, 0, &usage)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return cpu, status
		}
		cpu += used(usage)
		if ended == pid {
			return cpu, s
		}
	}
}

// reapEnded reaps the children that have ended.
func reapEnded() (cpu time.Duration) {
	for {
		var usage unix.Rusage
		ended, err := unix.Wait4(-1, nil, unix.WNOHANG, &usage)
		if err != nil || ended <= 0 {
			return cpu
		}
		cpu += used(usage)
	}
}

func used(u unix.Rusage) time.Duration {
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// children are the children that run.
func children() (pids []int) {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, path := range tasks {
		list, _ := os.ReadFile(path)
		for _, word := range strings.Fields(string(list)) {
			pid, _ := strconv.Atoi(word)
			stat, err := os.ReadFile("/proc/" + word + "/stat")
			if err == nil && !strings.Contains(string(stat), ") Z ") {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// described is a process for people: its number, its command, and whose it is.
func described(pid int) string {
	at := "/proc/" + strconv.Itoa(pid)
	args, _ := os.ReadFile(at + "/cmdline")
	text := fmt.Sprintf("%d %s", pid, strings.TrimSpace(strings.ReplaceAll(string(args), "\x00", " ")))
	env, _ := os.ReadFile(at + "/environ")
	for _, kv := range strings.Split(string(env), "\x00") {
		if dir, ok := strings.CutPrefix(kv, "TMPDIR="); ok {
			by, _ := os.ReadFile(dir + "/test")
			text += " (" + dir + " " + strings.TrimSpace(string(by)) + ")"
		}
	}
	return text
}

// readCosts reads what was noted of all packages.
func readCosts(dir string) (all []cost) {
	paths, _ := filepath.Glob(dir + "/*.cost")
	for _, path := range paths {
		var c cost
		if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &c) == nil {
			all = append(all, c)
		}
	}
	return all
}
