//go:build linux

// Bench measures the programs against peers, in one run, and prints a table.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"btools/lib/record"
	"btools/lib/state"
)

const bin = "../../bin/"

var dir string

func command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "BTOOLS_STATE="+dir+"/state/state.json", "TMPDIR="+dir, "BTOOLS_LOG_LEVEL=warn")
	return c
}

func output(name string, args ...string) string {
	c := command(name, args...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, name, args, err)
	}
	return strings.TrimSpace(string(out))
}

func median(d []float64) float64 {
	slices.Sort(d)
	return d[len(d)/2]
}

func row(what, value, goal string) { fmt.Printf("%-62s %14s   %s\n", what, value, goal) }

func main() {
	if n := os.Getenv(writer); n != "" {
		write(n)
		return
	}
	if measure(); failed {
		os.Exit(1)
	}
}

// failed is set by a row that ended with an error.
var failed bool

func measure() {
	var err error
	if dir, err = os.MkdirTemp("/tmp", "bt-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	row("what", "measured", "goal")
	if len(os.Args) > 1 { // only the rows of one
		map[string]func(){"blaunch": browsers, "bport": ports, "bproxy": proxies, "bpool": pools, "shared": shared,
			"bmcp": coordinators, "virtual": virtuals, "screenshots": onlyScreenshots,
			"idle": idleSessions, "session": carried, "hibernated": hibernated, "proxied": proxied,
			"tasks": solveTasks, "builtin": builtins, "extension": joining}[os.Args[1]]()
		return
	}
	browsers()
	row("bfind, whole process, median of 20", fmt.Sprintf("%.1f ms", whole("bfind")), "≤ 10 ms")
	ports()
	writers()
	kills()
	proxies()
	pools()
	coordinators()
	virtuals()
	carried()
	builtins()
	solveTasks()
	joining()
}

var wsLine = regexp.MustCompile(`DevTools listening on ws://([^/]+)`)

// spawn starts the browser with the arguments and returns the time in ms to its
// ws line, and to the answer of /json/version, which blaunch waits for.
func spawn(args []string) (line, answer float64) {
	profile, _ := os.MkdirTemp(dir, "p")
	defer os.RemoveAll(profile)
	c := command(args[0])
	for _, a := range args[1:] {
		switch {
		case strings.HasPrefix(a, "--user-data-dir="):
			a = "--user-data-dir=" + profile
		case strings.HasPrefix(a, "--remote-debugging-port="):
			a = "--remote-debugging-port=0"
		}
		c.Args = append(c.Args, a)
	}
	c.Args[0] = args[0]
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r, w, _ := os.Pipe()
	r2, w2, _ := os.Pipe()
	c.ExtraFiles = []*os.File{r, w2}
	errs, _ := c.StderrPipe()
	t := time.Now()
	if err := c.Start(); err != nil {
		panic(err)
	}
	r.Close()
	w2.Close()
	s := bufio.NewScanner(errs)
	var at [][]byte
	for at == nil && s.Scan() {
		at = wsLine.FindSubmatch(s.Bytes())
	}
	line = time.Since(t).Seconds() * 1000
	if at == nil {
		panic("the browser has no endpoint")
	}
	get("http://" + string(at[1]) + "/json/version")
	answer = time.Since(t).Seconds() * 1000
	w.Close()
	r2.Close()
	syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	c.Wait()
	return line, answer
}

func browsers() {
	attempt("chromium: launches", func() { launches("chromium", "≤ 1.08") })
	attempt("chrome-headless-shell: launches", func() { launches("chrome-headless-shell", "≤ 1.15") })
	memory()
}

func launches(typ, goal string) {
	path := output(bin+"bfind", "--no-input", "--type", typ, "--first", "-f", "browser.path")

	var ours, plain, answers, pup, pw, cl []float64
	node := func(peer string) float64 {
		ms, _ := strconv.ParseFloat(output("node", "launch.mjs", peer, path), 64)
		return ms
	}
	for range 10 { // by turns, so that a noisy moment hits all
		t := time.Now()
		f := strings.Split(output(bin+"blaunch", "--no-input", "--browser", path, "-f", "instance.id,instance.pid"),
			"\t")
		ours = append(ours, time.Since(t).Seconds()*1000)
		b, _ := os.ReadFile("/proc/" + f[1] + "/cmdline")
		output(bin+"blaunch", "stop", f[0])
		line, answer := spawn(strings.Split(strings.TrimRight(string(b), "\x00"), "\x00"))
		plain, answers = append(plain, line), append(answers, answer)
		pup = append(pup, node("puppeteer"))
		pw = append(pw, node("playwright"))
		cl = append(cl, node("chrome-launcher"))
	}
	o, p, a := median(ours), median(plain), median(answers)
	row(typ+": blaunch to its record, median of 10", fmt.Sprintf("%.0f ms", o), "")
	row(typ+": spawn to the ws line, same arguments", fmt.Sprintf("%.0f ms", p), "")
	row(typ+": blaunch ÷ spawn to the ws line", fmt.Sprintf("%.2f", o/p), "")
	row(typ+": spawn to the answer of /json/version", fmt.Sprintf("%.0f ms", a), "")
	row(typ+": blaunch ÷ spawn, both to that answer", fmt.Sprintf("%.2f", o/a), goal)
	row(typ+": blaunch ÷ puppeteer-core launch()", fmt.Sprintf("%.2f", o/median(pup)), "≤ 0.55")
	row(typ+": blaunch ÷ chrome-launcher", fmt.Sprintf("%.2f", o/median(cl)), "≤ 0.45")
	row(typ+": blaunch ÷ playwright-core launch()", fmt.Sprintf("%.2f", o/median(pw)), "≤ 1.15")
}

func whole(program string) float64 {
	var d []float64
	for range 20 {
		t := time.Now()
		output(bin+program, "--no-input")
		d = append(d, time.Since(t).Seconds()*1000)
	}
	return median(d)
}

func memory() {
	f := strings.Split(output(bin+"blaunch", "--no-input", "-f", "instance.id,instance.supervisor_pid"), "\t")
	defer output(bin+"blaunch", "stop", f[0])
	time.Sleep(2 * time.Second)
	b, _ := os.ReadFile("/proc/" + f[1] + "/smaps_rollup")
	for _, m := range []struct{ name, goal string }{{"Rss", "≤ 14 MiB"}, {"Pss", "≤ 7 MiB"}} {
		kb := regexp.MustCompile(`(?m)^` + m.name + `:\s+(\d+)`).FindSubmatch(b)
		n, _ := strconv.ParseFloat(string(kb[1]), 64)
		row("supervisor memory, "+m.name, fmt.Sprintf("%.1f MiB", n/1024), m.goal)
	}
}

func ports() {
	row("bport, whole process, median of 20", fmt.Sprintf("%.1f ms", whole("bport")), "≤ 6 ms")
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for range 200 {
		wg.Go(func() {
			out := output(bin+"bport", "--no-input", "-n", "5", "-f", "port")
			mu.Lock()
			defer mu.Unlock()
			for _, p := range strings.Fields(out) {
				seen[p] = true
			}
		})
	}
	wg.Wait()
	row("200 concurrent bport -n 5: distinct ports", strconv.Itoa(len(seen)), "1000")
	row("bport with those 1000 reserved, median of 20", fmt.Sprintf("%.1f ms", whole("bport")), "≤ 6 ms")
}

// writer holds the first port that this program, run again, is to write.
const writer = "BTOOLS_BENCH_WRITER"

// write makes 50 updates of the state and prints each that is done.
func write(first string) {
	n, _ := strconv.Atoi(first)
	s := state.Open(os.Getenv)
	for i := range 50 {
		p := state.Port{Port: n + i, Until: record.Time{Time: time.Now().Add(time.Hour)}}
		if err := s.Update(context.Background(), func(f *state.File) error {
			f.Ports = append(f.Ports, p)
			return nil
		}); err != nil {
			panic(err)
		}
		fmt.Println(p.Port)
	}
}

// writers runs 64 processes that write at once, and kills every fourth of
// them, while the file is read over and over.
func writers() {
	const n = 64
	path := dir + "/state/many.json"
	done := make(chan struct{})
	bad := make(chan int)
	go func() {
		unreadable := 0
		for {
			select {
			case <-done:
				bad <- unreadable
				return
			default:
			}
			if b, err := os.ReadFile(path); !os.IsNotExist(err) && !json.Valid(b) {
				unreadable++
			}
		}
	}()
	var said [n]bytes.Buffer
	var wg sync.WaitGroup
	for i := range n {
		c := command(os.Args[0])
		c.Env = append(c.Env, writer+"="+strconv.Itoa(1000*i), "BTOOLS_STATE="+path)
		c.Stdout, c.Stderr = &said[i], os.Stderr
		if err := c.Start(); err != nil {
			panic(err)
		}
		wg.Go(func() {
			if i%4 == 0 {
				time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
				c.Process.Kill()
			}
			c.Wait()
		})
	}
	wg.Wait()
	close(done)
	unreadable := <-bad
	there := map[string]bool{}
	b, _ := os.ReadFile(path)
	for _, p := range regexp.MustCompile(`"port":(\d+)`).FindAllSubmatch(b, -1) {
		there[string(p[1])] = true
	}
	updates, lost := 0, 0
	for i := range n {
		for _, p := range strings.Fields(said[i].String()) {
			updates++
			if !there[p] {
				lost++
			}
		}
	}
	row(fmt.Sprintf("64 processes, %d updates of the state, 16 killed: lost", updates), strconv.Itoa(lost), "0")
	row("the same: reads that saw no whole file", strconv.Itoa(unreadable), "0")
}

// mine counts processes and directories that are left.
func mine() (n int) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		env, _ := os.ReadFile(p + "/environ")
		stat, _ := os.ReadFile(p + "/stat")
		if bytes.Contains(env, []byte("TMPDIR="+dir)) && !bytes.Contains(stat, []byte(") Z ")) &&
			!strings.HasSuffix(p, "/"+strconv.Itoa(os.Getpid())) {
			n++
		}
	}
	return n
}

func kills() {
	for range 100 {
		c := command(bin+"blaunch", "--no-input", "--", "sleep", "1000")
		if err := c.Start(); err != nil {
			panic(err)
		}
		time.Sleep(time.Duration(rand.IntN(350)) * time.Millisecond)
		pid := c.Process.Pid
		var state struct {
			Instances []struct{ Supervisor, Browser struct{ PID int } }
		}
		b, _ := os.ReadFile(dir + "/state/state.json")
		json.Unmarshal(b, &state)
		if n := len(state.Instances); n > 0 {
			last := state.Instances[n-1]
			pid = []int{pid, last.Supervisor.PID, last.Browser.PID}[rand.IntN(3)]
		}
		if pid > 1 {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		c.Process.Signal(syscall.SIGTERM) // ends the sleep, if something else was killed
		c.Wait()
	}
	time.Sleep(3 * time.Second)
	row("100 launches with a SIGKILL: processes after 3 s", strconv.Itoa(mine()), "0")
	output(bin+"blaunch", "gc")
	dirs, _ := filepath.Glob(dir + "/btools-*")
	row("the same: directories after blaunch gc", strconv.Itoa(len(dirs)), "0")
}
