//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"btools/lib/record"
	"btools/lib/state"
)

var wsLine = regexp.MustCompile(`DevTools listening on ws://([^/]+)`)

// spawn starts the browser with the arguments and returns the time in ms to its
// ws line, and to the answer of /json/version, which blaunch waits for.
func spawn(args []string) (line, answer float64) {
	profile := must(os.MkdirTemp(dir, "p"))
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
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r, w, _ := os.Pipe()
	r2, w2, _ := os.Pipe()
	c.ExtraFiles = []*os.File{r, w2}
	c.Stderr = nil
	errs := must(c.StderrPipe())
	began := time.Now()
	check(c.Start())
	defer c.Wait()
	defer syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	defer w.Close()
	defer r2.Close()
	r.Close()
	w2.Close()
	s := bufio.NewScanner(errs)
	var at [][]byte
	for at == nil && s.Scan() {
		at = wsLine.FindSubmatch(s.Bytes())
	}
	line = time.Since(began).Seconds() * 1000
	if at == nil {
		fail("the browser has no endpoint")
	}
	get("http://" + string(at[1]) + "/json/version")
	return line, time.Since(began).Seconds() * 1000
}

func launches(typ, goal string) func(*bench) {
	return func(*bench) {
		path := output(bin+"bfind", "--no-input", "--type", typ, "--first", "-f", "browser.path")
		peer := func(name string) func() float64 {
			return func() float64 { return must(strconv.ParseFloat(node("launch.mjs", name, path), 64)) }
		}
		var args []string
		var answers series
		m := medians(10, func() float64 {
			var f []string
			var stop func()
			took := ms(func() { f, stop = blaunch("instance.pid", "--browser", path) })
			args = strings.Split(strings.TrimRight(string(must(os.ReadFile("/proc/"+f[0]+"/cmdline"))), "\x00"), "\x00")
			stop()
			return took
		}, func() float64 {
			line, answer := spawn(args)
			answers.add(answer)
			return line
		}, peer("puppeteer"), peer("chrome-launcher"), peer("playwright"))
		ours, answer := m[0], answers.median()
		row(typ+": blaunch to its record, median of 10", "", "%.0f ms", ours)
		row(typ+": spawn to the ws line, same arguments", "", "%.0f ms", m[1])
		row(typ+": blaunch ÷ spawn to the ws line", "", "%.2f", ours/m[1])
		row(typ+": spawn to the answer of /json/version", "", "%.0f ms", answer)
		row(typ+": blaunch ÷ spawn, both to that answer", goal, "%.2f", ours/answer)
		row(typ+": blaunch ÷ puppeteer-core launch()", "≤ 0.55", "%.2f", ours/m[2])
		row(typ+": blaunch ÷ chrome-launcher", "≤ 0.45", "%.2f", ours/m[3])
		row(typ+": blaunch ÷ playwright-core launch()", "≤ 1.15", "%.2f", ours/m[4])
	}
}

func supervisor(b *bench) {
	f, stop := blaunch("instance.supervisor_pid")
	b.atEnd(stop)
	pid := must(strconv.Atoi(f[0]))
	time.Sleep(2 * time.Second)
	row("supervisor memory, Rss", "≤ 14 MiB", "%.1f MiB", rss(pid))
	row("supervisor memory, Pss", "≤ 7 MiB", "%.1f MiB", pss(pid))
}

// whole is how long a program takes that has nothing to wait for, in ms.
func whole(program string) float64 {
	return medians(20, func() float64 { return ms(func() { output(bin+program, "--no-input") }) })[0]
}

func finder(*bench) {
	row("bfind, whole process, median of 20", "≤ 10 ms", "%.1f ms", whole("bfind"))
}

func ports(*bench) {
	row("bport, whole process, median of 20", "≤ 6 ms", "%.1f ms", whole("bport"))
	var all together
	var mu sync.Mutex
	seen := map[string]bool{}
	for range 200 {
		all.Go(func() {
			out := output(bin+"bport", "--no-input", "-n", "5", "-f", "port")
			mu.Lock()
			defer mu.Unlock()
			for _, p := range strings.Fields(out) {
				seen[p] = true
			}
		})
	}
	all.Wait()
	row("200 concurrent bport -n 5: distinct ports", "1000", "%d", len(seen))
	row("bport with those 1000 reserved, median of 20", "≤ 6 ms", "%.1f ms", whole("bport"))
}

// writer holds the first port that this program, run again, is to write.
const writer = "BTOOLS_BENCH_WRITER"

// write makes 50 updates of the state and prints each that is done.
func write(first string) {
	n, _ := strconv.Atoi(first)
	s := state.Open(os.Getenv)
	for i := range 50 {
		p := state.Port{Port: n + i, Until: record.Time{Time: time.Now().Add(time.Hour)}}
		check(s.Update(context.Background(), func(f *state.File) error {
			f.Ports = append(f.Ports, p)
			return nil
		}))
		fmt.Println(p.Port)
	}
}

// writers runs 64 processes that write at once, and kills every fourth of
// them, while the file is read over and over.
func writers(*bench) {
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
	var all together
	for i := range n {
		c := command(os.Args[0])
		c.Env = append(c.Env, writer+"="+strconv.Itoa(1000*i), "BTOOLS_STATE="+path)
		c.Stdout = &said[i]
		check(c.Start())
		all.Go(func() {
			if i%4 == 0 {
				time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
				c.Process.Kill()
			}
			c.Wait()
		})
	}
	all.Wait()
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
	row(fmt.Sprintf("64 processes, %d updates of the state, 16 killed: lost", updates), "0", "%d", lost)
	row("the same: reads that saw no whole file", "0", "%d", unreadable)
}

// mine counts the processes that are left.
func mine() (n int) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		env, _ := os.ReadFile(p + "/environ")
		stat, _ := os.ReadFile(p + "/stat")
		if bytes.Contains(env, []byte("TMPDIR="+dir)) && !bytes.Contains(stat, []byte(") Z ")) {
			n++
		}
	}
	return n
}

func kills(*bench) {
	for range 100 {
		c := command(bin+"blaunch", "--no-input", "--", "sleep", "1000")
		check(c.Start())
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
	row("100 launches with a SIGKILL: processes after 3 s", "0", "%d", mine())
	try(bin+"blaunch", "gc")
	dirs, _ := filepath.Glob(dir + "/btools-*")
	row("the same: directories after blaunch gc", "0", "%d", len(dirs))
}
