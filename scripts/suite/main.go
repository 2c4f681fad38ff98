//go:build linux

// Suite builds the programs, runs the tests of packages (./...), and says which tests are the slowest. It fails if a
// test fails, or if a package leaves a process or a file.
//
// The tests of lib/ are built with the race detector, all else only with RACE=1. KEEP=1 keeps what the tests leave.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"btools/lib/proc"
)

// packages are those of ./..., first those whose tests take long, so that none of these is the last one alone.
const packages = "./cmd/bmcp ./cmd/bproxy ./cmd/bpool ./cmd/... ./scripts/... ./lib/tools ./lib/virtual ./lib/..."

func main() {
	if len(os.Args) > 1 && os.Args[1] == "hold" {
		os.Exit(hold(os.Args[2], os.Args[3:]))
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)    // it cleans up, whether or not somebody reads its output
	s := &suite{dir: fmt.Sprintf("/tmp/bt%d", os.Getpid())} // short: sockets lie below it
	s.run(os.Args[1:])
	if os.Getenv("KEEP") == "" {
		os.RemoveAll(s.dir)
	}
	if len(s.failed) > 0 {
		fmt.Fprintf(os.Stderr, "suite: failed:\n  %s\n", strings.Join(s.failed, "\n  "))
		os.Exit(1)
	}
}

// suite is one run.
type suite struct {
	dir    string     // its own
	mu     sync.Mutex // of all below, and of standard output
	tests  []event    // ends of tests
	failed []string
}

// run runs the tests of packages, and notes what has failed.
func (s *suite) run(patterns []string) {
	if len(patterns) == 0 || patterns[0] == "./..." {
		patterns = strings.Fields(packages)
	}
	inLib := func(p string) bool { return strings.HasPrefix(p, "./lib/") }
	libs := slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return !inLib(p) })
	programs := slices.DeleteFunc(patterns, inLib)
	before, began, race := strays(), time.Now(), os.Getenv("RACE") != ""
	os.Mkdir(s.dir, 0o711) // some tests run as another user
	c := build(race, "build", "-o", s.dir+"/bin/", "./cmd/...", "./scripts/fakebrowser", "./scripts/fakechild")
	if err := c.Run(); err != nil {
		s.failed = append(s.failed, fmt.Sprintf("cannot build the programs: %v", err))
		return
	}
	// A package has as many tests at once as there are processors, in lib/ half as many, and two packages of each run
	// side by side: a test runs several processes, and fails if it waits too long for its turn.
	var both sync.WaitGroup
	both.Go(func() { s.test(libs, true, max(1, runtime.NumCPU()/2)) })
	both.Go(func() { s.test(programs, race, runtime.NumCPU()) })
	both.Wait()
	slices.SortFunc(s.tests, func(a, b event) int { return int(1000 * (b.Elapsed - a.Elapsed)) })
	fmt.Println("\nThe slowest tests:")
	for _, t := range s.tests[:min(10, len(s.tests))] {
		fmt.Printf("  %6.1f s  %s\n", t.Elapsed, t.name())
	}
	var used unix.Rusage
	unix.Getrusage(unix.RUSAGE_CHILDREN, &used)
	fmt.Printf("%d tests, wall time %.0f s, processor time with builds %d s\n", len(s.tests),
		time.Since(began).Seconds(), used.Utime.Sec+used.Stime.Sec)
	for _, path := range strays() {
		if !slices.Contains(before, path) {
			s.failed = append(s.failed, "a test has left "+path)
		}
	}
	if len(s.tests) == 0 {
		s.failed = append(s.failed, "there are no such tests")
	}
}

// build returns a go command that builds, with the race detector or without C. It links no tables for a debugger, and
// makes none where nobody else finds what it has compiled in the cache.
func build(race bool, what string, args ...string) *exec.Cmd {
	flags, cgo := []string{what, "-trimpath", "-ldflags=-s -w", "-tags=urfave_cli_no_docs"}, "CGO_ENABLED=0"
	if race {
		flags, cgo = append(flags, "-race", "-gcflags=all=-dwarf=false"), "CGO_ENABLED=1"
	}
	c := exec.Command("go", append(flags, args...)...)
	// The compilers end before they have much garbage, and spend a sixth of their time on it.
	c.Env, c.Stderr = append(os.Environ(), cgo, "GOGC=400"), os.Stderr
	return c
}

// test runs the tests of packages, each package by hold, atOnce tests of a package at a time.
func (s *suite) test(patterns []string, race bool, atOnce int) {
	if len(patterns) == 0 {
		return
	}
	self, _ := os.Executable()
	c := build(race, "test", append([]string{"-json", "-count=1", "-vet=off", "-timeout=60m", "-p=2",
		fmt.Sprint("-parallel=", atOnce), "-exec", self + " hold " + s.dir}, patterns...)...)
	c.Env = append(c.Env, "BTOOLS_TEST_BIN="+s.dir+"/bin")
	out, _ := c.StdoutPipe()
	err := c.Start()
	if err == nil {
		s.read(bufio.NewReader(out))
		err = c.Wait()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.failed == nil {
		s.failed = append(s.failed, fmt.Sprintf("go test: %v", err))
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// name returns the name of a test, after that of its package.
func (e event) name() string { return strings.TrimPrefix(e.Package, "btools/") + " " + e.Test }

// read reads what go test prints. It prints what tests that fail have said, and a line a package.
func (s *suite) read(lines *bufio.Reader) {
	said := map[string]string{} // by test
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			e = event{Action: "build-output", Output: line}
		}
		s.mu.Lock()
		switch name := e.name(); e.Action {
		case "build-output":
			fmt.Print(e.Output)
		case "output":
			if !strings.HasPrefix(e.Output, "=== ") {
				said[name] += e.Output
			}
		case "pass", "fail", "skip":
			for test, text := range said { // with a package end the tests that it had begun: one may have hung
				if test == name || e.Test == "" && strings.HasPrefix(test, name) {
					if delete(said, test); e.Action == "fail" {
						fmt.Print(text)
					}
				}
			}
			if e.Action == "fail" {
				s.failed = append(s.failed, name)
			}
			if e.Test == "" && e.Action != "skip" {
				fmt.Printf("%s %-32s %6.1f s\n", e.Action, name, e.Elapsed)
			} else if e.Action != "skip" && !strings.Contains(e.Test, "/") {
				s.tests = append(s.tests, e)
			}
		}
		s.mu.Unlock()
	}
}

// hold runs the tests of one package for go test, and returns their exit code, or 1 if they leave something. They get a
// temporary directory of their own in base, and their orphans become children of hold.
func hold(base string, argv []string) int {
	proc.Subreaper()
	dir := base + "/1" // or the next name that is free
	for n := 2; os.IsExist(os.Mkdir(dir, 0o711)); n++ {
		dir = fmt.Sprintf("%s/%d", base, n)
	}
	signal.Ignore(unix.SIGQUIT) // go test sends it at its time limit, and the test says where it hangs
	c := exec.Command(argv[0], argv[1:]...)
	// Without GORACE a test with the race detector waits a second at its end.
	c.Env = append(os.Environ(), "TMPDIR="+dir, "GORACE=atexit_sleep_ms=0", "GOGC=100")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := c.Start(); err != nil {
		fmt.Println("suite: cannot run the tests:", err)
		return 1
	}
	var status unix.WaitStatus
	for ended := 0; ended != c.Process.Pid; {
		ended, _ = unix.Wait4(-1, &status, 0, nil)
	}
	code := status.ExitStatus()
	if code < 0 {
		fmt.Println("suite: the tests ended by", status.Signal())
	}
	var left []string
	if !childrenEnd(func() {}) {
		lists, _ := filepath.Glob("/proc/self/task/*/children")
		for _, list := range lists {
			pids, _ := os.ReadFile(list)
			for _, pid := range strings.Fields(string(pids)) {
				command, _ := os.ReadFile("/proc/" + pid + "/cmdline")
				left = append(left, "process "+pid+" "+strings.ReplaceAll(string(command), "\x00", " "))
			}
		}
		childrenEnd(func() { proc.KillDescendants() })
	}
	paths, _ := filepath.Glob(dir + "/*")
	for _, path := range paths {
		test, _ := os.ReadFile(path + "/test") // by cmdtest.New
		left = append(left, path+" "+string(test))
	}
	for _, what := range left { // once the processes have ended: nobody may read this
		fmt.Println("suite: a test has left", what)
		code = 1
	}
	return code
}

// childrenEnd reaps children, calling act before each look, and reports whether all have ended within five seconds.
func childrenEnd(act func()) bool {
	for range 250 {
		act()
		for pid := 1; pid > 0; {
			var err error
			if pid, err = unix.Wait4(-1, nil, unix.WNOHANG, nil); err == unix.ECHILD {
				return true
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}

// strays returns files outside the directories of tests: programs have made them there for want of a shorter name, or
// browsers by themselves.
func strays() (paths []string) {
	for _, pattern := range []string{"/tmp/btools*", "/tmp/*org.chromium*", "/dev/shm/*org.chromium*"} {
		found, _ := filepath.Glob(pattern)
		paths = append(paths, found...)
	}
	return paths
}
