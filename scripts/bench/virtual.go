//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"btools/lib/jsonrpc"
)

// rawChrome launches a Chrome with a port, and returns its WebSocket.
func rawChrome() (end func(), url string) {
	f := strings.Split(output(bin+"blaunch", "--no-input", "-f", "instance.id,instance.ws_url"), "\t")
	return func() { output(bin+"blaunch", "stop", f[0]) }, f[1]
}

// virtuals measures sessions of one Chrome, which is driven by its pipe, against a
// bproxy without them, and against the WebSocket of another Chrome.
func virtuals() {
	stop, url := rawChrome()
	defer stop()
	raw := openPage(url)
	plain, plainAt := bproxy()
	defer plain.stop()
	shared, at := bproxy("--isolate", "--max-sessions", "200")
	defer shared.stop()
	whole := openPage("ws://" + plainAt + "/")
	session := openPage(sessionURL(at, "one"))
	trace, err := os.CreateTemp("", "bench-trace-")
	if err != nil {
		panic(err)
	}
	trace.Close()
	defer os.Remove(trace.Name())
	output(bin+"bproxy", "session", "new", "traced", "--trace", trace.Name(), "--port", port(at))
	traced := openPage(sessionURL(at, "traced"))
	attempt("small page command", func() { pageCommands(raw, whole, session, traced) })
	traced.CloseNow()
	attempt("200 messages of 4 MiB from a page", func() { pageMessages(raw, whole, session) })
	raw.CloseNow()
	whole.CloseNow()
	session.CloseNow()
	end := func() { output(bin+"bproxy", "session", "end", "--all", "--port", port(at)) }
	end()
	screenshots(url, at)
	end()
	attempt("50 sessions with a blank page", func() { manySessions(shared, at) })
	attempt("1,000 sessions created and ended", func() { churn(shared, at) })
	attempt("20 idle sessions with an animated page", idleSessions)
}

// onlyScreenshots measures them without the rest.
func onlyScreenshots() {
	stop, url := rawChrome()
	defer stop()
	shared, at := bproxy("--isolate", "--max-sessions", "200")
	defer shared.stop()
	screenshots(url, at)
}

func port(at string) string { return at[strings.LastIndex(at, ":")+1:] }

// sessionURL is the browser's WebSocket of a named session.
func sessionURL(at, name string) string {
	return jsonrpc.GetString(get("http://"+at+"/session/"+name+"/json/version"), "webSocketDebuggerUrl")
}

// page is a client that is attached to one page.
type page struct {
	*client
	session string
}

// openPage opens a page and attaches to it.
func openPage(url string) *page {
	c := dial(url)
	b, _ := c.call(`"method":"Target.createTarget","params":{"url":"about:blank"}`)
	b, _ = c.call(`"method":"Target.attachToTarget","params":{"flatten":true,"targetId":"` +
		jsonrpc.GetString(b, "result", "targetId") + `"}`)
	return &page{c, jsonrpc.GetString(b, "result", "sessionId")}
}

// call makes a call to the page.
func (p *page) call(method string, params any) ([]byte, float64) {
	raw := []byte("{}")
	if params != nil {
		raw, _ = json.Marshal(params)
	}
	return p.client.call(`"sessionId":"` + p.session + `","method":"` + method + `","params":` + string(raw))
}

func (p *page) evaluate(expression string) ([]byte, float64) {
	return p.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true})
}

func pageCommands(raw, plain, session, traced *page) {
	var direct, without, with, withTrace []float64
	for range 5000 { // by turns
		_, r := raw.evaluate("1")
		_, a := plain.evaluate("1")
		_, b := session.evaluate("1")
		_, c := traced.evaluate("1")
		direct, without = append(direct, r), append(without, a)
		with, withTrace = append(with, b), append(withTrace, c)
	}
	row("small page command, median of 5000: bproxy, in a session", fmt.Sprintf("%.0f, %.0f µs", median(without),
		median(with)), "")
	row("the same: in a session ÷ Chrome's own WebSocket", fmt.Sprintf("%.2f", median(with)/median(direct)), "≤ 1.0")
	row("the same: added by the session", fmt.Sprintf("%.1f µs", median(with)-median(without)), "≤ 30 µs")
	row("the same: added by its --trace", fmt.Sprintf("%.1f µs", median(withTrace)-median(with)), "")
}

func pageMessages(raw, plain, session *page) {
	const n, size = 200, 4 << 20
	var took [3]float64
	for range n {
		for i, p := range []*page{plain, session, raw} {
			b, us := p.evaluate("'x'.repeat(" + strconv.Itoa(size) + ")")
			if len(b) < size {
				panic("a short message")
			}
			took[i] += us
		}
	}
	row("200 messages of 4 MiB from a page: bproxy, in a session", fmt.Sprintf("%.0f, %.0f MB/s", n*size/took[0],
		n*size/took[1]), "")
	row("the same: in a session ÷ bproxy", fmt.Sprintf("%.2f", took[0]/took[1]), "≥ 0.85")
	row("4 MiB: time in a session ÷ by Chrome's own WebSocket", fmt.Sprintf("%.2f", took[1]/took[2]), "≤ 0.95")
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
// two clients of another Chrome's own WebSocket, by turns, and, for comparison, two
// pages of a session.
func screenshots(url, at string) {
	attempt("20 screenshots: round trip of another session", func() {
		var own, ours beside
		for n := range 2 {
			own.measure(openPage(url), openPage(url))
			busy, other := fmt.Sprint("busy-", n), fmt.Sprint("other-", n)
			ours.measure(openPage(sessionURL(at, busy)), openPage(sessionURL(at, other)))
		}
		row(fmt.Sprintf("20 screenshots of %.0f MB: round trip of another client, p99", float64(ours.size)/1e6),
			fmt.Sprintf("%.1f ms", p99(own.all)/1000), "")
		row("the same: of another session", fmt.Sprintf("%.1f ms", p99(ours.all)/1000), "")
		row("the same: the longest during each, median: client, session", fmt.Sprintf("%.1f, %.1f ms",
			median(own.longest), median(ours.longest)), "")
		row("the same: added by sessions", fmt.Sprintf("%.1f ms", median(ours.longest)-median(own.longest)), "≤ 2 ms")
		row("the same: those of more than 5 ms, in all: client, session", fmt.Sprintf("%d, %d", slow(own.all),
			slow(ours.all)), "")
	})
	attempt("20 screenshots: round trip of another page of it", func() {
		var same beside
		same.measure(openPage(sessionURL(at, "both")), openPage(sessionURL(at, "both")))
		row("20 screenshots: round trip of another page of the session, p99",
			fmt.Sprintf("%.1f ms", p99(same.all)/1000), "")
	})
}

// beside are the round trips of a client while another one takes screenshots.
type beside struct {
	all     []float64 // in µs
	longest []float64 // during each screenshot, in ms
	size    int       // of a screenshot, in bytes
}

// measure takes 20 screenshots of one page, and disconnects both.
func (b *beside) measure(busy, other *page) {
	defer busy.CloseNow()
	defer other.CloseNow()
	busy.evaluate(noise)
	busy.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 2000, "height": 1600,
		"deviceScaleFactor": 1,
		"mobile":            false})
	// Chrome draws only the front page of a window: a screenshot of one behind
	// it may never be answered.
	busy.call("Page.bringToFront", nil)
	const n = 20
	longest := make([]float64, n)
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
		_, us := other.evaluate("1")
		b.all = append(b.all, us)
		longest[during] = max(longest[during], us/1000)
	}
	shots.Wait()
	b.longest = append(b.longest, longest...)
}

// slow is how many round trips took more than 5 ms.
func slow(us []float64) (n int) {
	for _, one := range us {
		if one > 5000 {
			n++
		}
	}
	return n
}

func p99(d []float64) float64 {
	slices.Sort(d)
	return d[len(d)*99/100]
}

var pss = regexp.MustCompile(`(?m)^Pss:\s+(\d+)`)

// pssOf is the PSS of processes in MiB.
func pssOf(pids ...int) (sum float64) {
	for _, pid := range pids {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
		if kb := pss.FindSubmatch(b); kb != nil {
			n, _ := strconv.ParseFloat(string(kb[1]), 64)
			sum += n / 1024
		}
	}
	return sum
}

// tree is a process and all below it.
func tree(pid int) []int {
	all := []int{pid}
	tasks, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	for _, t := range tasks {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + t.Name() + "/children")
		for _, f := range strings.Fields(string(b)) {
			n, _ := strconv.Atoi(f)
			all = append(all, tree(n)...)
		}
	}
	return all
}

func manySessions(p daemon, at string) {
	const n = 50
	var sessions together
	for i := range n {
		sessions.Go(func() {
			c := dial(sessionURL(at, "many-"+strconv.Itoa(i)))
			c.call(getVersion)
			c.CloseNow()
		})
	}
	sessions.Wait()
	time.Sleep(3 * time.Second)
	row("50 sessions with a blank page: memory of everything ÷ 50, Pss",
		fmt.Sprintf("%.1f MiB", pssOf(tree(p.Process.Pid)...)/n), "≤ 60 MiB")
	row("the same: bproxy, Pss", fmt.Sprintf("%.1f MiB", pssOf(p.Process.Pid)), "≤ 40 MiB")
	began := time.Now()
	output(bin+"bproxy", "session", "end", "--all", "--port", port(at))
	row("the same: to end them all", fmt.Sprintf("%.0f ms", time.Since(began).Seconds()*1000), "")
}

// churn creates and ends a session 1,000 times.
func churn(p daemon, at string) {
	browser, _ := strconv.Atoi(output(bin+"bproxy", "status", "-f", "instance.pid", port(at)))
	var took []float64
	round := func(n int) {
		for range n {
			began := time.Now()
			c := dial("ws://" + at + "/devtools/browser")
			c.call(getVersion)
			took = append(took, time.Since(began).Seconds()*1000)
			c.call(`"method":"Browser.close"`)
			c.CloseNow()
		}
		time.Sleep(3 * time.Second)
	}
	round(50) // what the first ones leave is not growth
	chrome, own := pssOf(tree(browser)...), pssOf(p.Process.Pid)
	took = nil
	round(1000)
	row("1,000 sessions created and ended: growth of Chrome, Pss",
		fmt.Sprintf("%.0f %%", (pssOf(tree(browser)...)/chrome-1)*100), "≤ 10 %")
	row("the same: growth of bproxy, Pss", fmt.Sprintf("%.1f MiB", pssOf(p.Process.Pid)-own), "≤ 2 MiB")
	row("the same: from dial to the first answer, p50", fmt.Sprintf("%.0f ms", median(took)), "")
}
