//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"btools/lib/websocket"
)

// joiner plays extensions, at a hub.
type joiner struct {
	pid       int
	url, code string
}

// hub starts a hub, up to the end of the case.
func (b *bench) hub() *joiner {
	code := dir + "/code"
	pid, at := b.bproxy("--extension", "--listen", "127.0.0.1:0", "--pairing-file", code)
	return &joiner{pid, "http://" + at, strings.TrimSpace(string(must(os.ReadFile(code))))}
}

func joinedLaunches(b *bench) {
	b.hub()
	launch := func(args ...string) func() float64 {
		return func() float64 {
			began := time.Now()
			_, stop := blaunch("instance.pid", append(args, "--browser", "chromium")...)
			defer stop()
			return time.Since(began).Seconds() * 1000
		}
	}
	m := medians(10, launch(), launch("--extension"))
	row("blaunch, then with --extension until it has joined", "", "%.0f, %.0f ms", m[0], m[1])
	row("the same: with the extension ÷ without", "≤ 1.5", "%.2f", m[1]/m[0])
}

// joinedEvaluations compares a page of the endpoint below the hub with one of the
// debugging port of the same browser.
func joinedEvaluations(b *bench) {
	b.hub()
	f, stop := blaunch("instance.ws_url,joined.http_url", "--browser", "chromium", "--extension")
	b.atEnd(stop)
	pages := b.openPages(f[0], strings.Replace(f[1], "http", "ws", 1)+"/devtools/browser")
	m := medians(500, pages[0].one, pages[1].one)
	row("Runtime.evaluate: debugging port, extension, median of 500", "", "%.2f, %.2f ms", m[0]/1000, m[1]/1000)
	row("the same: added", "≤ 2 ms", "%.2f ms", (m[1]-m[0])/1000)
}

// join registers a browser and says hello. The connection has been welcomed.
func (h *joiner) join() (*websocket.Conn, int) {
	req, _ := http.NewRequest(http.MethodPost, h.url+"/register", strings.NewReader(`{"userAgent":"x","windowId":1}`))
	req.Header.Set("Authorization", "Bearer "+h.code)
	resp := must(http.DefaultClient.Do(req))
	defer resp.Body.Close()
	var p struct {
		InstanceID   string
		Port         int
		WebSocketURL string
	}
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Port == 0 {
		fail("a registration was answered %s, %v", resp.Status, err)
	}
	conn := must(websocket.Dial(ctx, p.WebSocketURL))
	conn.Write(fmt.Appendf(nil, `{"type":"hello","instanceId":%q,"browser":{"userAgent":"x"}}`, p.InstanceID))
	next(conn)
	return conn, p.Port
}

func next(conn *websocket.Conn) []byte { return must(must(conn.Next()).Bytes()) }

// hubChurn has browsers come, answer a call and go.
func hubChurn(b *bench) {
	h := b.hub()
	const rounds = 10000
	before := 0.0
	ports := map[int]int{}
	for n := range rounds {
		conn, port := h.join()
		ports[port]++
		// The first client of the browser causes calls.
		got := make(chan struct{})
		go func() {
			defer close(got)
			if resp, err := http.Get(h.url + "/session/" + fmt.Sprint(port) + "/json/version"); err == nil {
				resp.Body.Close()
			}
		}()
		conn.Write(bytes.Replace(next(conn), []byte(`"tool_call"`), []byte(`"tool_result","result":{"tabs":[]}`), 1))
		<-got
		conn.Close(websocket.Normal, "")
		if n == rounds/10 {
			before = rss(h.pid)
		}
	}
	row("hub: register, hello, tool_call, close 10,000 times: ports used", "few", "%d", len(ports))
	row("the same: memory (Rss) after 1,000, after 10,000", "flat", "%.1f, %.1f MiB", before, rss(h.pid))
}

// hubIdle has as many idle browsers as there are ports.
func hubIdle(b *bench) {
	h := b.hub()
	var conns []*websocket.Conn
	ports := map[int]bool{}
	var work sync.WaitGroup
	for range 99 {
		conn, port := h.join()
		conns, ports[port] = append(conns, conn), true
		work.Go(func() {
			for {
				m, err := conn.Next()
				if err != nil {
					return
				}
				if b, err := m.Bytes(); err == nil && bytes.Contains(b, []byte(`"ping"`)) {
					conn.Write([]byte(`{"type":"pong","tabs":0}`))
				}
			}
		})
	}
	time.Sleep(5 * time.Second)
	const counted = 40 * time.Second // two pings
	before := cpu(h.pid)
	time.Sleep(counted)
	row("hub with 99 idle browsers: ports lost before", "0", "%d", 99-len(ports))
	row("the same: memory (Rss), CPU", "≤ 32 MiB, ≤ 0.5 %", "%.1f MiB, %.2f %%", rss(h.pid),
		(cpu(h.pid)-before)/counted.Seconds()/10)
	for _, c := range conns {
		c.Close(websocket.Normal, "")
	}
	work.Wait()
}
