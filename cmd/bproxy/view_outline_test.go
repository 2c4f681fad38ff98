//go:build linux

package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/virtual/chrometest"
)

// outlined is a page of which a person uses each kind of item by the outline. PORT is that of its server.
const outlined = `<!doctype html><title>Shop</title>
	<h1>All <b>our</b> goods</h1><div><div><p>Some <a href="/other">terms</a> apply</p></div></div>
	<ul><li><button id="first">first</button><li><button>second</button></ul>
	<label>Name <input id="name" value="Ben"></label><input id="secret" type="password" value="hidden" aria-label="PIN">
	<textarea id="lines" aria-label="Lines"></textarea><div id="rich" contenteditable aria-label="Rich">old</div>
	<select id="country" aria-label="Country"><option>Austria<option disabled>Belgium<option>Croatia</select>
	<label><input id="agree" type="checkbox"> agree</label>
	<button id="loud" onclick="answer = confirm('Sure?')">loud</button>
	<iframe src="/same" title="same"></iframe><iframe src="http://localhost:PORT/framed" title="framed"></iframe>
	<div style="height: 3000px"></div><button id="far">far</button>
	<div style="position: relative"><button id="covered">covered</button>
		<div style="position: absolute; inset: 0; background: #eee"></div></div>
	<script>window.log = [];
		onmessage = (e) => log.push(e.data);
		for (const type of ["click", "change", "keydown"]) addEventListener(type, (e) => log.push(type + " " +
			(e.target.id || e.target.textContent) + (e.key ?? "") + (e.isTrusted ? "" : " untrusted")), true)
	</script>`

// outlinedFrames are the pages in its frames, and the next one.
var outlinedFrames = map[string]string{
	"/same": `<button onclick="document.title = 'pressed'; top.log?.push('click in same')">in same</button>
		<input aria-label="Search">`,
	"/framed": `<body style="height: 2000px"><p style="margin-top: 900px"><button onclick="top.postMessage('click in ' +
		event.isTrusted, '*')">in framed</button><input aria-label="Word" oninput="top.postMessage(value, '*')">`,
	"/other": `<title>Terms</title><h1>The terms</h1>`,
}

// row is the item of the outline that begins with a text.
func row(text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("[role=treeitem]")].find((r) =>
		r.textContent.trim().startsWith(%q))`, text)
}

// tabTo presses Tab until an element that matches a selector has the focus.
func (p person) tabTo(selector string) {
	p.t.Helper()
	for range 40 {
		if p.eval(fmt.Sprintf("document.activeElement.matches(%q)", selector)) == true {
			return
		}
		p.key("Tab", "Tab", 9, 0)
	}
	p.t.Fatalf("Tab does not lead to %s, but to %v", selector, p.eval("document.activeElement.outerHTML.slice(0, 300)"))
}

// goTo moves by arrows to the item of the outline that begins with a text, from the first one.
func (p person) goTo(text string) {
	p.t.Helper()
	p.until("the outline has "+text, row(text))
	p.tabTo("[role=treeitem]")
	p.key("Home", "Home", 36, 0)
	for range 60 {
		if p.eval(row(text)+"=== document.activeElement") == true {
			return
		}
		p.key("ArrowDown", "ArrowDown", 40, 0)
	}
	p.t.Fatalf("arrows do not lead to %s", text)
}

// enter presses Enter at the item of the outline that begins with a text.
func (p person) enter(text string) {
	p.t.Helper()
	p.goTo(text)
	p.key("Enter", "Enter", 13, 0)
}

// write has a field of the page have a text, by the keyboard.
func (p person) write(item, text string) {
	p.t.Helper()
	p.enter(item)
	p.until("the text is asked for", `document.activeElement.closest(".outline form")`)
	p.key("a", "KeyA", 65, 2)
	p.call("Input.insertText", map[string]any{"text": text}, nil)
}

// A person uses a page without its picture and without a mouse: by the outline and the keyboard.
func TestViewOutline(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		page, ok := outlinedFrames[r.URL.Path]
		if !ok {
			page = outlined
		}
		_, port, _ := strings.Cut(r.Host, ":")
		fmt.Fprint(w, strings.ReplaceAll(page, "PORT", port))
	}))
	t.Cleanup(site.Close)
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	viewer, _ := chrometest.StartShellOnPort(t)
	p := w.Proxy("share", "--browser", "chromium")
	agent := openSession(t, p, "shop", site.URL)
	agent.until("the page is there", "window.log && document.readyState === 'complete'")
	x := openPerson(t, w, viewer, "shop", agent)

	x.eval(`document.querySelector(".bar button").focus()`)
	x.until("the outline is offered", `document.activeElement.textContent === "Outline"`)
	x.key("Enter", "Enter", 13, 0)
	x.until("the outline is there", row("All our goods")+"?.ariaLevel === '1'")
	x.until("it has the frames that may be read", row("in same")+"?.ariaLevel === '2' &&"+row("framed")+
		`.textContent.includes("take over to read it")`)
	if got := x.eval(`document.body.innerHTML.includes("hidden")`); got != false {
		t.Error("the outline has a password")
	}
	checkAccessible(t, x.tab)
	x.enter("first")
	x.until("who only looks does nothing", `document.querySelector(".live").textContent === "Take over to use it."`)

	x.eval(`document.querySelector(".box input").click()`)
	x.tabTo(".back")
	x.tabTo("button.main")
	x.key("Enter", "Enter", 13, 0)
	x.until("the person has control", hasControl)
	checkAccessible(t, x.tab)
	useOutline(t, x)
	answerByKeys(t, w, x, site.URL)
	x.screen(360, 640)
	x.until("it is narrow", "innerWidth === 360")
	checkPhone(t, x.tab, "the outline")
	x.enter("Search")
	x.until("the text is asked for", `document.activeElement.closest(".outline form")`)
	checkPhone(t, x.tab, "a text for the outline")
	if got := x.eval("JSON.stringify(violations)"); got != "[]" {
		t.Errorf("the page breaks its own policy: %v", got)
	}
}

// answerByKeys goes to another page, and back by an answer to what is asked, without a mouse.
func answerByKeys(t *testing.T, w *cmdtest.World, x person, url string) {
	a := ask(w, "shop", "--until", "text=never", "Read the terms")
	x.until("the ask is told", `document.querySelector(".live").textContent === "You are asked: Read the terms"`)
	checkAccessible(t, x.tab)
	x.tabTo("[name=address]")
	x.key("a", "KeyA", 65, 2)
	x.call("Input.insertText", map[string]any{"text": url + "/same"}, nil)
	x.key("Enter", "Enter", 13, 0)
	x.until("the page is there", row("in same")+"?.ariaLevel === '1'")
	x.tabTo(".ask input")
	x.call("Input.insertText", map[string]any{"text": "read"}, nil)
	x.tabTo(".ask button.main")
	x.key("Enter", "Enter", 13, 0)
	a.exits(0, `"note":"read"`)
	x.until("the agent goes on", `document.querySelector(".live").textContent === "The agent goes on."`)
	x.tabTo("[aria-label='All sessions']")
	x.key("Enter", "Enter", 13, 0)
	x.until("the grid is there", `document.querySelector(".tile canvas")?.width > 100`)
	checkAccessible(t, x.tab)
	x.tabTo(".tile")
	x.key("Enter", "Enter", 13, 0)
	x.until("the session is there", `document.querySelector(".surface canvas")?.width > 100`)
	x.take()
	x.press("Outline")
	x.eval(`document.querySelector(".back").focus()`)
	x.enter("in same")
	x.agent.until("its button is pressed", "document.title === 'pressed'")
	x.eval(`document.querySelector(".back").focus()`)
}

// useOutline uses each kind of item.
func useOutline(t *testing.T, x person) {
	page := x.agent // whose scripts go on
	saw := func(what string) {
		t.Helper()
		page.until("the page sees "+what, fmt.Sprintf("log.includes(%q)", what))
	}
	has := func(expression string) {
		t.Helper()
		page.until("the page has "+expression, expression)
	}
	x.enter("first")
	saw("click first")
	x.enter("far") // below what is shown
	saw("click far")
	x.enter("covered") // by the keyboard, for the mouse does not get there
	saw("click covered")
	x.enter("in same")
	saw("click in same")
	x.enter("in framed")
	saw("click in true")
	x.enter("agree")
	has("agree.checked")
	x.until("the outline says so", row("agree")+`.textContent.includes(", checked")`)

	x.write("Name Ben", "Anna")
	x.key("Enter", "Enter", 13, 0)
	has(`document.querySelector("#name").value === "Anna"`)
	x.until("the outline says so", row("Name Anna"))
	x.write("PIN", "1234")
	if got := x.eval("document.activeElement.type"); got != "password" {
		t.Errorf("a password is asked for as %v", got)
	}
	x.tabTo("[value=enter]")
	x.key("Enter", "Enter", 13, 0)
	has(`secret.value === "1234" && log.includes("keydown secretEnter")`)
	x.write("Lines", "one\ntwo")
	x.tabTo("button.main")
	x.key("Enter", "Enter", 13, 0)
	has(`lines.value === "one\ntwo"`)
	x.write("Rich", "new")
	x.key("Enter", "Enter", 13, 0)
	has(`rich.textContent === "new"`)
	x.write("Word", "inside")
	x.key("Enter", "Enter", 13, 0)
	saw("inside")
	x.enter("Name Anna")
	x.until("the text is asked for", `document.activeElement.closest(".outline form")`)
	x.key("Escape", "Escape", 27, 0)
	x.until("it is not written", `!document.querySelector(".outline form") &&
		document.activeElement.role === "treeitem"`)

	x.enter("Country")
	x.until("the options are shown", `document.activeElement.role === "option"`)
	x.key("ArrowDown", "ArrowDown", 40, 0)
	x.key("Enter", "Enter", 13, 0)
	has(`country.value === "Croatia"`)
	x.until("the outline goes on there", `document.activeElement.textContent.startsWith("Country Croatia")`)

	x.enter("loud")
	x.until("the dialog is asked", `document.activeElement.closest(".dialog")`)
	x.key("Enter", "Enter", 13, 0)
	has("window.answer !== undefined")
	x.until("the outline goes on there", `document.activeElement.textContent.startsWith("loud")`)

	count := func() float64 { return x.eval(`document.querySelectorAll("[role=treeitem]").length`).(float64) }
	x.goTo("list")
	all := count()
	x.key("ArrowLeft", "ArrowLeft", 37, 0)
	x.until("the list is closed", `document.activeElement.ariaExpanded === "false"`)
	if got := count(); got != all-2 {
		t.Errorf("of %v items %v are left", all, got)
	}
	x.key("ArrowRight", "ArrowRight", 39, 0)
	x.until("the list is open", `document.activeElement.ariaExpanded === "true"`)
	x.key("ArrowRight", "ArrowRight", 39, 0)
	x.until("the first in it has the focus", `document.activeElement.ariaLevel === "2"`)
	x.key("ArrowLeft", "ArrowLeft", 37, 0)
	x.until("the list has it again", `document.activeElement.textContent.trim() === "list"`)
	x.key("s", "KeyS", 83, 0)
	x.until("a letter leads on", `document.activeElement.textContent.startsWith("second")`)

	x.eval(`window.reads = []; (() => { const send = WebSocket.prototype.send; WebSocket.prototype.send = function (m) {
		if (m.includes("getFullAXTree") && JSON.parse(m).sessionId === reads.session) reads.push(performance.now());
		return send.call(this, m);
	}; reads.session = [...sockets].at(-1).at })()`)
	for range 20 {
		x.press("Read again")
	}
	x.enter("terms")
	x.until("the next page is told", row("The terms"))
	x.until("something has the focus", `document.activeElement.role === "treeitem"`)
	if got := x.eval(`[...reads].some((t, i) => t - reads[i - 1] > 50 && t - reads[i - 1] < 950)`); got != false {
		t.Errorf("it is read more than once a second: %v", x.eval("reads.join()"))
	}
}
