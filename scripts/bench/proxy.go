//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// daemon is a program that runs in the background.
type daemon struct{ *exec.Cmd }

func (d daemon) stop() {
	d.Process.Signal(syscall.SIGTERM)
	d.Wait()
}

// bproxy starts one and returns its address.
func bproxy(args ...string) (daemon, string) {
	c := command(bin+"bproxy", append([]string{"--no-input", "-f", "proxy.port", "--log-level", "error"}, args...)...)
	out, _ := c.StdoutPipe()
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		panic(err)
	}
	var port string
	fmt.Fscanln(out, &port)
	return daemon{c}, "127.0.0.1:" + port
}

// socat forwards a port to an address, and is the peer of bproxy.
func socat(to string) (daemon, string) {
	port := output(bin+"bport", "--no-input", "-f", "port")
	c := command("socat", "TCP-LISTEN:"+port+",bind=127.0.0.1,fork,reuseaddr,nodelay", "TCP:"+to+",nodelay")
	if err := c.Start(); err != nil {
		panic(err)
	}
	addr := "127.0.0.1:" + port
	for {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return daemon{c}, addr
		}
		time.Sleep(10 * time.Millisecond)
	}
}

const getVersion = `"method":"Browser.getVersion"`

func proxies() {
	p, at := bproxy()
	defer p.stop()
	waiting(p)
	attempt("first connection through bproxy", func() { firstConnection(at) })

	f := strings.Split(output(bin+"bproxy", "status", "-f", "instance.port,instance.ws_url"), "\t")
	browser := "127.0.0.1:" + f[0]
	path := f[1][strings.Index(f[1], "/devtools"):]
	s, socatAt := socat(browser)
	defer s.stop()
	urls := []string{"ws://" + browser + path, "ws://" + at + path, "ws://" + socatAt + path}
	attempt("Browser.getVersion", func() { roundTrips(urls) })
	attempt("with --direct", direct)
	attempt("200 messages of 4 MiB from the browser", func() { throughput(urls) })
	attempt("500 connections, 100 busy", func() { many(p, urls) })
}

// waiting measures a proxy that has no browser.
func waiting(p daemon) {
	before := cpu(p.Process.Pid)
	time.Sleep(60 * time.Second)
	row("bproxy waiting without a browser: CPU time over 60 s", fmt.Sprintf("%.0f ms", cpu(p.Process.Pid)-before),
		"≤ 10 ms")
	row("the same: memory, Rss", fmt.Sprintf("%.1f MiB", rss(p.Process.Pid)), "≤ 14 MiB")
}

// cpu is the CPU time that a process has had, in ms.
func cpu(pid int) float64 {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	f := strings.Fields(string(b[strings.LastIndex(string(b), ")"):]))
	user, _ := strconv.Atoi(f[12])
	sys, _ := strconv.Atoi(f[13])
	return float64(user+sys) * 10 // ticks are 10 ms
}

// rss is a process's memory in MiB.
func rss(pid int) float64 {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	kb := regexp.MustCompile(`(?m)^Rss:\s+(\d+)`).FindSubmatch(b)
	n, _ := strconv.ParseFloat(string(kb[1]), 64)
	return n / 1024
}

// firstConnection compares the first connection's way to a WebSocket that
// works with that of blaunch, to its record and to the same WebSocket.
func firstConnection(at string) {
	var through, record, alone []float64
	for range 10 {
		began := time.Now()
		c := dial("ws://" + at + "/")
		through = append(through, time.Since(began).Seconds()*1000)
		c.call(getVersion)
		c.CloseNow()
		output(bin+"bproxy", "stop")
		began = time.Now()
		f := strings.Split(output(bin+"blaunch", "--no-input", "-f", "instance.id,instance.ws_url"), "\t")
		record = append(record, time.Since(began).Seconds()*1000)
		c = dial(f[1])
		alone = append(alone, time.Since(began).Seconds()*1000)
		c.CloseNow()
		output(bin+"blaunch", "stop", f[0])
	}
	dial("ws://" + at + "/").CloseNow()
	t, r, a := median(through), median(record), median(alone)
	row("first connection through bproxy to its WebSocket, median of 10", fmt.Sprintf("%.0f ms", t), "")
	row("the same ÷ blaunch alone to the same WebSocket", fmt.Sprintf("%.2f", t/a), "≤ 1.10")
	row("the same ÷ blaunch alone to its record", fmt.Sprintf("%.2f", t/r), "")
}

func roundTrips(urls []string) {
	times := make([][]float64, len(urls))
	var cs []*client
	for _, u := range urls {
		cs = append(cs, dial(u))
	}
	for range 5000 { // by turns
		for i, c := range cs {
			_, us := c.call(getVersion)
			times[i] = append(times[i], us)
		}
	}
	for _, c := range cs {
		c.CloseNow()
	}
	direct, ours, peer := median(times[0]), median(times[1]), median(times[2])
	row("Browser.getVersion, median of 5000: direct", fmt.Sprintf("%.0f µs", direct), "")
	row("the same: added by bproxy, added by socat", fmt.Sprintf("%.1f, %.1f µs", ours-direct, peer-direct), "")
	row("the same: (bproxy − direct) ÷ (socat − direct)", fmt.Sprintf("%.2f", (ours-direct)/(peer-direct)),
		"≤ 1.0")
}

// direct shows that with --direct nothing is between client and browser.
func direct() {
	p, at := bproxy("--direct")
	defer p.stop()
	var v struct {
		WS string `json:"webSocketDebuggerUrl"`
	}
	json.Unmarshal(get("http://"+at+"/json/version"), &v)
	port := output(bin+"bproxy", "status", "-f", "instance.port", at[strings.LastIndex(at, ":")+1:])
	past := "no"
	if strings.HasPrefix(v.WS, "ws://127.0.0.1:"+port+"/") {
		past = "0"
	}
	row("with --direct: added by bproxy (the browser's own address)", past, "0")
}

// throughput has the browser send 200 messages of 4 MiB.
func throughput(urls []string) {
	const n, size = 200, 4 << 20
	var speeds []float64
	for _, u := range urls {
		c := dial(u)
		b, _ := c.call(`"method":"Target.createTarget","params":{"url":"about:blank"}`)
		target := regexp.MustCompile(`"targetId":"(\w+)"`).FindSubmatch(b)
		b, _ = c.call(`"method":"Target.attachToTarget","params":{"flatten":true,"targetId":"` + string(target[1]) +
			`"}`)
		session := regexp.MustCompile(`"result":{"sessionId":"(\w+)"`).FindSubmatch(b)
		took := 0.0
		for range n {
			b, us := c.call(`"sessionId":"` + string(session[1]) +
				`","method":"Runtime.evaluate","params":{"returnByValue":true,"expression":"'x'.repeat(` +
				strconv.Itoa(size) +
				`)"}`)
			if len(b) < size {
				panic("a short message")
			}
			took += us
		}
		c.CloseNow()
		speeds = append(speeds, n*size/took)
	}
	row("200 messages of 4 MiB from the browser: direct, bproxy, socat",
		fmt.Sprintf("%.0f, %.0f, %.0f MB/s", speeds[0], speeds[1], speeds[2]), "")
	row("the same: bproxy ÷ socat", fmt.Sprintf("%.2f", speeds[1]/speeds[2]), "≥ 0.95")
}

// many opens 500 connections, of which 100 are busy: each makes a call every
// 100 ms, for 30 s, through bproxy and direct by turns.
func many(p daemon, urls []string) {
	const all, busy = 500, 100
	before := rss(p.Process.Pid)
	var through, direct []*client
	for range all {
		through = append(through, dial(urls[1]))
	}
	perConn := (rss(p.Process.Pid) - before) * 1024 / all
	for range busy {
		direct = append(direct, dial(urls[0]))
	}
	var mu sync.Mutex
	var calls together
	var with, without []float64
	end := time.Now().Add(30 * time.Second)
	for i := range busy {
		calls.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			for tick := time.NewTicker(100 * time.Millisecond); time.Now().Before(end); <-tick.C {
				_, a := through[i].call(getVersion)
				_, b := direct[i].call(getVersion)
				mu.Lock()
				with, without = append(with, a), append(without, b)
				mu.Unlock()
			}
		})
	}
	calls.Wait()
	perBusy := (rss(p.Process.Pid) - before) * 1024 / all
	for _, c := range append(through, direct...) {
		c.CloseNow()
	}
	base := median(without)
	for i := range with {
		with[i] -= base
	}
	slices.Sort(with)
	slices.Sort(without)
	mid, p99 := with[len(with)/2], with[len(with)*99/100]
	row("500 connections, 100 busy for 30 s: added, median and p99", fmt.Sprintf("%.0f, %.0f µs", mid, p99), "")
	row("the same: p99 ÷ median", fmt.Sprintf("%.1f", p99/mid), "≤ 5")
	row("the same: direct, p99 over its median ÷ bproxy's added median",
		fmt.Sprintf("%.1f", (without[len(without)*99/100]-base)/mid), "")
	row("the same: memory a connection, idle and after", fmt.Sprintf("%.0f, %.0f KiB", perConn, perBusy), "≤ 64 KiB")
}
