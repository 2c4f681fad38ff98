//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/virtual/chrometest"
)

// unfit returns what does not fit on a telephone: what is wider than the screen, and targets of less than 44 pixels.
const unfit = `(() => {
	const all = [...document.querySelectorAll("button, a, input:not([type=checkbox]), label, [role=treeitem]")]
		.filter((e) => e.checkVisibility());
	const wide = document.documentElement.scrollWidth;
	return [wide > 360 && "the page is " + wide + " wide",
		...all.map((e) => [e, e.getBoundingClientRect()])
			.filter(([, b]) => b.width < 44 || b.height < 44 || b.left < 0 || b.right > 360)
			.map(([e, b]) => e.outerHTML.slice(0, 80) + " " + [b.width, b.height, b.left])]
		.filter(Boolean).join("\n") })()`

// checkPhone asserts that all fits on a telephone, and is accessible.
func checkPhone(t *testing.T, p *tab, what string) {
	t.Helper()
	if got := p.eval(unfit); got != "" {
		t.Errorf("%s: %v", what, got)
	}
	checkAccessible(t, p)
}

// screen makes the window of a telephone of a tab's.
func (p *tab) screen(width, height int) {
	p.t.Helper()
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
		"deviceScaleFactor": 2, "mobile": true}, nil)
	p.call("Emulation.setTouchEmulationEnabled", map[string]any{"enabled": true, "maxTouchPoints": 2}, nil)
}

// fingers moves fingers to places of the screen; none: they leave it.
func (p *tab) fingers(kind string, places ...[2]float64) {
	p.t.Helper()
	points := []map[string]any{}
	for i, at := range places {
		points = append(points, map[string]any{"x": at[0], "y": at[1], "id": i})
	}
	p.call("Input.dispatchTouchEvent", map[string]any{"type": kind, "touchPoints": points}, nil)
}

// drag moves two fingers from places to others, in steps.
func (p *tab) drag(from, to [2][2]float64) {
	p.t.Helper()
	p.fingers("touchStart", from[0])
	p.fingers("touchStart", from[0], from[1])
	for n := 1.0; n <= 10; n++ {
		between := func(f int) (at [2]float64) {
			for i := range at {
				at[i] = from[f][i] + (to[f][i]-from[f][i])*n/10
			}
			return at
		}
		p.fingers("touchMove", between(0), between(1))
	}
	p.fingers("touchEnd")
}

// zoomed returns how large the picture is drawn, in widths of its place.
const zoomed = `document.querySelector(".surface canvas").getBoundingClientRect().width /
	document.querySelector(".surface").clientWidth`

// A person uses a session on a telephone: all of it fits, two fingers zoom, move and scroll, and text fields bring up
// the keyboard.
func TestViewPhone(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, viewedPage)
	}))
	t.Cleanup(site.Close)
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	viewer, _ := chrometest.StartShellOnPort(t)
	p := w.Proxy("share", "--browser", "chromium")
	const session = "shop-at-the-corner-of-a-rather-long-street"
	agent := openSession(t, p, session, site.URL)
	agent.until("the page is there", "window.log && document.readyState === 'complete'")
	a := ask(w, session, "Log in to the shop with the account of the company, and accept its terms")
	x := openPerson(t, w, viewer, session, agent)
	x.screen(360, 640)
	x.call("Page.reload", nil, nil)
	x.until("it is asked, on a telephone", `matchMedia("(pointer: coarse)").matches && document.querySelector(".ask") &&
		document.querySelector(".surface canvas").width > 100`)
	checkPhone(t, x.tab, "the ask")
	if got := x.eval(`document.querySelector(".surface").getBoundingClientRect().bottom`).(float64); got > 640 {
		t.Errorf("the picture ends at %v of 640", got)
	}
	x.drag([2][2]float64{{100, 500}, {150, 500}}, [2][2]float64{{50, 500}, {250, 500}})
	x.until("a person who only looks zooms the picture", zoomed+" > 2")

	x.press("Take over in private")
	x.until("the person has control", hasControl)
	checkPhone(t, x.tab, "control in private")
	x.press("Done, give back")
	a.exits(0, "")
	x.until("nobody has control", `document.querySelector(".state").textContent === "bproxy"`)
	x.take()
	checkPhone(t, x.tab, "control")
	usePhone(t, x)
	x.eval(`location.hash = ""`)
	x.until("the grid is there", `document.querySelector(".tile canvas")?.width > 100`)
	checkPhone(t, x.tab, "the grid")
	if got := x.eval("JSON.stringify(violations)"); got != "[]" {
		t.Errorf("the page breaks its own policy: %v", got)
	}
}

// middle returns the middle of the picture on the screen.
func (p person) middle() (x, y float64) {
	p.t.Helper()
	var c []float64
	raw, _ := json.Marshal(p.eval(`(() => { const b = document.querySelector(".surface").getBoundingClientRect();
		return [b.x + b.width / 2, b.y + b.height / 2] })()`))
	json.Unmarshal(raw, &c)
	return c[0], c[1]
}

// usePhone uses the page with fingers.
func usePhone(t *testing.T, x person) {
	page := x.agent
	cx, cy := x.middle()
	x.drag([2][2]float64{{cx - 100, cy}, {cx + 100, cy}}, [2][2]float64{{cx - 20, cy}, {cx + 20, cy}})
	const pixels = `document.querySelector(".surface canvas").width`
	x.until("it is as small as the screen again", zoomed+" === 1 && "+pixels+" <= 720")
	x.drag([2][2]float64{{cx - 20, cy}, {cx + 20, cy}}, [2][2]float64{{cx - 60, cy}, {cx + 60, cy}})
	x.until("it is large, and sharp", zoomed+" > 2 && "+pixels+" > 1000")

	for range 3 {
		x.drag([2][2]float64{{cx - 140, cy - 80}, {cx - 100, cy - 80}}, [2][2]float64{{cx + 100, cy + 80},
			{cx + 140, cy + 80}})
	}
	x.until("its left top is shown", `(() => { const at = document.querySelector(".surface").getBoundingClientRect(),
		c = document.querySelector(".surface canvas").getBoundingClientRect();
		return Math.abs(c.x - at.x) < 1 && Math.abs(c.y - at.y) < 1 })()`)

	tap := func(selector string) {
		lx, ly := x.place(selector)
		x.fingers("touchStart", [2]float64{lx, ly})
		x.fingers("touchEnd")
	}
	keyboard := func(is string) {
		t.Helper()
		x.until("the keyboard is "+is, fmt.Sprintf(`document.activeElement.matches(".hand textarea") &&
			document.activeElement.inputMode === %q`, is))
	}
	keyboard("none")
	tap("#name")
	keyboard("text")
	x.call("Input.insertText", map[string]any{"text": "Anna"}, nil)
	page.until("what is typed arrives", `document.querySelector("#name").value === "Anna"`)
	tap("#buy")
	page.until("the button is pressed", `log.includes("click buy")`)
	keyboard("none")
	x.press("Keyboard")
	keyboard("text")

	x.drag([2][2]float64{{cx, cy + 20}, {cx + 40, cy + 20}}, [2][2]float64{{cx, cy - 60}, {cx + 40, cy - 60}})
	x.until("the picture moves first", `document.querySelector(".surface canvas").getBoundingClientRect().y <
		document.querySelector(".surface").getBoundingClientRect().y - 10`)
	for range 8 {
		x.drag([2][2]float64{{cx, cy + 20}, {cx + 40, cy + 20}}, [2][2]float64{{cx, cy - 60}, {cx + 40, cy - 60}})
	}
	page.until("the page is scrolled by two fingers", "scrollY > 100")
	if got := page.eval(`log.filter((l) => /^(click|contextmenu)/.test(l)).join()`); got != "click name,click buy" {
		t.Errorf("two fingers click: %v", got)
	}
	page.eval("scrollTo(0, 0)")
	x.drag([2][2]float64{{cx - 60, cy}, {cx + 60, cy}}, [2][2]float64{{cx - 10, cy}, {cx + 10, cy}})
	x.until("it is as small as the screen again", zoomed+" === 1")
	x.call("Page.setInterceptFileChooserDialog", map[string]any{"enabled": true}, nil) // else it is canceled
	tap("#files")
	x.until("the page asks for files", chooser)
	checkPhone(t, x.tab, "a chooser")
	x.press("Cancel")
	x.until("it has none", "!"+chooser)
}

// Who wants less motion sees one picture of a tile a second, however much its page moves.
func TestViewCalm(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	viewer, _ := chrometest.StartShellOnPort(t)
	p := w.Proxy("share")
	openSession(t, p, "clock", "data:text/html,<p id=n><script>setInterval(() => n.append('tick '), 100)</script>")
	x := openTab(t, viewer, strings.TrimSpace(w.Run("bproxy", "view", "--no-open").Out), 1280)
	x.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{
		{"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
	x.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `window.drawn = [];
		const draw = CanvasRenderingContext2D.prototype.drawImage;
		CanvasRenderingContext2D.prototype.drawImage = function (...all) {
			drawn.push(performance.now());
			return draw.apply(this, all);
		}`}, nil)
	x.call("Page.reload", nil, nil)
	x.until("there are pictures", "window.drawn?.length >= 4")
	got := x.eval(`drawn.slice(1).map((t, i) => Math.round(t - drawn[i])).filter((gap) => gap < 900).join()`)
	if got != "" {
		t.Errorf("from one picture to the next are ms: %v", got)
	}
}
