//go:build linux

package main

import (
	"fmt"
	"time"
)

// animated is a page that paints all the time.
const animated = "data:text/html,<style>@keyframes a{to{transform:rotate(360deg)}}" +
	"div{animation:a 1s linear infinite;width:100px;height:100px;background:red}</style><div></div><canvas></canvas>" +
	"<script>x=document.querySelector('canvas').getContext('2d');(function f(){x.fillRect(Math.random()*300," +
	"Math.random()*100,5,5);requestAnimationFrame(f)})()</script>"

// idleSessions measures what the pages of sessions cost that nobody uses,
// before they are hidden and after.
func idleSessions() {
	const sessions, throttle, counted = 20, 12 * time.Second, 5 * time.Second
	p, at := bproxy("share", "--throttle", throttle.String())
	defer p.stop()
	var all []*page
	for n := range sessions {
		one := openPage(sessionURL(at, fmt.Sprint("idle-", n)))
		defer one.CloseNow()
		one.call("Emulation.setFocusEmulationEnabled", map[string]bool{"enabled": true}) // as Playwright does
		one.call("Page.navigate", map[string]string{"url": animated})
		all = append(all, one)
	}
	used := func() float64 {
		total := func() (ms float64) {
			for _, pid := range tree(p.Process.Pid) {
				ms += cpu(pid)
			}
			return ms
		}
		before := total()
		time.Sleep(counted)
		return (total() - before) / counted.Seconds() / 10
	}
	time.Sleep(2 * time.Second) // until they are loaded
	for _, one := range all {
		one.evaluate("0")
	}
	awake := used()
	time.Sleep(throttle + throttle/3)
	hidden := used()
	row("20 idle sessions with an animated page: CPU, then throttled", fmt.Sprintf("%.0f, %.1f %%", awake, hidden), "")
	row("the same: throttled ÷ before", fmt.Sprintf("%.3f", hidden/awake), "≤ 0.1")
	_, took := all[0].evaluate("0")
	row("the same: the next command, which wakes the pages", fmt.Sprintf("%.1f ms", took/1000), "")
}
