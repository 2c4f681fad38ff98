//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"btools/lib/control"
)

// upgrades measures what clients notice of upgrades, and what the process of before costs.
func upgrades(b *bench) {
	const leases, times = 5, 5
	first, socket, url := b.bpool([]string{"BROWSER=chromium", "ISOLATION=context", "_A_INSTANCES=10",
		"_A_IS_DEFAULT=1"}, "--http", "0")
	last := first
	b.atEnd(func() { syscall.Kill(last, syscall.SIGTERM) })
	holder := b.control(socket)
	var held []string
	for range leases {
		held = append(held, lease(holder))
	}
	var over atomic.Bool
	var asking together
	longest := func(ask func()) *series {
		all := &series{}
		asking.Go(func() {
			for !over.Load() {
				all.add(ms(ask))
			}
		})
		return all
	}
	bySocket := longest(func() {
		c := must(control.Dial(ctx, socket))
		defer c.Close()
		check(c.Call(ctx, "ping", struct{}{}, nil))
	})
	byHTTP := longest(func() {
		conn := must(net.Dial("tcp", strings.TrimPrefix(url, "http://")))
		defer conn.Close()
		io.WriteString(conn, "GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
		must(io.ReadAll(conn))
	})
	var answers series
	for range times {
		answers.add(ms(func() {
			c := must(control.Dial(ctx, socket))
			defer c.Close()
			var up struct{ PID int }
			check(c.Call(ctx, "upgrade", struct{}{}, &up))
			last = up.PID
		}))
		within(time.Minute, func() bool { // its browser runs
			resp, err := http.Get(url + "/healthz")
			if err == nil {
				resp.Body.Close()
			}
			return err == nil && resp.StatusCode == http.StatusOK
		})
		time.Sleep(time.Second)
	}
	over.Store(true)
	asking.Wait()
	row(fmt.Sprintf("bpool upgrade under %d leases, p50", leases), "", "%.0f ms", answers.median())
	row(fmt.Sprintf("the same, %d times: longest time without an answer: socket, HTTP", times), "≤ 50 ms",
		"%.0f, %.0f ms", bySocket.at(100), byHTTP.at(100))
	row("the retired process with them: memory, Rss", "≤ 30 MiB", "%.1f MiB", rss(first))
	for _, id := range held {
		release(holder, id)
	}
	took := ms(func() {
		within(time.Minute, func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/%d/task", first))
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", first))
			return err != nil || strings.Contains(string(stat), ") Z ")
		})
	})
	row("the same, until it is gone after its last lease", "≤ 1 s", "%.1f s", took/1000)
}
