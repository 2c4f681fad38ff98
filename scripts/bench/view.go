//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/proc"
	"btools/lib/state"
)

// pressed is a page whose color changes with each press, and with ?moves an animated one.
const pressed = `<!doctype html><body style="margin: 0; height: 100vh; background: rgb(0, 0, 200)"><script>
	const colors = ["rgb(0, 0, 200)", "rgb(0, 200, 0)"]
	onmousedown = () => document.body.style.background = colors[+(document.body.style.background === colors[0])]
	window.burst = (n, color) => new Promise((done) => requestAnimationFrame(function draw() {
		document.body.style.background = n > 0 ? "hsl(0 80% " + (20 + 3 * n) + "%)" : colors[color]
		if (n-- > 0) requestAnimationFrame(draw)
		else requestAnimationFrame(() => done(Date.now()))
	}))
	if (location.search === "?moves") {
		const c = document.body.appendChild(document.createElement("canvas")), x = c.getContext("2d");
		[c.width, c.height] = [1280, 700]
		let n = 0
		requestAnimationFrame(function draw() {
			x.fillStyle = "hsl(" + n++ % 360 + " 80% 50%)"
			x.fillRect(n * 7 % 1200, n * 3 % 600, 80, 80)
			requestAnimationFrame(draw)
		})
	}</script>`

// watched counts the pictures that a page draws, and times each press until another color is drawn.
const watched = `window.draws = 0; window.took = []
	const draw = CanvasRenderingContext2D.prototype.drawImage
	window.colors = []
	CanvasRenderingContext2D.prototype.drawImage = function (...all) {
		draw.apply(this, all)
		window.draws++
		if (window.bursts) {
			const [r, g] = this.getImageData(this.canvas.width / 2, this.canvas.height - 4, 1, 1).data
			colors.push([r > 60 ? -1 : +(g > 100), Date.now()])
		}
		if (!window.since) return
		const now = String(this.getImageData(this.canvas.width / 2, this.canvas.height - 4, 1, 1).data.slice(0,
			3).map((v) => v > 100))
		if (now !== window.color) { took.push(performance.now() - since); window.since = 0 }
		window.color = now
	}
	addEventListener("pointerdown", () => {
		const c = document.querySelector("canvas"), x = c.getContext("2d")
		window.color = String(x.getImageData(c.width / 2, c.height - 4, 1, 1).data.slice(0, 3).map((v) => v > 100))
		window.since = performance.now()
	}, true)`

// bareClient is the least that shows a page and passes presses on: a peer without our page, front and lock.
const bareClient = `<!doctype html><canvas style="width: 960px; height: 540px"></canvas><script type="module">
	const socket = new WebSocket(decodeURIComponent(location.search.slice(1))), pending = new Map()
	let last = 0, session
	const call = (method, params = {}, sessionId = undefined) => new Promise((done) => {
		pending.set(++last, done)
		socket.send(JSON.stringify({ id: last, method, params, sessionId }))
	})
	await new Promise((done) => { socket.onopen = done })
	const canvas = document.querySelector("canvas"), x = canvas.getContext("2d")
	let acked = 0
	socket.onmessage = async (e) => {
		const m = JSON.parse(e.data)
		if (m.id) return pending.get(m.id)?.(m.result)
		if (m.method !== "Page.screencastFrame") return
		const image = await createImageBitmap(new Blob([Uint8Array.from(atob(m.params.data), (c) => c.charCodeAt(0))]))
		if (canvas.width !== image.width) [canvas.width, canvas.height] = [image.width, image.height]
		x.drawImage(image, 0, 0)
		acked = Math.max(performance.now(), acked + 1000 / 30)
		await new Promise((done) => setTimeout(done, acked - performance.now()))
		call("Page.screencastFrameAck", { sessionId: m.params.sessionId }, session)
	}
	const { targetInfos } = await call("Target.getTargets")
	const { targetId } = targetInfos.find((t) => t.url.startsWith(location.origin) && !t.url.includes("?ws"))
	session = (await call("Target.attachToTarget", { targetId, flatten: true })).sessionId
	await call("Page.startScreencast", { format: "jpeg", quality: 80, maxWidth: 960, maxHeight: 690,
		sendLastFrame: true }, session)
	canvas.onpointerdown = canvas.onpointerup = (e) => call("Input.dispatchMouseEvent", {
		type: e.type === "pointerdown" ? "mousePressed" : "mouseReleased", x: 640, y: 300, button: "left",
			clickCount: 1 }, session)
	</script>`

// The browsers of a person, and of a session.
const (
	shell    = "/usr/lib/chromium/chromium-headless-shell"
	chromium = "/usr/lib/chromium/chromium"
)

// ownBrowser starts a browser that none of the programs has launched: those are refused.
func (b *bench) ownBrowser(path string) (url string, pid int) {
	profile := dir + "/viewer" + strconv.FormatInt(time.Now().UnixNano(), 36)
	pid = b.start(command(path, "--headless", "--no-sandbox", "--disable-background-networking",
		"--remote-debugging-port=0", "--remote-allow-origins=*", "--user-data-dir="+profile, "about:blank"))
	var lines []string
	within(time.Minute, func() bool {
		f, _ := os.ReadFile(profile + "/DevToolsActivePort")
		lines = strings.Fields(string(f))
		return len(lines) == 2
	})
	return "ws://127.0.0.1:" + lines[0] + lines[1], pid
}

// value returns the value of an expression.
func (p *page) value(expression string, into any) {
	b, _ := p.evaluate(expression)
	json.Unmarshal(jsonrpc.Get(b, "result", "result", "value"), into)
}

// awaited is the value of a promise.
func (p *page) awaited(expression string, into any) {
	b, _ := p.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true,
		"awaitPromise": true})
	json.Unmarshal(jsonrpc.Get(b, "result", "result", "value"), into)
}

// until waits until an expression is true.
func (p *page) until(expression string) {
	err := attempt(func() {
		within(time.Minute, func() (is bool) {
			p.value("!!("+expression+")", &is)
			return is
		})
	})
	if err != nil {
		fail("%w: %s", err, expression)
	}
}

// watching opens the page of bproxy view, or of the bare client, with what counts what it draws.
func watching(viewer, url string) *page {
	p := openPage(viewer)
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1280, "height": 860, "deviceScaleFactor": 1,
		"mobile": false})
	p.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": watched})
	p.call("Page.enable", nil)
	p.call("Page.navigate", map[string]any{"url": url})
	p.until("window.draws > 0")
	return p
}

// presses returns how long it takes from a press to its effect, n times.
func (p *page) presses(n int, x, y float64) (all series) {
	for k := range n {
		for _, kind := range []string{"mousePressed", "mouseReleased"} {
			p.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left",
				"clickCount": 1})
		}
		p.until(fmt.Sprintf("window.took.length > %d", k))
		time.Sleep(50 * time.Millisecond)
	}
	p.value("window.took", &all)
	return all
}

// frames returns how many pictures a page draws in a second, over some.
func (p *page) frames(seconds int) float64 {
	var before, after float64
	p.value("draws", &before)
	time.Sleep(time.Duration(seconds) * time.Second)
	p.value("draws", &after)
	return (after - before) / float64(seconds)
}

// viewing is a bproxy with sessions, and a browser of a person who looks at them.
type viewing struct {
	b          *bench
	proxy      int // its pid
	at, viewer string
	site       string
	person     int // the pid of the viewer
}

func (b *bench) viewing() *viewing {
	v := &viewing{b: b}
	v.site = b.serve(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if strings.HasPrefix(r.URL.RawQuery, "ws") {
			io.WriteString(w, bareClient)
			return
		}
		io.WriteString(w, pressed)
	})
	v.proxy, v.at = b.bproxy("--isolate", "--max-sessions", "200", "--allow-origin", "*")
	v.viewer, v.person = b.ownBrowser(shell)
	b.atEnd(func() { try(bin+"bproxy", "view", "--stop") })
	return v
}

// open opens a page in a session, with a window that a person sees whole.
func (v *viewing) open(session, path string) *page {
	c := dial(sessionURL(v.at, session))
	v.b.atEnd(func() { c.CloseNow() })
	got, _ := c.call(`"method":"Target.getTargets","params":{}`)
	var all []struct{ TargetID string }
	json.Unmarshal(jsonrpc.Get(got, "result", "targetInfos"), &all)
	p := c.attach(all[0].TargetID)
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1280, "height": 720, "deviceScaleFactor": 1,
		"mobile": false})
	p.call("Page.navigate", map[string]any{"url": v.site + path})
	p.until("document.body?.style.background")
	return p
}

// ours opens the page of bproxy view; of all sessions: "".
func (v *viewing) ours(session string) *page {
	args := []string{"view", "--no-open"}
	if session != "" {
		args = append(args, "--control", session)
	}
	return watching(v.viewer, output(bin+"bproxy", args...))
}

// bare opens the bare client with a page of a browser.
func (v *viewing) bare(url string) *page {
	return watching(v.viewer, v.site+"/?"+strings.ReplaceAll(url, "/", "%2F"))
}

// close closes a page of the person, and waits until nothing is drawn for it any more.
func (p *page) close() {
	p.call("Page.close", nil)
	p.CloseNow()
	time.Sleep(time.Second)
}

// pressesOnPages measures the page of bproxy view beside a bare client of CDP.
func pressesOnPages(b *bench) {
	v := b.viewing()
	v.open("still", "/")
	ours := v.ours("still")
	ours.evaluate(`[...document.querySelectorAll("button")].find((b) => b.textContent.trim() === "Take over").click()`)
	ours.until(`document.querySelector(".hand")`)
	took := ours.presses(60, 500, 400)
	ours.close()
	v.open("bare", "/")
	bare := v.bare(sessionURL(v.at, "bare"))
	peer := bare.presses(60, 400, 300)
	bare.close()
	row("view: a press until its effect is drawn, p50, p95", "≤ 50, ≤ 90 ms", "%.0f, %.0f ms", took.at(50), took.at(95))
	row("the same by a bare client of CDP", "", "%.0f, %.0f ms", peer.at(50), peer.at(95))
	row("the same: view ÷ bare", "≤ 1.5", "%.2f", took.at(50)/peer.at(50))

	v.open("moves", "/?moves")
	ours = v.ours("moves")
	drawn := ours.frames(10)
	ours.close()
	bare = v.bare(sessionURL(v.at, "moves"))
	cast := bare.frames(10)
	bare.close()
	row("view: frames drawn of a 60 fps page, by view, by a bare client", "≥ 24 a second", "%.0f, %.0f", drawn, cast)
	row("the same: view ÷ bare", "≥ 0.8", "%.2f", drawn/cast)
}

// kindsOfInput counts the kinds of input that a page gets by the page of bproxy view, which are the parts of a test.
func kindsOfInput(*bench) {
	c := command("go", "test", "-v", "-vet=off", "-trimpath", "-tags", "urfave_cli_no_docs", "-count=1", "-run",
		"^TestViewPage$", "btools/cmd/bproxy")
	c.Env = append(c.Env, "BTOOLS_TEST_BIN="+bin, "CGO_ENABLED=0", "LONG=1") // else Chromium has one kind only
	out, _ := c.Output()                                                     // one that fails is not counted
	for _, browser := range []string{"chrome-headless-shell", "chromium"} {
		row("view: kinds of input in "+browser, "16", "%d", strings.Count(string(out),
			"--- PASS: TestViewPage/"+browser+"/"))
	}
}

// bursts measures how long after the last change of a page its state is on the screen.
func bursts(b *bench) {
	const n = 200
	v := b.viewing()
	agent := v.open("bursts", "/")
	ours := v.ours("bursts")
	ours.evaluate("window.bursts = true")
	var took series
	for k := range n {
		var painted, seen float64
		color := 1 - k%2
		agent.awaited(fmt.Sprintf("burst(%d, %d)", 1+k%20, color), &painted)
		ours.until(fmt.Sprintf("colors.at(-1)?.[0] === %d", color))
		ours.value(`colors.findLast(([c], i) => c !== colors[i - 1]?.[0])[1]`, &seen)
		took.add(max(0, seen-painted))
	}
	soon := 0
	for _, t := range took {
		if t <= 250 {
			soon++
		}
	}
	row("view: last state of a burst on the screen, p50, p95", "≤ 250 ms", "%.0f, %.0f ms", took.at(50), took.at(95))
	row("the same: within 250 ms", "200 of 200", "%d of %d", soon, n)
}

// tiles measures what the grid costs: the programs and browsers, and the person's browser apart.
func tiles(b *bench) {
	v := b.viewing()
	for n := range 50 {
		v.open(fmt.Sprint("still-", n), "/")
	}
	address := output(bin+"bproxy", "view", "--no-open")
	cost := func() (ours, person float64) {
		const seconds = 30
		time.Sleep(5 * time.Second) // what has begun ends
		var services struct{ Views []state.ViewService }
		check(json.Unmarshal(must(os.ReadFile(dir+"/state/state.json")), &services))
		mine, theirs := append(proc.Tree(v.proxy), services.Views[0].Process.PID), proc.Tree(v.person)
		before, beforeTheirs := cpu(mine...), cpu(theirs...)
		time.Sleep(seconds * time.Second)
		return (cpu(mine...) - before) / seconds / 10, (cpu(theirs...) - beforeTheirs) / seconds / 10
	}
	none, _ := cost()
	small := rss(v.proxy)
	all := func(n int) *page {
		grid := watching(v.viewer, address)
		grid.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1280, "height": 8000,
			"deviceScaleFactor": 1, "mobile": false})
		grid.until(fmt.Sprintf(`document.querySelectorAll(".tile").length === %d &&
			[...document.querySelectorAll(".tile canvas")].every((c) => c.width > 100)`, n))
		return grid
	}
	grid := all(50)
	still, drawing := cost()
	large := rss(v.proxy)
	row("view: 50 still sessions: without a page, with their tiles", "", "%.1f, %.1f %%", none, still)
	row("the same: added by the tiles", "≤ 3 %", "%.1f %%", still-none)
	row("the same: of the person's browser", "", "%.1f %%", drawing)
	row("the same: memory a tile in bproxy", "≤ 0.5 MiB", "%.2f MiB", (large-small)/50)
	grid.close()
	output(bin+"bproxy", "session", "end", "--all", "--port", portOf(v.at))
	for n := range 12 {
		v.open(fmt.Sprint("moves-", n), "/?moves")
	}
	none, _ = cost()
	grid = all(12)
	moving, drawing := cost()
	row("view: 12 animated sessions: without a page, with their tiles", "", "%.0f, %.0f %%", none, moving)
	row("the same: added by the tiles; of the person's browser", "≤ 60 %", "%.0f; %.0f %%", moving-none, drawing)
}

// besideViews measures the round trip of a session beside a view of another one, and beside a viewer that is stopped;
// the peer is a Chrome with a port, whose page the same bare client shows.
func besideViews(b *bench) {
	v := b.viewing()
	chrome, _ := b.ownBrowser(chromium)
	v.open("moves", "/?moves")
	pages := b.openPages(sessionURL(v.at, "other"), chrome, chrome) // the last one is not hidden
	other, peer, animated := pages[0], pages[1], pages[2]
	animated.call("Page.navigate", map[string]any{"url": v.site + "/?moves"})
	p95 := func(p *page) float64 {
		var all series
		for range 1000 {
			all.add(p.one() / 1000)
			time.Sleep(2 * time.Millisecond)
		}
		return all.at(95)
	}
	var alone, beside, stopped, cast, castStopped, drawn, drawnBare series
	for range 3 {
		alone.add(p95(other))
		ours := v.ours("moves")
		drawn.add(ours.frames(5))
		beside.add(p95(other))
		v.stopped(func() { stopped.add(p95(other)) })
		ours.close()
		bare := v.bare(chrome)
		drawnBare.add(bare.frames(5))
		cast.add(p95(peer))
		v.stopped(func() { castStopped.add(p95(peer)) })
		bare.close()
	}
	row("view: evaluate in another session, p95: alone, beside, stopped", "", "%.1f, %.1f, %.1f ms", alone.median(),
		beside.median(), stopped.median())
	row("the same: frames drawn of the cast, by view, by a bare client", "", "%.0f, %.0f", drawn.median(),
		drawnBare.median())
	row("the same by a bare cast of Chrome's own: beside, stopped", "", "%.1f, %.1f ms", cast.median(),
		castStopped.median())
	row("the same: view ÷ bare: beside, stopped", "≤ 1.1", "%.2f, %.2f", beside.median()/cast.median(),
		stopped.median()/castStopped.median())
}

// stopped stops the person's browser for as long as a function runs.
func (v *viewing) stopped(do func()) {
	signal := func(s syscall.Signal) {
		for _, pid := range proc.Tree(v.person) {
			syscall.Kill(pid, s)
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	do()
}
