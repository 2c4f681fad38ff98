//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"btools/lib/proc"
	"btools/lib/terminal/ptytest"
)

// asTest is a case for what helps tests.
type asTest struct {
	testing.TB
	b *bench
}

func (t asTest) Helper()            {}
func (t asTest) Fatal(why ...any)   { fail("%v", why) }
func (t asTest) Cleanup(end func()) { t.b.atEnd(end) }

// top starts bproxy top on a terminal with room for 50 rows, and returns its pid when the last one is shown, and what
// stops it.
func top(b *bench) (pid int, stop func()) {
	master, tty := ptytest.Open(asTest{b: b})
	check(unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 60, Col: 150}))
	c := command(bin+"bproxy", "top")
	c.Stdin, c.Stdout, c.Stderr = tty, tty, tty
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	check(c.Start())
	tty.Close()
	shown, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tell := sync.OnceFunc(func() { close(shown) })
		var all []byte
		b := make([]byte, 64<<10)
		for {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			if all = append(all, b[:n]...); bytes.Contains(all, []byte("still-9")) { // the last by its name
				tell()
				all = nil
			}
		}
	}()
	select {
	case <-shown:
	case <-time.After(time.Minute):
		fail("bproxy top shows nothing")
	}
	return c.Process.Pid, func() {
		c.Process.Signal(os.Interrupt)
		c.Wait()
		<-ended
	}
}

// tops measures bproxy top: how long it takes to be there, and what it costs in all programs and browsers.
func tops(b *bench) {
	v := b.viewing()
	for n := range 50 {
		v.open(fmt.Sprint("still-", n), "/")
	}
	var took, list series
	for range 41 {
		var stop func()
		took.add(ms(func() { _, stop = top(b) }))
		stop()
		list.add(ms(func() { output(bin+"bproxy", "session", "list", "-f", "session.name") }))
	}
	row("top: the start until 50 rows are shown, p5, p50, p95", "≤ 30 ms", "%.0f, %.0f, %.0f ms", took.at(5),
		took.at(50), took.at(95))
	row("the same: bproxy session list, p5, p50, p95", "", "%.0f, %.0f, %.0f ms", list.at(5), list.at(50), list.at(95))
	const seconds = 30
	cost := func(more ...int) float64 {
		time.Sleep(5 * time.Second) // what has begun ends
		pids := append(proc.Tree(v.proxy), more...)
		before := cpu(pids...)
		time.Sleep(seconds * time.Second)
		return (cpu(pids...) - before) / seconds / 10
	}
	var none, with, own series
	for range 3 {
		none.add(cost())
		pid, stop := top(b)
		with.add(cost(pid))
		own.add(cpu(pid) / (seconds + 5) / 10)
		stop()
	}
	row("top: 50 still sessions: without it, with it", "", "%.1f, %.1f %%", none.median(), with.median())
	row("the same: added by it", "≤ 1 %", "%.1f %%", with.median()-none.median())
	row("the same: of its own process", "", "%.1f %%", own.median())
}
