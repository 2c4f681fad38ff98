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
	"time"

	"btools/lib/jsonrpc"
)

// pressed is a page whose color changes with each press, and with ?moves an animated one.
const pressed = `<!doctype html><body style="margin: 0; height: 100vh; background: rgb(0, 0, 200)"><script>
	onmousedown = () => document.body.style.background = document.body.style.background === "rgb(0, 0, 200)" ?
		"rgb(0, 200, 0)" : "rgb(0, 0, 200)"
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
	CanvasRenderingContext2D.prototype.drawImage = function (...all) {
		draw.apply(this, all)
		window.draws++
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
		await new Promise((done) => setTimeout(done, Math.max(0, acked + 1000 / 30 - performance.now())))
		acked = performance.now()
		call("Page.screencastFrameAck", { sessionId: m.params.sessionId }, session)
	}
	const { targetInfos } = await call("Target.getTargets")
	session = (await call("Target.attachToTarget", { targetId: targetInfos.at(-1).targetId, flatten: true })).sessionId
	await call("Page.startScreencast", { format: "jpeg", quality: 80, maxWidth: 960, maxHeight: 690,
		sendLastFrame: true }, session)
	canvas.onpointerdown = canvas.onpointerup = (e) => call("Input.dispatchMouseEvent", {
		type: e.type === "pointerdown" ? "mousePressed" : "mouseReleased", x: 640, y: 300, button: "left",
			clickCount: 1 }, session)
	</script>`

// ownBrowser starts a browser that none of the programs has launched: those are refused.
func (b *bench) ownBrowser() (url string) {
	profile := dir + "/viewer" + strconv.FormatInt(time.Now().UnixNano(), 36)
	b.start(command("/usr/lib/chromium/chromium-headless-shell", "--no-sandbox", "--disable-background-networking",
		"--remote-debugging-port=0", "--user-data-dir="+profile, "about:blank"))
	var lines []string
	within(time.Minute, func() bool {
		f, _ := os.ReadFile(profile + "/DevToolsActivePort")
		lines = strings.Fields(string(f))
		return len(lines) == 2
	})
	return "ws://127.0.0.1:" + lines[0] + lines[1]
}

// value returns the value of an expression.
func (p *page) value(expression string, into any) {
	b, _ := p.evaluate(expression)
	json.Unmarshal(jsonrpc.Get(b, "result", "result", "value"), into)
}

// until waits until an expression is true.
func (p *page) until(expression string) {
	within(time.Minute, func() (is bool) {
		p.value("!!("+expression+")", &is)
		return is
	})
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

// views measures the page of bproxy view beside a bare client of CDP, by turns.
func views(b *bench) {
	site := b.serve(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if strings.HasPrefix(r.URL.RawQuery, "ws") {
			io.WriteString(w, bareClient)
			return
		}
		io.WriteString(w, pressed)
	})
	_, at := b.bproxy("--isolate", "--max-sessions", "200", "--allow-origin", "*")
	viewer := b.ownBrowser()
	view := func(session string) string { return output(bin+"bproxy", "view", "--no-open", "--control", session) }
	b.atEnd(func() { try(bin+"bproxy", "view", "--stop") })
	open := func(session, path string) *page {
		c := dial(sessionURL(at, session))
		b.atEnd(func() { c.CloseNow() })
		got, _ := c.call(`"method":"Target.getTargets","params":{}`)
		var all []struct{ TargetID string }
		json.Unmarshal(jsonrpc.Get(got, "result", "targetInfos"), &all)
		p := c.attach(all[0].TargetID)
		p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1280, "height": 720,
			"deviceScaleFactor": 1,
			"mobile":            false})
		p.call("Page.navigate", map[string]any{"url": site + path})
		return p
	}
	bareOf := func(session string) *page {
		return watching(viewer, site+"/?"+strings.ReplaceAll(sessionURL(at, session), "/", "%2F"))
	}

	open("still", "/")
	ours := watching(viewer, view("still"))
	ours.evaluate(`[...document.querySelectorAll("button")].find((b) => b.textContent.trim() === "Take over").click()`)
	ours.until(`document.querySelector(".hand")`)
	took := ours.presses(60, 500, 400)
	ours.CloseNow()
	time.Sleep(time.Second)
	open("bare", "/")
	bare := bareOf("bare")
	peer := bare.presses(60, 400, 300)
	bare.CloseNow()
	row("view: a press until its effect is drawn, p50, p95", "≤ 50, ≤ 90 ms", "%.0f, %.0f ms", took.at(50), took.at(95))
	row("the same by a bare client of CDP", "", "%.0f, %.0f ms", peer.at(50), peer.at(95))
	row("the same: view ÷ bare", "≤ 1.5", "%.2f", took.at(50)/peer.at(50))

	open("moves", "/?moves")
	ours = watching(viewer, view("moves"))
	drawn := ours.frames(10)
	ours.CloseNow()
	time.Sleep(time.Second)
	bare = bareOf("moves")
	cast := bare.frames(10)
	bare.CloseNow()
	row("view: frames drawn of a 60 fps page, by view, by a bare client", "≥ 24 a second", "%.0f, %.0f", drawn, cast)
	row("the same: view ÷ bare", "≥ 0.8", "%.2f", drawn/cast)
}
