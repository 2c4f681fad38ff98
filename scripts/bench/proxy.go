//go:build linux

package main

import (
	"strings"
	"sync"
	"time"

	"btools/lib/jsonrpc"
)

// waiting measures a proxy that has no browser.
func waiting(b *bench) {
	pid, _ := b.bproxy()
	before := cpu(pid)
	time.Sleep(60 * time.Second)
	row("bproxy waiting without a browser: CPU time over 60 s", "≤ 10 ms", "%.0f ms", cpu(pid)-before)
	row("the same: memory, Rss", "≤ 14 MiB", "%.1f MiB", rss(pid))
}

// firstConnection compares the first connection's way to a WebSocket that
// works with that of blaunch, to its record and to the same WebSocket.
func firstConnection(b *bench) {
	_, at := b.bproxy()
	var record series
	m := medians(10, func() float64 {
		var c *browser
		took := ms(func() { c = dial("ws://" + at + "/") })
		c.version()
		c.CloseNow()
		output(bin+"bproxy", "stop")
		return took
	}, func() float64 {
		began := time.Now()
		f, stop := blaunch("instance.ws_url")
		defer stop()
		record.add(time.Since(began).Seconds() * 1000)
		c := dial(f[0])
		defer c.CloseNow()
		return time.Since(began).Seconds() * 1000
	})
	row("first connection through bproxy to its WebSocket, median of 10", "", "%.0f ms", m[0])
	row("the same ÷ blaunch alone to the same WebSocket", "≤ 1.10", "%.2f", m[0]/m[1])
	row("the same ÷ blaunch alone to its record", "", "%.2f", m[0]/record.median())
}

// ways are three to one browser: direct, by bproxy, and by socat.
func (b *bench) ways() (bproxy int, urls []string) {
	bproxy, at := b.bproxy()
	greet("ws://" + at + "/")
	f := strings.Split(output(bin+"bproxy", "status", "-f", "instance.port,instance.ws_url"), "\t")
	browser := "127.0.0.1:" + f[0]
	path := f[1][strings.Index(f[1], "/devtools"):]
	return bproxy, []string{"ws://" + browser + path, "ws://" + at + path, "ws://" + b.socat(browser) + path}
}

func roundTrips(b *bench) {
	_, urls := b.ways()
	var each []func() float64
	for _, u := range urls {
		c := dial(u)
		b.atEnd(func() { c.CloseNow() })
		each = append(each, c.version)
	}
	m := medians(5000, each...)
	row("Browser.getVersion, median of 5000: direct", "", "%.0f µs", m[0])
	row("the same: added by bproxy, added by socat", "", "%.1f, %.1f µs", m[1]-m[0], m[2]-m[0])
	row("the same: (bproxy − direct) ÷ (socat − direct)", "≤ 1.0", "%.2f", (m[1]-m[0])/(m[2]-m[0]))
}

// direct shows that with --direct nothing is between client and browser.
func direct(b *bench) {
	_, at := b.bproxy("--direct")
	ws := jsonrpc.GetString(get("http://"+at+"/json/version"), "webSocketDebuggerUrl")
	past := "no"
	if strings.HasPrefix(ws, "ws://127.0.0.1:"+output(bin+"bproxy", "status", "-f", "instance.port", portOf(at))+"/") {
		past = "0"
	}
	row("with --direct: added by bproxy (the browser's own address)", "0", "%s", past)
}

func throughput(b *bench) {
	_, urls := b.ways()
	s := speeds(b.openPages(urls...))
	row("200 messages of 4 MiB from the browser: direct, bproxy, socat", "", "%.0f, %.0f, %.0f MB/s", s[0], s[1], s[2])
	row("the same: bproxy ÷ socat", "≥ 0.95", "%.2f", s[1]/s[2])
}

// many opens 500 connections, of which 100 are busy: each makes a call every
// 100 ms, for 30 s, through bproxy and direct by turns.
func many(b *bench) {
	const all, busy = 500, 100
	pid, urls := b.ways()
	before := rss(pid)
	var through, direct []*browser
	open := func(list *[]*browser, n int, url string) {
		for range n {
			c := dial(url)
			b.atEnd(func() { c.CloseNow() })
			*list = append(*list, c)
		}
	}
	open(&through, all, urls[1])
	idle := (rss(pid) - before) * 1024 / all
	open(&direct, busy, urls[0])
	var mu sync.Mutex
	var calls together
	var with, without series
	end := time.Now().Add(30 * time.Second)
	for i := range busy {
		calls.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			for tick := time.NewTicker(100 * time.Millisecond); time.Now().Before(end); <-tick.C {
				ours, theirs := through[i].version(), direct[i].version()
				mu.Lock()
				with.add(ours)
				without.add(theirs)
				mu.Unlock()
			}
		})
	}
	calls.Wait()
	after := (rss(pid) - before) * 1024 / all
	base := without.median()
	added, p99 := with.median()-base, with.at(99)-base
	row("500 connections, 100 busy for 30 s: added, median and p99", "", "%.0f, %.0f µs", added, p99)
	row("the same: p99 ÷ median", "≤ 5", "%.1f", p99/added)
	row("the same: direct, p99 over its median ÷ bproxy's added median", "", "%.1f", (without.at(99)-base)/added)
	row("the same: memory a connection, idle and after", "≤ 64 KiB", "%.0f, %.0f KiB", idle, after)
}
