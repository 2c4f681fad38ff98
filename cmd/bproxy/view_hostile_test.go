//go:build linux

package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/virtual/chrometest"
)

// hostile are pages that are hard to look at and to use, and what a person does there. PORT is that of their server, at
// which "/other" is another page.
var hostile = []struct {
	name, page string
	do         func(t *testing.T, x person, url string)
}{
	{"select in a frame of another site", `<body style="margin: 0; height: 5000px">
		<iframe src="http://localhost:PORT/between" width="600" height="200" style="position: absolute; top: 600px;
			left: 40px; border: 7px solid"></iframe>
		<script>onmessage = (e) => { window.got = (window.got ?? "") + e.data }; scrollTo(0, 500)</script>`, useFrame},
	{"files and drags in a frame of another site", `<body style="margin: 0">
		<iframe src="http://localhost:PORT/asks" width="600" height="300" style="position: absolute; top: 100px;
			left: 40px; border: 0"></iframe>
		<script>window.got = ""; onmessage = (e) => { got += e.data + " " }</script>`, useAskingFrame},
	{"select of 10,000 options", `<select id="big" style="width: 300px; margin-top: 700px"></select>
		<p style="height: 3000px"></p>
		<script>for (let i = 0; i < 10000; i++) big.append(new Option("Option " + i)); scrollTo(0, 500)</script>`,
		useManyOptions},
	{"select of several options", `<select id="several" multiple><option>a<option>b<option>c</select>`, useMultiple},
	{"crash", `<title>Fragile</title><button id="button"></button>`, useCrash},
	{"mobile page without a viewport tag", `<button id="button" style="position: absolute; left: 700px;
		top: 900px"></button><select id="list" style="position: absolute; left: 300px; top: 1200px"><option>a
		<option>b</select>`, useMobile},
	{"very large page", `<body style="height: 20000px"><button id="button" style="position: absolute; left: 7000px;
		top: 16000px"></button>`, useLarge},
	{"alerts in a loop", `<title>Loud</title><button id="button"></button><script>let n = 0;
		button.onclick = () => { while (true) alert("alert " + ++n) }</script>`, useAlerts},
	{"alert at the take", `<button id="button"></button>`, useOpenAlert},
	{"beforeunload", `<button id="button"></button><script>onbeforeunload = (e) => e.preventDefault()</script>`,
		useBeforeUnload},
	{"middle click", `<input id="from" value="selected"><p><input id="to"></p><p><a id="link" href="/other"
		target="_blank">other</a></p>`, useMiddleClick},
	{"keys", `<input id="field">`, useKeys},
	{"chooser when control is given back", `<input type="file" id="file">`, func(t *testing.T, x person, _ string) {
		useChooserAfterwards(t, x, func() { x.press("Give back") })
	}},
	{"chooser when control ends", `<input type="file" id="file">`, func(t *testing.T, x person, _ string) {
		useChooserAfterwards(t, x, func() {
			x.eval("window.old = " + lastSocket + `; old.send('{"id":1000000,"method":"Btools.give"}')`)
			x.until("the page connects again", "old !== "+lastSocket)
		})
	}},
	{"lost connection", `<button id="button"></button>`, useLostConnection},
}

// between is a page in a frame that has a frame of a third site.
const between = `<body style="margin: 0"><iframe src="http://inner.localhost:PORT/framed" width="500" height="150"
	style="margin: 20px; border: 0">`

// asks is a page in a frame that asks for a file and has something to drag.
const asks = `<body style="margin: 0"><style>* { position: absolute; left: 0; width: 200px; height: 60px }</style>
	<input type="file" id="file"><div id="item" draggable="true" style="top: 100px">item</div>
	<div id="cart" style="top: 200px">cart</div>
	<script>const tell = (what) => top.postMessage(what, "*");
	file.onchange = async () => tell(file.files[0].name + ":" + await file.files[0].text());
	file.oncancel = (e) => tell("canceled" + (e.isTrusted ? "" : "?"));
	item.ondragstart = (e) => e.dataTransfer.setData("text/plain", "item");
	cart.ondragover = (e) => e.preventDefault();
	cart.ondrop = (e) => { e.preventDefault(); tell("dropped:" + e.dataTransfer.getData("text/plain")) };
	tell("ready")</script>`

// framed is the page in it. It is scrolled, and tells the page that it is in of the input.
const framed = `<body style="margin: 0; height: 3000px"><select id="list" style="position: absolute; left: 20px;
	top: 500px; width: 200px; height: 30px"><option>Austria<option>Belgium<option>Croatia</select>
	<script>const ready = setInterval(() => { // it has no size at first
		scrollTo(0, 400);
		if (scrollY === 400) clearInterval(ready), top.postMessage("", "*");
	}, 20);
	list.onchange = (e) => top.postMessage(list.value + (e.isTrusted ? "." : "?"), "*")</script>`

// counted counts the clicks on a red button of a page.
const counted = `<style>#button { width: 120px; height: 60px; border: 0; background: red }</style>
	<script>addEventListener("click", (e) => { if (e.isTrusted && e.target.id === "button")
		window.clicks = (window.clicks ?? 0) + 1 })</script>`

// Pages that are hard to show, or that do not want to be left, are used and left on the page of bproxy view as in the
// browser itself.
func TestViewHostile(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		page := map[string]string{"/between": between, "/framed": framed, "/asks": asks,
			"/other": "<title>Other</title>"}[r.URL.Path]
		for _, c := range hostile {
			if r.URL.Path == "/"+strings.ReplaceAll(c.name, " ", "-") {
				page = c.page + counted
			}
		}
		_, port, _ := strings.Cut(r.Host, ":")
		fmt.Fprint(w, "<!doctype html>"+strings.ReplaceAll(page, "PORT", port))
	}))
	t.Cleanup(site.Close)
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	viewer, _ := chrometest.StartShellOnPort(t)
	p := w.Proxy("share", "--browser", "chromium")
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			session := strings.NewReplacer(" ", "-", ",", "").Replace(c.name)
			agent := openSession(t, p, session, site.URL+"/"+strings.ReplaceAll(c.name, " ", "-"))
			agent.until("the page is there", `location.href !== "about:blank" && document.readyState === "complete"`)
			x := openPerson(t, w, viewer, session, agent)
			c.do(t, x, site.URL)
			x.call("Page.close", nil, nil)
		})
	}
}

// lastSocket is the connection to the session that the person's page has.
const lastSocket = `sockets.findLast((s) => s.url.includes("/session/"))`

// useButton presses the button of the page, once the person sees it.
func (p person) useButton() {
	p.t.Helper()
	cmdtest.Until(p.t, "the button is in the picture", func() bool {
		x, y := p.place("#button")
		return p.eval(fmt.Sprintf(`(() => {
			const c = document.querySelector(".surface canvas"), b = c.getBoundingClientRect();
			const [red, green] = c.getContext("2d").getImageData((%v - b.x) * c.width / b.width,
				(%v - b.y) * c.height / b.height, 1, 1).data;
			return red > 200 && green < 60 })()`, x, y)) == true
	})
	before := p.agent.eval("window.clicks ?? 0").(float64)
	p.clickOn("#button", "left", 1)
	p.agent.until("the button is pressed", fmt.Sprintf("window.clicks === %v", before+1))
}

// navigate goes to another page by the field for the address.
func (p person) navigate(url string) {
	p.t.Helper()
	p.eval(fmt.Sprintf(`(() => { const f = document.querySelector(".address"); f.elements.address.value = %q;
		f.requestSubmit() })()`, url))
}

// choose chooses an option of the list that is open.
func (p person) choose(option string) {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll("[role=option]")].find((o) => o.textContent === %q)`, option)
	p.until("there is the option "+option, find)
	p.eval(find + ".click()")
}

// keyEvent sends an event of a key that no command has, such as one of a layout with AltGr.
func (p person) keyEvent(kind, init string) {
	p.t.Helper()
	p.eval(fmt.Sprintf(`document.activeElement.dispatchEvent(new KeyboardEvent(%q, {bubbles: true, cancelable: true,
		%s}))`, kind, init))
}

func useFrame(_ *testing.T, x person, _ string) {
	x.agent.until("the frame is scrolled", `window.got === ""`)
	x.take()
	for _, option := range []string{"Croatia", "Belgium"} {
		cx, cy := x.at(40+7+20+120, 600-500+7+20+500-400+15)
		x.click(cx, cy, "left", 1)
		x.choose(option)
		x.agent.until(option+" is chosen once", fmt.Sprintf(`window.got?.endsWith("%s.")`, option))
	}
	x.agent.until("nothing else is chosen", `window.got === "Croatia.Belgium."`)
}

func useAskingFrame(t *testing.T, x person, _ string) {
	x.agent.until("the frame is there", `got === "ready "`)
	x.take()
	x.call("Page.setInterceptFileChooserDialog", map[string]any{"enabled": true}, nil)
	file := t.TempDir() + "/a.txt"
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	fx, fy := x.at(40+50, 100+30)
	cmdtest.Until(t, "the origin of the frame is told", func() bool {
		x.click(fx, fy, "left", 1) // the frame has been found some milliseconds after the take
		return x.eval(`document.querySelector(".dialog h2")?.textContent.startsWith("http://localhost")`) == true
	})
	x.chooses(file)
	x.agent.until("the frame has the file", `got.endsWith(" a.txt:text ")`)
	x.click(fx, fy, "left", 1)
	x.until("it asks again", chooser)
	x.press("Cancel")
	x.agent.until("the frame is told", `got.endsWith(" canceled ")`)
	ix, iy := x.at(40+50, 100+130)
	cx, cy := x.at(40+50, 100+230)
	x.hold(ix, iy, cx, cy)
	x.mouse("mouseReleased", cx, cy, map[string]any{"button": "left", "clickCount": 1})
	x.agent.until("it is dropped", `got.endsWith(" dropped:item ")`)
}

// useChooserAfterwards has control end, after which what the agent opens does not come to the person.
func useChooserAfterwards(t *testing.T, x person, end func()) {
	x.call("Page.setInterceptFileChooserDialog", map[string]any{"enabled": true}, nil)
	x.take()
	x.clickOn("#file", "left", 1)
	x.until("the page asks the person", chooser)
	end()
	x.until("control has ended", `document.querySelector(".live").textContent === "The agent goes on." && !`+chooser)
	x.until("the page is connected", `document.querySelector(".box input")`)
	x.eval("window.last = " + lastSocket + `; window.heard = [];
		last.addEventListener("message", (e) => heard.push(...e.data.match(/fileChooserOpened|"id":1000001/) ?? []))`)
	x.agent.call("Page.setInterceptFileChooserDialog", map[string]any{"enabled": true, "cancel": true}, nil)
	x.agent.eval(`window.canceled = 0; file.oncancel = () => canceled++; file.click()`)
	x.agent.until("the agent opens a chooser", "canceled === 1")
	x.eval(`last.send('{"id":1000001,"method":"Browser.getVersion"}')`)
	x.until("the person has heard all", "heard.length")
	if got := x.eval("heard[0]"); got != `"id":1000001` {
		t.Errorf("the person hears of the agent's files: %v", got)
	}
}

func useManyOptions(_ *testing.T, x person, _ string) {
	x.take()
	x.clickOn("#big", "left", 1)
	x.until("the field for a filter has the focus", `document.activeElement.type === "search"`)
	x.call("Input.insertText", map[string]any{"text": "9876"}, nil)
	x.until("one option is left", `document.querySelectorAll("[role=option]").length === 1`)
	x.key("ArrowDown", "ArrowDown", 40, 0)
	x.key("Enter", "Enter", 13, 0)
	x.agent.until("it is chosen", `big.value === "Option 9876"`)
}

func useMultiple(t *testing.T, x person, _ string) {
	x.take()
	x.clickOn("#several option:nth-child(1)", "left", 1)
	x.agent.until("one is chosen", `[...several.selectedOptions].map((o) => o.value).join() === "a"`)
	cx, cy := x.place("#several option:nth-child(3)")
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		x.mouse(kind, cx, cy, map[string]any{"button": "left", "clickCount": 1, "modifiers": 2})
	}
	x.agent.until("two are chosen", `[...several.selectedOptions].map((o) => o.value).join() === "a,c"`)
	if x.eval(`!!document.querySelector(".choices")`) == true {
		t.Error("a list of options is shown, though the page shows one itself")
	}
}

func useCrash(_ *testing.T, x person, _ string) {
	x.take()
	x.useButton()
	x.crash()
	x.useButton()
}

func useMobile(_ *testing.T, x person, _ string) {
	x.agent.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 400, "height": 800,
		"deviceScaleFactor": 3, "mobile": true}, nil)
	x.take()
	x.agent.until("the page is a telephone's", "innerWidth === 980")
	x.useButton()
	x.clickOn("#list", "left", 1)
	x.choose("b")
	x.agent.until("the option is chosen", `list.value === "b"`)
	x.press("Outline")
	x.until("the outline is there", `document.querySelector("[role=tree]")`)
	x.key("Escape", "Escape", 27, 3)
	x.until("the keys lead there from the picture", `document.activeElement.role === "treeitem"`)
	x.enter("button")
	x.agent.until("the button is pressed by the outline", "clicks === 2")
}

func useLarge(_ *testing.T, x person, _ string) {
	x.agent.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 7680, "height": 4320,
		"deviceScaleFactor": 1, "mobile": false}, nil)
	x.take()
	cx, cy := x.at(4000, 2000)
	x.mouse("mouseWheel", cx, cy, map[string]any{"deltaX": 0, "deltaY": 15000})
	x.agent.until("the page is scrolled", "scrollY === 15000")
	x.useButton()
}

func useAlerts(_ *testing.T, x person, _ string) {
	x.take()
	x.clickOn("#button", "left", 1)
	for n := range 3 {
		x.until("the alert is shown", fmt.Sprintf(`document.querySelector(".dialog p")?.textContent ===
			"alert %d"`, n+1))
		x.press("OK")
	}
	x.press("New tab")
	x.until("another tab is seen", `document.querySelectorAll(".tab").length === 2 &&
		!document.querySelector(".dialog")`)
	x.press("Close Loud")
	x.until("it is closed", `document.querySelectorAll(".tab").length === 1`)
	x.press("Give back")
	x.until("the agent goes on", `document.querySelector(".live").textContent === "The agent goes on."`)
}

func useOpenAlert(_ *testing.T, x person, _ string) {
	const shown = `document.querySelector(".dialog")?.textContent.includes("Take over to answer it.")`
	x.agent.eval(`setTimeout(() => { alert("first"); alert("second"); window.answered = true })`)
	x.until("the alert is shown", shown)
	x.call("Page.reload", nil, nil)
	x.until("a person who comes when it is open sees it", shown)
	x.take()
	x.press("OK")
	x.until("the next one is shown", `document.querySelector(".dialog")?.textContent.includes("second")`)
	x.press("OK")
	x.agent.until("both are answered", "window.answered")
	x.useButton()
}

func useBeforeUnload(t *testing.T, x person, url string) {
	x.take()
	x.useButton() // Chrome asks only for pages that were used
	for _, button := range []string{"Stay", "Leave"} {
		x.navigate(url + "/other")
		x.until("it is asked", `document.querySelector(".dialog h2")?.textContent.endsWith("asks whether to leave")`)
		x.press(button)
		x.until("it is asked no more", `!document.querySelector(".dialog")`)
		if button == "Stay" {
			x.useButton()
		}
	}
	x.agent.until("the page is left", `document.title === "Other"`)
	x.press("Back")
	x.agent.until("the person is back", "window.button")
}

func useMiddleClick(t *testing.T, x person, _ string) {
	x.take()
	x.clickOn("#from", "left", 2)
	x.agent.until("a text is selected", `document.activeElement.selectionEnd === 8`)
	x.clickOn("#to", "middle", 1)
	x.clickOn("#link", "middle", 1)
	x.until("the tab that a link opens is there", `document.querySelectorAll(".tab").length === 2`)
	if got := x.agent.eval("to.value"); got != "" {
		t.Errorf("a middle click pastes %q", got)
	}
}

func useKeys(_ *testing.T, x person, _ string) {
	// A computer with macOS, which the page takes this one for after it is loaded again.
	x.call("Emulation.setUserAgentOverride", map[string]any{"userAgent": "test", "platform": "MacIntel"}, nil)
	x.agent.eval(`window.log = []; for (const type of ["keydown", "keyup"])
		addEventListener(type, (e) => log.push([type, e.key, e.code, e.ctrlKey && "Ctrl",
			e.altKey && "Alt", e.repeat && "repeat"].filter(Boolean).join(" ")));
		addEventListener("compositionend", () => composed = true)`)
	x.take()
	x.clickOn("#field", "left", 1)
	x.agent.until("the field has the focus", `document.activeElement === field`)
	keys := func(what, value, log string) {
		x.t.Helper()
		x.agent.until(what+": the field has "+value, fmt.Sprintf("field.value === %q", value))
		x.agent.until(what+": the page sees "+log, fmt.Sprintf("log.join() === %q", log))
		x.agent.eval(`log = []; field.value = ""`)
	}

	altGr := `key: "@", code: "KeyQ", keyCode: 81, ctrlKey: true, altKey: true, modifierAltGraph: true`
	x.keyEvent("keydown", altGr)
	x.keyEvent("keyup", altGr)
	keys("AltGr and Q", "@", "keydown @ KeyQ,keyup @ KeyQ")

	x.keyEvent("keydown", `key: "Dead", code: "Equal", keyCode: 229`)
	x.keyEvent("keyup", `key: "Dead", code: "Equal", keyCode: 229`)
	x.keyEvent("keydown", `key: "é", code: "KeyE", keyCode: 69`) // as Windows has it
	x.keyEvent("keyup", `key: "e", code: "KeyE", keyCode: 69`)
	keys("a dead key", "é", "keydown é KeyE,keyup é KeyE")

	x.keyEvent("keydown", `key: "Dead", code: "Equal", keyCode: 229`)
	x.call("Input.imeSetComposition", map[string]any{"text": "´", "selectionStart": 1, "selectionEnd": 1}, nil)
	x.keyEvent("keydown", `key: "é", code: "KeyE", keyCode: 229, isComposing: true`) // as others have it
	x.call("Input.insertText", map[string]any{"text": "é"}, nil)
	x.keyEvent("keyup", `key: "e", code: "KeyE", keyCode: 69`)
	x.agent.until("the text is composed", "window.composed") // the field has it before, and is given it again
	keys("a dead key that composes", "é", "")

	for _, more := range []string{"", ", repeat: true", ", repeat: true"} {
		x.keyEvent("keydown", `key: "x", code: "KeyX", keyCode: 88`+more)
	}
	x.keyEvent("keyup", `key: "x", code: "KeyX", keyCode: 88`)
	keys("a key that is held down", "xxx", "keydown x KeyX,keydown x KeyX repeat,keydown x KeyX repeat,keyup x KeyX")

	x.call("Page.reload", nil, nil)
	x.until("the person has control again", `navigator.platform === "MacIntel" && `+hasControl)
	x.agent.eval(`field.value = "text"`)
	x.clickOn("#field", "left", 1)
	x.keyEvent("keydown", `key: "Meta", code: "MetaLeft", keyCode: 91, metaKey: true`)
	x.keyEvent("keydown", `key: "a", code: "KeyA", keyCode: 65, metaKey: true`)
	x.agent.until("Cmd+A selects all", "field.selectionStart === 0 && field.selectionEnd === 4")
	x.keyEvent("keyup", `key: "Meta", code: "MetaLeft", keyCode: 91`) // and none of A
	x.agent.until("nothing is held down", `((d, u) => d > 0 && d === u)(...["keydown", "keyup"].map((type) =>
		log.filter((l) => l.startsWith(type)).length))`)
	x.agent.eval("log = []")
	x.keyEvent("keydown", `key: "@", code: "KeyL", keyCode: 76, altKey: true`) // with Option
	x.keyEvent("keyup", `key: "@", code: "KeyL", keyCode: 76, altKey: true`)
	x.agent.until("it is typed", `field.value === "@"`)
}

func useLostConnection(t *testing.T, x person, _ string) {
	x.take()
	x.eval("window.old = true; location.reload()")
	x.until("the page that is loaded again has control", "!window.old && "+hasControl)
	x.useButton()
	x.eval(lastSocket + ".close(); sockets.length = 0")
	x.until("the page that has lost its connection has control", lastSocket+" && "+hasControl)
	x.useButton()
	x.press("Give back")
	x.until("the agent goes on", `!document.querySelector(".state.held")`)
	x.eval("location.reload()")
	x.until("nobody has control", `document.querySelector(".box input")?.disabled === false &&
		document.querySelector(".surface canvas")?.width > 100`)
	if x.eval(`!!document.querySelector(".state.held")`) == true {
		t.Error("what was given back is taken again")
	}
}
