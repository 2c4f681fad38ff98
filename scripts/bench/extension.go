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

// joining measures browsers that join by the extension.
func joining() {
	code := dir + "/code"
	p, at := bproxy("--extension", "--listen", "127.0.0.1:0", "--pairing-file", code)
	defer p.stop()
	attempt("extension: launch", func() { joinedLaunches() })
	attempt("extension: Runtime.evaluate", func() { joinedEvaluations() })
	b, _ := os.ReadFile(code)
	h := &joiner{"http://" + at, strings.TrimSpace(string(b))}
	attempt("hub: 10,000 browsers", func() { h.churn(p.Process.Pid) })
	attempt("hub: 99 browsers", func() { h.idle(p.Process.Pid) })
}

func joinedLaunches() {
	var plain, joined []float64
	launch := func(args ...string) float64 {
		t := time.Now()
		args = append([]string{"--no-input", "--browser", "chromium", "-f", "instance.id"}, args...)
		id := output(bin+"blaunch", args...)
		took := time.Since(t).Seconds() * 1000
		output(bin+"blaunch", "stop", id)
		return took
	}
	for range 10 { // by turns, so that a noisy moment hits both
		plain, joined = append(plain, launch()), append(joined, launch("--extension"))
	}
	p, j := median(plain), median(joined)
	row("blaunch, then with --extension until it has joined", fmt.Sprintf("%.0f, %.0f ms", p, j), "")
	row("the same: with the extension ÷ without", fmt.Sprintf("%.2f", j/p), "≤ 1.5")
}

// joinedEvaluations compares a page of the endpoint below the hub with one of the
// debugging port of the same browser.
func joinedEvaluations() {
	f := strings.Split(output(bin+"blaunch", "--no-input", "--browser", "chromium", "--extension", "-f",
		"instance.id,instance.ws_url,joined.http_url"), "\t")
	defer output(bin+"blaunch", "stop", f[0])
	direct, joined := openPage(f[1]), openPage(strings.Replace(f[2], "http", "ws", 1)+"/devtools/browser")
	defer direct.CloseNow()
	defer joined.CloseNow()
	var d, j []float64
	for range 500 {
		_, one := direct.evaluate("1")
		_, other := joined.evaluate("1")
		d, j = append(d, one/1000), append(j, other/1000)
	}
	row("Runtime.evaluate: debugging port, extension, median of 500",
		fmt.Sprintf("%.2f, %.2f ms", median(d), median(j)), "")
	row("the same: added", fmt.Sprintf("%.2f ms", median(j)-median(d)), "≤ 2 ms")
}

// joiner plays extensions.
type joiner struct{ url, code string }

// join registers a browser and says hello. The connection has been welcomed.
func (h *joiner) join() (*websocket.Conn, int) {
	req, _ := http.NewRequest(http.MethodPost, h.url+"/register", strings.NewReader(`{"userAgent":"x","windowId":1}`))
	req.Header.Set("Authorization", "Bearer "+h.code)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(failure{err})
	}
	defer resp.Body.Close()
	var p struct {
		InstanceID   string
		Port         int
		WebSocketURL string
	}
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Port == 0 {
		panic(failure{fmt.Errorf("a registration was answered %s, %v", resp.Status, err)})
	}
	conn, err := websocket.Dial(ctx, p.WebSocketURL)
	if err != nil {
		panic(failure{err})
	}
	conn.Write(fmt.Appendf(nil, `{"type":"hello","instanceId":%q,"browser":{"userAgent":"x"}}`, p.InstanceID))
	h.next(conn)
	return conn, p.Port
}

func (h *joiner) next(conn *websocket.Conn) []byte {
	m, err := conn.Next()
	if err != nil {
		panic(failure{err})
	}
	b, err := m.Bytes()
	if err != nil {
		panic(failure{err})
	}
	return b
}

// churn has browsers come, answer a call and go.
func (h *joiner) churn(pid int) {
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
		conn.Write(bytes.Replace(h.next(conn), []byte(`"tool_call"`), []byte(`"tool_result","result":{"tabs":[]}`), 1))
		<-got
		conn.Close(websocket.Normal, "")
		if n == rounds/10 {
			before = rss(pid)
		}
	}
	row("hub: register, hello, tool_call, close 10,000 times: ports used", fmt.Sprint(len(ports)), "few")
	row("the same: memory (Rss) after 1,000, after 10,000", fmt.Sprintf("%.1f, %.1f MiB", before, rss(pid)), "flat")
}

// idle has as many idle browsers as there are ports.
func (h *joiner) idle(pid int) {
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
	before := cpu(pid)
	time.Sleep(counted)
	row("hub with 99 idle browsers: ports lost before", fmt.Sprint(99-len(ports)), "0")
	row("the same: memory (Rss), CPU", fmt.Sprintf("%.1f MiB, %.2f %%", rss(pid),
		(cpu(pid)-before)/counted.Seconds()/10), "≤ 32 MiB, ≤ 0.5 %")
	for _, c := range conns {
		c.Close(websocket.Normal, "")
	}
	work.Wait()
}
