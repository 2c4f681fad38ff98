//go:build linux

// Suite builds the programs and the tests, runs the tests, and says what they
// cost and what they left behind.
//
//	suite [PACKAGE…]   runs the tests of these packages (./...)
//	suite hold …       is what runs the tests of one package: see hold.go
//
// The tests of lib/ are built with the race detector, the programs and what
// drives them are not: RACE=1 builds them with it. COVER=1 measures coverage
// instead. KEEP=1 keeps the programs, and what the tests leave, on the disk. Suite
// fails if a test fails, if a package leaves a process or a file, or if the tests
// take more than maxCPU of processor time.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxCPU bounds the processor time of the tests with all that they start, not
// counting what builds them: 360 to 390 s when it was set, on two processors that
// had nothing else to do. It is no bound of wall time: machines are shared.
// LONG=1, RACE=1 and COVER=1 lift it. A machine on which a launch of a browser costs
// more than usualLaunch is slower, and the bound grows as the launch does: page faults
// of some virtual machines took ten times as long, and the tests 1,884 s. A launch tells
// how much slower it is to about a quarter: 3.6 times by launches, the tests took 5.5.
const (
	maxCPU      = 600 * time.Second
	usualLaunch = 220 * time.Millisecond
)

const tags = "urfave_cli_no_docs"

func main() {
	if len(os.Args) > 1 && os.Args[1] == "hold" {
		os.Exit(hold(os.Args[2:]))
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // who reads no more does not end it
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

// suite is one run.
type suite struct {
	dir         string // its own
	race, cover bool
	launch      time.Duration // of processor time: what a browser's launch takes

	mu     sync.Mutex // of what is printed, too
	tests  []test
	failed []string // packages
	ran    int
}

// test is a test that has run.
type test struct {
	name string // with its package
	took time.Duration
}

func run(patterns []string) error {
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	dir := fmt.Sprintf("/tmp/bt%d", os.Getpid()) // short: sockets lie below it; some tests run as another user
	if err := os.Mkdir(dir, 0o711); err != nil {
		return err
	}
	if os.Getenv("KEEP") == "" {
		defer os.RemoveAll(dir)
	}
	s := &suite{dir: dir, race: os.Getenv("RACE") != "", cover: os.Getenv("COVER") != ""}
	programs, libs, err := split(patterns)
	if err != nil {
		return err
	}
	before := strays()
	began := time.Now()
	if err := s.build(); err != nil {
		return err
	}
	if s.launch, err = s.launchCPU(); err != nil {
		return err
	}
	// On a slower machine fewer run at once: they would keep each other waiting beyond what a person would call hung,
	// and take no less time.
	atOnce := func(usually float64) string {
		return fmt.Sprintf("-parallel=%.0f", math.Ceil(usually/s.slower()))
	}
	built := time.Now()
	// Most of them wait for others most of the time, so they run side by side: lib's
	// once the compiler has them for the race detector.
	var beside sync.WaitGroup
	var libTook time.Duration
	beside.Go(func() {
		s.test(libs, !s.cover, "-p=2", atOnce(4))
		libTook = time.Since(built)
	})
	s.test(programs, s.race, "-p=2", atOnce(6))
	programsTook := time.Since(built)
	beside.Wait()
	return s.report(before, fmt.Sprintf("programs built in %.0f s, their tests %.0f s, beside them lib %.0f s",
		built.Sub(began).Seconds(), programsTook.Seconds(), libTook.Seconds()), time.Since(began))
}

// split lists packages with tests: those that drive programs, and those of lib/.
func split(patterns []string) (programs, libs []string, err error) {
	c := exec.Command("go", append([]string{"list", "-tags", tags, "-f",
		"{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}, patterns...)...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list the packages: %w", err)
	}
	for _, path := range strings.Fields(string(out)) {
		if strings.HasPrefix(path, "btools/lib/") {
			libs = append(libs, path)
		} else {
			programs = append(programs, path)
		}
	}
	// The longest first, so that they are not the last ones alone.
	return first(programs, "cmd/bmcp", "cmd/bproxy", "cmd/bpool", "scripts/clients"),
		first(libs, "lib/tools", "lib/virtual", "lib/forward", "lib/websocket"), nil
}

// first puts packages before the others, in this order.
func first(packages []string, paths ...string) []string {
	place := func(p string) int {
		if i := slices.Index(paths, strings.TrimPrefix(p, "btools/")); i >= 0 {
			return i
		}
		return len(paths)
	}
	slices.SortStableFunc(packages, func(a, b string) int { return place(a) - place(b) })
	return packages
}

// build builds the programs, once for all tests.
func (s *suite) build() error {
	args := []string{"build", "-trimpath", "-ldflags=-s -w", "-tags", tags, "-o", s.dir + "/bin/"}
	if s.race {
		args = append(args, "-race")
	}
	if s.cover {
		args = append(args, coverFlags...)
	}
	c := exec.Command("go", append(args, "./cmd/...", "./scripts/fakebrowser", "./scripts/fakechild")...)
	c.Env = append(os.Environ(), cgo(s.race))
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("cannot build the programs: %w", err)
	}
	return nil
}

var coverFlags = []string{"-cover", "-covermode=atomic",
	"-coverpkg=btools/lib/...,btools/cmd/..."}

// cgo is what a build needs: only the race detector has C in it.
func cgo(race bool) string {
	if race {
		return "CGO_ENABLED=1"
	}
	return "CGO_ENABLED=0"
}

// test runs the tests of packages, each under suite hold.
func (s *suite) test(packages []string, race bool, flags ...string) {
	if len(packages) == 0 {
		return
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	// Vet is lint's; without tables for a debugger the tests are linked faster.
	args := append([]string{"test", "-json", "-count=1", "-vet=off", "-trimpath", "-ldflags=-s -w", "-tags", tags,
		fmt.Sprintf("-timeout=%.0fm", 20*s.slower()), "-exec", self + " hold " + s.dir}, flags...)
	if race {
		args = append(args, "-race")
	}
	if s.cover {
		args = append(args, coverFlags...)
	}
	args = append(args, packages...)
	env := append(os.Environ(), "BTOOLS_TEST_BIN="+s.dir+"/bin", fmt.Sprintf("BTOOLS_TEST_SLOWER=%.2f", s.slower()),
		cgo(race))
	if s.cover {
		os.Mkdir(s.dir+"/cover", 0o700)
		env = append(env, "BTOOLS_TEST_COVER="+s.dir+"/cover") // GOCOVERDIR is go test's own
		args = append(args, "-args", "-test.gocoverdir="+s.dir+"/cover")
	}
	c := exec.Command("go", args...)
	c.Env, c.Stderr = env, os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		panic(err)
	}
	if err = c.Start(); err == nil {
		s.read(out)
		err = c.Wait()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && len(s.failed) == 0 {
		s.failed = append(s.failed, fmt.Sprintf("go test: %v", err))
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

// read prints what failed, and a line a package.
func (s *suite) read(r io.Reader) {
	said := map[string][]string{} // by package and test
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		s.event(line, said)
	}
}

// event reads one line. What tests have said is kept until they end.
func (s *suite) event(line []byte, said map[string][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var e event
	if json.Unmarshal(line, &e) != nil {
		os.Stdout.Write(line)
		return
	}
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Print(e.Output)
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") {
			said[key] = append(said[key], e.Output)
		}
	case "pass", "skip":
		delete(said, key)
		s.done(e)
	case "fail":
		for other, lines := range said {
			// With a package ends what its tests had begun: one may have hung.
			if other == key || e.Test == "" && strings.HasPrefix(other, key) {
				fmt.Print(strings.Join(lines, ""))
				delete(said, other)
			}
		}
		s.done(e)
	}
}

// done notes the end of a test or a package.
func (s *suite) done(e event) {
	took := time.Duration(e.Elapsed * float64(time.Second))
	switch {
	case e.Test == "":
		word := map[string]string{"pass": "ok", "skip": "--", "fail": "FAIL"}[e.Action]
		fmt.Printf("%-4s %-32s %6.1f s\n", word, strings.TrimPrefix(e.Package, "btools/"), e.Elapsed)
		if e.Action == "fail" {
			s.failed = append(s.failed, e.Package)
		}
	case e.Action == "fail":
		s.failed = append(s.failed, e.Package+" "+e.Test)
	}
	if e.Test != "" && !strings.Contains(e.Test, "/") && e.Action != "skip" {
		s.ran++
		s.tests = append(s.tests, test{strings.TrimPrefix(e.Package, "btools/") + " " + e.Test, took})
	}
}

// report says what the run cost, and returns why it has failed.
func (s *suite) report(before []string, parts string, took time.Duration) error {
	slices.SortFunc(s.tests, func(a, b test) int { return int(b.took - a.took) })
	fmt.Println("\nThe slowest tests:")
	for _, t := range s.tests[:min(10, len(s.tests))] {
		fmt.Printf("  %6.1f s  %s\n", t.took.Seconds(), t.name)
	}
	costs := readCosts(s.dir)
	var cpu time.Duration
	for _, c := range costs {
		cpu += c.CPU
	}
	slices.SortFunc(costs, func(a, b cost) int { return int(b.CPU - a.CPU) })
	fmt.Println("The packages with most processor time:")
	for _, c := range costs[:min(10, len(costs))] {
		fmt.Printf("  %6.1f s  in %5.1f s  %s\n", c.CPU.Seconds(), c.Wall.Seconds(), c.Package)
	}
	fmt.Printf("%d tests, wall time %.0f s (%s), processor time of the tests %.0f s\n", s.ran, took.Seconds(), parts,
		cpu.Seconds())
	if s.cover {
		if err := coverage(s.dir + "/cover"); err != nil {
			return err
		}
	}
	for _, path := range strays() {
		if !slices.Contains(before, path) {
			s.failed = append(s.failed, "a test has left "+path)
		}
	}
	if len(s.failed) > 0 {
		return errors.New("failed:\n  " + strings.Join(s.failed, "\n  "))
	}
	if s.ran == 0 {
		return errors.New("there are no such tests")
	}
	if cpu <= maxCPU || os.Getenv("LONG") != "" || s.race || s.cover {
		return nil
	}
	bound := time.Duration(float64(maxCPU) * s.slower() * 1.25)
	fmt.Printf("a launch of a browser takes %.2f s of processor time here, so the tests may take %.0f s\n",
		s.launch.Seconds(), bound.Seconds())
	if cpu > bound {
		return fmt.Errorf("the tests took %.0f s of processor time, %.0f s are allowed", cpu.Seconds(), bound.Seconds())
	}
	return nil
}

// launchCPU measures a launch and an end of a browser: the middle one of three.
func (s *suite) launchCPU() (time.Duration, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	var all []time.Duration
	for n := range 3 {
		dir := fmt.Sprintf("%s/launch%d", s.dir, n)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return 0, err
		}
		c := exec.Command(self, "hold", dir, s.dir+"/bin/blaunch", "--browser", "chrome-headless-shell",
			"--sandbox", "off", "--", "true")
		c.Env = append(os.Environ(), "BTOOLS_STATE="+dir+"/state.json")
		if out, err := c.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("cannot measure a launch: %w: %s", err, out)
		}
		for _, c := range readCosts(dir) {
			all = append(all, c.CPU)
		}
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// slower returns how many times as long as usual a machine takes for a launch, 1 at least.
func (s *suite) slower() float64 { return max(1, s.launch.Seconds()/usualLaunch.Seconds()) }

// strays are files outside the directories of tests that programs have made
// there for want of a shorter name, or browsers on their own.
func strays() (paths []string) {
	for _, pattern := range []string{"/tmp/btools*", "/tmp/*org.chromium*", "/dev/shm/*org.chromium*"} {
		found, _ := filepath.Glob(pattern)
		paths = append(paths, found...)
	}
	return paths
}
