//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"btools/lib/control"
	"btools/lib/pool/queue"
)

// bpool starts a service with these variables and returns its socket.
func bpool(vars ...string) (daemon, string) {
	s, socket, _ := serve("service.socket", vars)
	return s, socket
}

// bpoolHTTP is the same with --http: it returns that address, too.
func bpoolHTTP(vars ...string) (s daemon, socket, url string) {
	return serve("service.socket,service.http_url", vars, "--http", "0")
}

func serve(fields string, vars []string, args ...string) (s daemon, socket, url string) {
	c := command(bin+"bpool", append([]string{"serve", "-f", fields, "--log-level", "error", "--drain-timeout", "0s"},
		args...)...)
	for _, v := range vars {
		c.Env = append(c.Env, "PW_MCP_PROXY_"+v)
	}
	out, _ := c.StdoutPipe()
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		panic(err)
	}
	fmt.Fscanln(out, &socket, &url)
	return daemon{c}, socket, url
}

func pools() {
	queueAlone()
	var rates []float64
	for _, slots := range []string{"10", "10000"} {
		rates = append(rates, leases(slots))
	}
	row("the same: 10 slots ÷ 10,000 slots", fmt.Sprintf("%.2f", rates[0]/rates[1]), "0.67 to 1.5")
	commands()
	eight()
	shared()
	idleSlots()
}

func queueAlone() {
	var per []float64
	for _, slots := range []int{10, 10000} {
		q := &queue.Queue{}
		for n := range slots {
			q.Put(n)
		}
		const n = 2_000_000
		began := time.Now()
		for range n {
			k, _ := q.Take(queue.Any)
			q.Put(k)
		}
		per = append(per, n/time.Since(began).Seconds())
	}
	row("queue alone, take + put a second: 10 and 10,000 slots", fmt.Sprintf("%.1f, %.1f M", per[0]/1e6, per[1]/1e6),
		"≥ 1 M, within 1.5×")
}

// pair leases and releases once, and returns how long that took in µs.
func pair(c *control.Client) float64 {
	began := time.Now()
	var r struct{ Lease struct{ ID string } }
	if err := c.Call(ctx, "lease", map[string]int{"timeout_ms": 60000}, &r); err != nil {
		panic(err)
	}
	if err := c.Call(ctx, "release", map[string]string{"lease": r.Lease.ID}, nil); err != nil {
		panic(err)
	}
	return time.Since(began).Seconds() * 1e6
}

// leases measures a service without browsers, and returns its leases a second.
func leases(slots string) float64 {
	s, path := bpool("_A_INSTANCES="+slots, "_A_IS_DEFAULT=1", "LAUNCH=false")
	defer s.stop()
	dial := func() *control.Client {
		c, err := control.Dial(ctx, path)
		if err != nil {
			panic(err)
		}
		return c
	}
	one := dial()
	defer one.Close()
	var alone []float64
	for range 5000 {
		alone = append(alone, pair(one))
	}
	const clients, each = 64, 1000
	var mu sync.Mutex
	var all []float64
	var wg sync.WaitGroup
	began := time.Now()
	for range clients {
		wg.Go(func() {
			c := dial()
			defer c.Close()
			var mine []float64
			for range each {
				mine = append(mine, pair(c))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	wg.Wait()
	rate := clients * each / time.Since(began).Seconds()
	slices.Sort(all)
	row(slots+" slots: lease + release over the socket, one client, p50", fmt.Sprintf("%.0f µs", median(alone)),
		"≤ 100 µs")
	row("the same: 64 clients, a second", fmt.Sprintf("%.0f", rate), "≥ 20,000")
	row("the same: p99", fmt.Sprintf("%.1f ms", all[len(all)*99/100]/1000), "≤ 15 ms")
	return rate
}

// commands compares bpool lease -- true with blaunch -- true.
func commands() {
	s, _ := bpool("_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	defer s.stop()
	var leased, launched []float64
	for range 10 {
		began := time.Now()
		output(bin+"bpool", "lease", "--", "true")
		leased = append(leased, time.Since(began).Seconds()*1000)
		began = time.Now()
		output(bin+"blaunch", "--", "true")
		launched = append(launched, time.Since(began).Seconds()*1000)
	}
	row("bpool lease -- true with a ready browser; blaunch -- true",
		fmt.Sprintf("%.1f, %.0f ms", median(leased), median(launched)), "≤ 15 ms")
}

// eight kills eight browsers at once.
func eight() {
	s, _ := bpool("BROWSER=chrome-headless-shell", "_A_INSTANCES=8", "_A_IS_DEFAULT=1")
	defer s.stop()
	look := func() (healthy int, pids map[int]bool) {
		var st struct {
			Pools []struct {
				Instances []struct {
					Status string
					PID    int `json:"process_id"`
				}
			}
		}
		json.Unmarshal([]byte(output(bin+"bpool", "status")), &st)
		pids = map[int]bool{}
		for _, i := range st.Pools[0].Instances {
			if i.Status == "healthy" {
				healthy++
				pids[i.PID] = true
			}
		}
		return healthy, pids
	}
	_, before := look()
	began := time.Now()
	for pid := range before {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	for {
		n, now := look()
		for pid := range now {
			if before[pid] {
				n = 0
			}
		}
		if n == 8 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	row("8 browsers killed at once, until all are healthy", fmt.Sprintf("%.1f s", time.Since(began).Seconds()),
		"≤ 5 s")
}

// idleSlots measures a service that does nothing.
func idleSlots() {
	s, _ := bpool("BROWSER=chrome-headless-shell", "_A_INSTANCES=10", "_A_IS_DEFAULT=1")
	defer s.stop()
	time.Sleep(2 * time.Second)
	before := cpu(s.Process.Pid)
	const seconds = 40
	time.Sleep(seconds * time.Second)
	row("bpool serve with 10 slots, idle: memory, Rss", fmt.Sprintf("%.1f MiB", rss(s.Process.Pid)), "≤ 24 MiB")
	row("the same: CPU", fmt.Sprintf("%.2f %%", (cpu(s.Process.Pid)-before)/1000/seconds*100), "≤ 0.2 %")
}
