//go:build linux

package main

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"btools/lib/proc"
)

// isolating starts a Chrome with sessions, which is driven by its pipe.
func (b *bench) isolating() (bproxy int, at string) {
	return b.bproxy("--isolate", "--max-sessions", "200")
}

// three are the browsers of another Chrome with a port, of a bproxy without
// sessions, and of a session, whose bproxy is at the address.
func (b *bench) three() (urls []string, at string) {
	_, plain := b.bproxy()
	_, at = b.isolating()
	return []string{b.chrome(), "ws://" + plain + "/", sessionURL(at, "one")}, at
}

func pageCommands(b *bench) {
	urls, at := b.three()
	output(bin+"bproxy", "session", "new", "traced", "--trace", dir+"/trace", "--port", portOf(at))
	var each []func() float64
	for _, p := range b.openPages(append(urls, sessionURL(at, "traced"))...) {
		each = append(each, p.one)
	}
	m := medians(5000, each...)
	row("small page command, median of 5000: bproxy, in a session", "", "%.0f, %.0f µs", m[1], m[2])
	row("the same: in a session ÷ Chrome's own WebSocket", "≤ 1.0", "%.2f", m[2]/m[0])
	row("the same: added by the session", "≤ 30 µs", "%.1f µs", m[2]-m[1])
	row("the same: added by its --trace", "", "%.1f µs", m[3]-m[2])
}

func pageMessages(b *bench) {
	urls, _ := b.three()
	s := speeds(b.openPages(urls[1], urls[2], urls[0]))
	row("200 messages of 4 MiB from a page: bproxy, in a session", "", "%.0f, %.0f MB/s", s[0], s[1])
	row("the same: in a session ÷ bproxy", "≥ 0.85", "%.2f", s[1]/s[0])
	row("4 MiB: time in a session ÷ by Chrome's own WebSocket", "≤ 0.95", "%.2f", s[2]/s[1])
}

// noise is a canvas whose screenshot can't be compressed.
const noise = `(() => {
	const c = document.createElement("canvas"); c.width = 2000; c.height = 1600; document.body.append(c);
	const x = c.getContext("2d"), d = x.createImageData(c.width, c.height);
	for (let i = 0; i < d.data.length; i += 65536) crypto.getRandomValues(d.data.subarray(i, i + 65536));
	for (let i = 3; i < d.data.length; i += 4) d.data[i] = 255;
	x.putImageData(d, 0, 0);
})()`

// screenshots measures what large results of one client cost another: two sessions,
// and two clients of another Chrome's own WebSocket, by turns.
func screenshots(b *bench) {
	url := b.chrome()
	_, at := b.isolating()
	var own, ours beside
	for n := range 2 {
		own.measure(openPage(url), openPage(url))
		busy, other := fmt.Sprint("busy-", n), fmt.Sprint("other-", n)
		ours.measure(openPage(sessionURL(at, busy)), openPage(sessionURL(at, other)))
	}
	row(fmt.Sprintf("20 screenshots of %.0f MB: round trip of another client, p99", float64(ours.size)/1e6), "",
		"%.1f ms", own.all.at(99))
	row("the same: of another session", "", "%.1f ms", ours.all.at(99))
	row("the same: the longest during each, median: client, session", "", "%.1f, %.1f ms", own.longest.median(),
		ours.longest.median())
	row("the same: added by sessions", "≤ 2 ms", "%.1f ms", ours.longest.median()-own.longest.median())
	row("the same: those of more than 5 ms, in all: client, session", "", "%d, %d", own.slow(), ours.slow())
}

// screenshotsOfOne measures the same with two pages of a session.
func screenshotsOfOne(b *bench) {
	_, at := b.isolating()
	var same beside
	same.measure(openPage(sessionURL(at, "both")), openPage(sessionURL(at, "both")))
	row("20 screenshots: round trip of another page of the session, p99", "", "%.1f ms", same.all.at(99))
}

// beside are the round trips of a client while another one takes screenshots, in ms.
type beside struct {
	all     series
	longest series // during each screenshot
	size    int    // of a screenshot, in bytes
}

// measure takes 20 screenshots of one page, and disconnects both.
func (b *beside) measure(busy, other *page) {
	defer busy.CloseNow()
	defer other.CloseNow()
	busy.evaluate(noise)
	busy.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 2000, "height": 1600,
		"deviceScaleFactor": 1, "mobile": false})
	// Chrome draws only the front page of a window: a screenshot of one behind
	// it may never be answered.
	busy.call("Page.bringToFront", nil)
	const n = 20
	longest := make(series, n)
	var done atomic.Int64
	var shots together
	shots.Go(func() {
		for range n {
			got, _ := busy.call("Page.captureScreenshot", nil)
			b.size = len(got)
			done.Add(1)
		}
	})
	for shots.running() {
		during := min(done.Load(), n-1) // when it began
		took := other.one() / 1000
		b.all.add(took)
		longest[during] = max(longest[during], took)
	}
	shots.Wait()
	b.longest = append(b.longest, longest...)
}

// slow is how many round trips took more than 5 ms.
func (b *beside) slow() (n int) {
	for _, one := range b.all {
		if one > 5 {
			n++
		}
	}
	return n
}

// treePSS is the memory of a process and all below it, in MiB.
func treePSS(pid int) float64 { return pss(proc.Tree(pid)...) }

func manySessions(b *bench) {
	const n = 50
	pid, at := b.isolating()
	var sessions together
	for i := range n {
		sessions.Go(func() { greet(sessionURL(at, "many-"+strconv.Itoa(i))) })
	}
	sessions.Wait()
	time.Sleep(3 * time.Second)
	row("50 sessions with a blank page: memory of everything ÷ 50, Pss", "≤ 60 MiB", "%.1f MiB", treePSS(pid)/n)
	row("the same: bproxy, Pss", "≤ 40 MiB", "%.1f MiB", pss(pid))
	row("the same: to end them all", "", "%.0f ms", ms(func() {
		output(bin+"bproxy", "session", "end", "--all", "--port", portOf(at))
	}))
}

// churn creates and ends a session 1,000 times.
func churn(b *bench) {
	pid, at := b.isolating()
	greet("ws://" + at + "/devtools/browser")
	browser := must(strconv.Atoi(output(bin+"bproxy", "status", "-f", "instance.pid", portOf(at))))
	var took series
	round := func(n int) {
		for range n {
			began := time.Now()
			c := dial("ws://" + at + "/devtools/browser")
			c.version()
			took.add(time.Since(began).Seconds() * 1000)
			c.call(`"method":"Browser.close"`)
			c.CloseNow()
		}
		time.Sleep(3 * time.Second)
	}
	round(50) // what the first ones leave is not growth
	chrome, own := treePSS(browser), pss(pid)
	took = nil
	round(1000)
	row("1,000 sessions created and ended: growth of Chrome, Pss", "≤ 10 %", "%.0f %%", (treePSS(browser)/chrome-1)*100)
	row("the same: growth of bproxy, Pss", "≤ 2 MiB", "%.1f MiB", pss(pid)-own)
	row("the same: from dial to the first answer, p50", "", "%.0f ms", took.median())
}

// animated is a page that paints all the time.
const animated = "data:text/html,<style>@keyframes a{to{transform:rotate(360deg)}}" +
	"div{animation:a 1s linear infinite;width:100px;height:100px;background:red}</style><div></div><canvas></canvas>" +
	"<script>x=document.querySelector('canvas').getContext('2d');(function f(){x.fillRect(Math.random()*300," +
	"Math.random()*100,5,5);requestAnimationFrame(f)})()</script>"

// idleSessions measures what the pages of sessions cost that nobody uses,
// before they are hidden and after.
func idleSessions(b *bench) {
	const sessions, throttle, counted = 20, 12 * time.Second, 5 * time.Second
	pid, at := b.bproxy("--isolate", "--throttle", throttle.String())
	var urls []string
	for n := range sessions {
		urls = append(urls, sessionURL(at, fmt.Sprint("idle-", n)))
	}
	pages := b.openPages(urls...)
	for _, p := range pages {
		p.call("Emulation.setFocusEmulationEnabled", map[string]bool{"enabled": true}) // as Playwright does
		p.call("Page.navigate", map[string]string{"url": animated})
	}
	used := func() float64 {
		before := cpu(proc.Tree(pid)...)
		time.Sleep(counted)
		return (cpu(proc.Tree(pid)...) - before) / counted.Seconds() / 10
	}
	time.Sleep(2 * time.Second) // until they are loaded
	for _, p := range pages {
		p.one()
	}
	awake := used()
	time.Sleep(throttle + throttle/3)
	hidden := used()
	row("20 idle sessions with an animated page: CPU, then throttled", "", "%.0f, %.1f %%", awake, hidden)
	row("the same: throttled ÷ before", "≤ 0.1", "%.3f", hidden/awake)
	row("the same: the next command, which wakes the pages", "", "%.1f ms", pages[0].one()/1000)
}
