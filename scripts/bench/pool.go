//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"btools/lib/control"
	"btools/lib/fleet/book"
)

func queueAlone(*bench) {
	var per []float64
	for _, slots := range []int{10, 10000} {
		q := &book.Queue{}
		for n := range slots {
			q.Put(n)
		}
		const n = 2_000_000
		per = append(per, n/ms(func() {
			for range n {
				k, _ := q.Take(book.Any)
				q.Put(k)
			}
		})/1000)
	}
	row("queue alone, take + put a second: 10 and 10,000 slots", "≥ 1 M, within 1.5×", "%.1f, %.1f M", per[0], per[1])
}

// control connects to a service, up to the end of the case.
func (b *bench) control(socket string) *control.Client {
	c := must(control.Dial(ctx, socket))
	b.atEnd(func() { c.Close() })
	return c
}

func lease(c *control.Client) (id string) {
	var r struct{ Lease struct{ ID string } }
	check(c.Call(ctx, "hold", map[string]int{"timeout_ms": 60000}, &r))
	return r.Lease.ID
}

func release(c *control.Client, id string) {
	check(c.Call(ctx, "release", map[string]string{"lease": id}, nil))
}

// pair leases and releases once, and returns how long that took in ms.
func pair(c *control.Client) float64 { return ms(func() { release(c, lease(c)) }) }

// leases measures services without browsers.
func leases(b *bench) {
	var rates []float64
	for _, slots := range []string{"10", "10000"} {
		_, socket, _ := b.bpool([]string{"_A_INSTANCES=" + slots, "_A_IS_DEFAULT=1", "LAUNCH=false"})
		one := b.control(socket)
		alone := medians(5000, func() float64 { return pair(one) })[0]
		rate, all := crowd(socket)
		rates = append(rates, rate)
		row(slots+" slots: lease + release over the socket, one client, p50", "≤ 100 µs", "%.0f µs", alone*1000)
		row("the same: 64 clients, a second", "≥ 20,000", "%.0f", rate)
		row("the same: p99", "≤ 15 ms", "%.1f ms", all.at(99))
		b.end()
	}
	row("the same: 10 slots ÷ 10,000 slots", "0.67 to 1.5", "%.2f", rates[0]/rates[1])
}

// crowd has 64 clients lease and release over a socket, and returns how often they did in a second, and how long each
// pair took in ms.
func crowd(socket string) (rate float64, all series) {
	return crowded(func() (func() float64, func()) {
		c := must(control.Dial(ctx, socket))
		return func() float64 { return pair(c) }, c.Close
	})
}

// crowded is crowd with clients that connect as they do.
func crowded(connect func() (pair func() float64, end func())) (rate float64, all series) {
	const clients, each = 64, 1000
	var mu sync.Mutex
	var leasing together
	took := ms(func() {
		for range clients {
			leasing.Go(func() {
				pair, end := connect()
				defer end()
				var mine series
				for range each {
					mine.add(pair())
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, mine...)
			})
		}
		leasing.Wait()
	})
	return clients * each / took * 1000, all
}

// commands compares bpool lease -- true with blaunch -- true.
func commands(b *bench) {
	b.bpool([]string{"_A_INSTANCES=1", "_A_IS_DEFAULT=1"})
	m := medians(10, func() float64 { return ms(func() { output(bin+"bpool", "lease", "--", "true") }) },
		func() float64 { return ms(func() { output(bin+"blaunch", "--", "true") }) })
	row("bpool lease -- true with a ready browser; blaunch -- true", "≤ 15 ms", "%.1f, %.0f ms", m[0], m[1])
}

// healthy are the process IDs of the browsers of the healthy instances.
func healthy() (pids []int) {
	var st struct {
		Pools []struct {
			Instances []struct {
				Status string
				PID    int `json:"process_id"`
			}
		}
	}
	json.Unmarshal([]byte(try(bin+"bpool", "status")), &st)
	for _, p := range st.Pools {
		for _, i := range p.Instances {
			if i.Status == "healthy" && i.PID != 0 {
				pids = append(pids, i.PID)
			}
		}
	}
	return pids
}

// replaced waits until n instances are healthy, whose browsers are none of these.
func replaced(n int, before []int) {
	within(time.Minute, func() bool {
		now := healthy()
		return len(now) == n && !slices.ContainsFunc(now, func(pid int) bool { return slices.Contains(before, pid) })
	})
}

// eight kills eight browsers at once.
func eight(b *bench) {
	b.bpool([]string{"BROWSER=chrome-headless-shell", "_A_INSTANCES=8", "_A_IS_DEFAULT=1"})
	replaced(8, nil)
	before := healthy()
	took := ms(func() {
		for _, pid := range before {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		replaced(8, before)
	})
	row("8 browsers killed at once, until all are healthy", "≤ 5 s", "%.1f s", took/1000)
}

// idleSlots measures a service that does nothing.
func idleSlots(b *bench) {
	pid, _, _ := b.bpool([]string{"BROWSER=chrome-headless-shell", "_A_INSTANCES=10", "_A_IS_DEFAULT=1"})
	time.Sleep(2 * time.Second)
	before := cpu(pid)
	const seconds = 40
	time.Sleep(seconds * time.Second)
	row("bpool serve with 10 slots, idle: memory, Rss", "≤ 24 MiB", "%.1f MiB", rss(pid))
	row("the same: CPU", "≤ 0.2 %", "%.2f %%", (cpu(pid)-before)/1000/seconds*100)
}

// sharing starts a service with as many instances on one Chrome, and returns
// when each has a session ready.
func (b *bench) sharing(instances int) (socket, url string) {
	n := fmt.Sprint(instances)
	_, socket, url = b.bpool([]string{"BROWSER=chromium", "ISOLATION=context", "PER_BROWSER=" + n, "_A_INSTANCES=" + n,
		"_A_IS_DEFAULT=1"}, "--http", "0")
	spare(url, instances)
	return socket, url
}

// spare waits until so many sessions are ready for leases to come. A token may follow.
func spare(url string, n int, token ...string) {
	within(time.Minute, func() bool {
		return strings.Contains(string(get(url+"/metrics?token="+strings.Join(token, ""))),
			fmt.Sprintf("bpool_sessions{pool=\"A\",state=\"spare\"} %d\n", n))
	})
}

// spares leases and releases, each time with a session that is ready.
func spares(b *bench) {
	socket, _ := b.sharing(12)
	c := b.control(socket)
	var took series
	for range 1000 {
		var id string
		took.add(ms(func() { id = lease(c) }))
		release(c, id)
	}
	row("shared Chrome: lease with a spare over the socket, p50, p99", "≤ 1, ≤ 3 ms", "%.2f, %.2f ms", took.at(50),
		took.at(99))
}

// cycles compares a lease with a context of a browser that a client holds.
func cycles(b *bench) {
	_, url := b.sharing(12)
	s := b.serve(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "<!doctype html><title>page</title><p>text")
	})
	chrome := output(bin+"bfind", "--no-input", "--type", "chromium", "--first", "-f", "browser.path")
	var one, ours, theirs, ten, ours10, theirs10 float64
	fmt.Sscan(node("shared.mjs", bin+"bpool", chrome, s, url+"/metrics"), &one, &ours, &theirs, &ten, &ours10,
		&theirs10)
	row("lease → connectOverCDP → goto → release ÷ own newContext", "≤ 1.5", "%.2f (%.0f, %.0f ms)", one, ours, theirs)
	row("the same, 10 at once on 12 instances ÷ 10 at once", "≤ 1.5", "%.2f (%.0f, %.0f ms)", ten, ours10, theirs10)
}

// killed kills a Chrome under 50 sessions.
func killed(b *bench) {
	socket, _ := b.sharing(50)
	before := healthy()
	took := ms(func() {
		syscall.Kill(before[0], syscall.SIGKILL)
		replaced(50, before)
		c := b.control(socket)
		for range 50 {
			lease(c)
		}
	})
	row("Chrome killed under 50 sessions, until all are leased again", "≤ 3 s", "%.1f s", took/1000)
}
