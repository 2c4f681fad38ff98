//go:build linux

package main_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/virtual/chrometest"
)

// kindsOfInput are what a person does with a page, each as a person does it.
var kindsOfInput = []struct {
	name string
	use  func(x person)
}{
	{"clicks", useClicks},
	{"move and wheel", useWheel},
	{"typing", useTyping},
	{"shortcuts", useShortcuts},
	{"emoji and paste", usePaste},
	{"IME", useIME},
	{"touch", useTouch},
	{"drag", useDrag},
	{"select", useSelect},
	{"files", useFiles},
	{"dialog", useDialog},
	{"cursor", useCursor},
	{"clipboard", useClipboard},
	{"popups", usePopups},
	{"PDF", usePDF},
	{"crash", func(x person) { x.crash() }},
}

const viewedPage = `<!doctype html><title>Shop</title><style>body { margin: 20px; font: 16px sans-serif }
	p { margin: 8px 0 } input, select { width: 200px } .box { position: absolute; left: 400px; width: 120px;
	height: 60px; background: #ddd }</style>
	<p><input id="name"></p><p><input id="secret" type="password" value="hidden"></p>
	<p><select id="country"><option>Austria<option disabled>Belgium<option>Croatia
		<optgroup label="More"><option>Denmark</optgroup></select></p>
	<p><a id="link" href="/other" target="_blank">terms</a></p><p><button id="buy">buy</button></p>
	<p><input id="files" type="file" multiple accept=".txt"></p><p><a id="manual" href="/manual.pdf">manual</a></p>
	<div id="item" class="box" style="top: 20px" draggable="true">item</div>
	<div id="cart" class="box" style="top: 200px">cart</div>
	<p id="far" style="margin-top: 3000px">far</p>
	<script>window.log = [];
	for (const type of ["click", "dblclick", "contextmenu", "auxclick", "change", "paste", "compositionstart",
		"compositionend", "wheel", "mousemove", "touchstart", "touchend", "touchcancel", "dragstart", "dragenter",
		"dragend", "cancel"])
		addEventListener(type, (e) => log.push(type + " " + (e.target.id ?? "") + (e.isTrusted ||
			type === "compositionend" ? "" : " untrusted")), true);
	item.ondragstart = (e) => e.dataTransfer.setData("text/plain", "an item");
	cart.ondragover = (e) => e.preventDefault();
	cart.ondrop = async (e) => {
		e.preventDefault();
		const [f] = e.dataTransfer.files;
		log.push("drop " + (f ? f.name + " " + await f.text() : e.dataTransfer.getData("text/plain") +
			(e.isTrusted ? "" : " untrusted")));
	};
	</script>`

// redPDF is a document of one page, which is red.
const redPDF = `%PDF-1.1
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 300]/Contents 4 0 R>>endobj
4 0 obj<</Length 29>>stream
1 0 0 rg 0 0 400 300 re f
endstream endobj
trailer<</Root 1 0 R>>
%%EOF
`

// viewedSite serves viewedPage.
func viewedSite(t *testing.T) (url string) {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch w.Header().Set("Content-Type", "text/html"); r.URL.Path {
		case "/other":
			fmt.Fprint(w, "<title>Other</title>")
		case "/manual.pdf":
			w.Header().Set("Content-Type", "application/pdf")
			w.Write([]byte(redPDF))
		default:
			fmt.Fprint(w, viewedPage)
		}
	}))
	t.Cleanup(site.Close)
	return site.URL
}

// in returns a person of whom another test hears.
func (p person) in(t *testing.T) person {
	page, agent := *p.tab, *p.agent
	page.t, agent.t = t, t
	return person{&page, &agent}
}

// causes waits until the page has seen an event of the browser, or one of ours: "untrusted".
func (p person) causes(event string) {
	p.t.Helper()
	p.agent.until("the page sees "+event, fmt.Sprintf("log.includes(%q)", event))
}

// enters waits until the field that has the focus has a value.
func (p person) enters(value string) {
	p.t.Helper()
	p.agent.until("the field has "+value, fmt.Sprintf("document.activeElement.value === %q", value))
}

// emptyName makes the field for a name empty, and gives it the focus.
func (p person) emptyName() {
	p.t.Helper()
	p.agent.eval(`document.querySelector("#name").value = ""`)
	p.clickOn("#name", "left", 1)
	p.agent.until("the field has the focus", `document.activeElement.id === "name"`)
}

// dragTo moves an element of the page to another one.
func (p person) dragTo(from, to string) {
	p.t.Helper()
	x, y := p.place(from)
	tx, ty := p.place(to)
	p.hold(x, y, tx, ty)
	p.mouse("mouseReleased", tx, ty, map[string]any{"button": "left", "clickCount": 1})
}

// hold moves the mouse from a place on the screen to another one, with its button held down.
func (p person) hold(x, y, tx, ty float64) {
	p.t.Helper()
	p.mouse("mouseMoved", x, y, nil)
	p.mouse("mousePressed", x, y, map[string]any{"button": "left", "clickCount": 1})
	const steps = 5
	for n := 1.0; n <= steps; n++ {
		p.mouse("mouseMoved", x+(tx-x)*n/steps, y+(ty-y)*n/steps, map[string]any{"button": "left", "buttons": 1})
	}
}

// chooser is the field by which the person chooses files.
const chooser = `document.querySelector(".dialog input[type=file]")`

// chooses chooses files of the person's machine, which the page asks for.
func (p person) chooses(paths ...string) {
	p.t.Helper()
	p.until("the page asks for files", chooser)
	var found struct {
		Result struct{ ObjectID string }
	}
	p.call("Runtime.evaluate", map[string]any{"expression": chooser}, &found)
	p.call("DOM.setFileInputFiles", map[string]any{"files": paths, "objectId": found.Result.ObjectID}, nil)
}

// crash has the page of the agent crash, and loads it again.
func (p person) crash() {
	p.t.Helper()
	p.eval(lastSocket + `.send(JSON.stringify({id: 1e9, method: "Page.crash", sessionId: ` + lastSocket + `.at}))`)
	p.until("it is told", `document.querySelector(".dialog h2")?.textContent === "This page crashed"`)
	p.press("Reload")
	p.until("it is there no more", `!document.querySelector(".dialog")`)
	p.agent.until("the page is back", `document.readyState === "complete"`)
}

func useClicks(x person) {
	x.clickOn("#buy", "left", 1)
	x.causes("click buy")
	x.clickOn("#buy", "left", 2)
	x.causes("dblclick buy")
	x.clickOn("#buy", "right", 1)
	x.causes("contextmenu buy")
	x.clickOn("#link", "middle", 1)
	x.causes("auxclick link")
	x.until("the tab that a link opens is there", `document.querySelectorAll(".tab").length === 2`)
	x.eval(`document.querySelector(".tab:last-of-type .close").click()`)
	x.until("the tab is closed", `document.querySelectorAll(".tab").length === 1`)
}

func useWheel(x person) {
	sx, sy := x.place("#name")
	x.mouse("mouseMoved", sx, sy, nil)
	x.causes("mousemove name")
	x.mouse("mouseWheel", sx, sy, map[string]any{"deltaX": 0, "deltaY": 300})
	x.agent.until("the page is scrolled", "scrollY === 300")
	x.mouse("mouseWheel", sx, sy, map[string]any{"deltaX": 0, "deltaY": -300})
	x.agent.until("the page is scrolled back", "scrollY === 0")
}

func useTyping(x person) {
	x.emptyName()
	for _, c := range "an@" {
		x.key(string(c), "KeyA", 0, 0)
	}
	x.enters("an@")
}

func useShortcuts(x person) {
	x.key("a", "KeyA", 65, 2)
	x.key("Backspace", "Backspace", 8, 0)
	x.enters("")
}

func usePaste(x person) {
	x.emptyName()
	x.call("Input.insertText", map[string]any{"text": "🙂"}, nil) // as a keyboard on the screen does
	x.enters("🙂")
	x.eval(`(() => { const data = new DataTransfer(); data.setData("text/plain", " pasted");
		document.activeElement.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data,
			cancelable: true})) })()`)
	x.enters("🙂 pasted")
}

func useIME(x person) {
	x.emptyName()
	x.call("Input.imeSetComposition", map[string]any{"text": "に", "selectionStart": 1, "selectionEnd": 1}, nil)
	x.causes("compositionstart name")
	x.call("Input.insertText", map[string]any{"text": "日本"}, nil)
	x.enters("日本")
}

func useTouch(x person) {
	x.agent.eval("log = []")
	bx, by := x.place("#buy")
	x.fingers("touchStart", [2]float64{bx, by})
	x.fingers("touchEnd")
	for _, event := range []string{"touchstart buy", "touchend buy", "click buy"} {
		x.causes(event)
	}
	x.fingers("touchStart", [2]float64{bx, by})
	for y := by; y > by-100; y -= 10 {
		x.fingers("touchMove", [2]float64{bx, y})
	}
	x.agent.until("a finger scrolls", "scrollY > 20")
	for y := by - 100; y < by+100; y += 10 {
		x.fingers("touchMove", [2]float64{bx, y})
	}
	x.fingers("touchEnd")
	x.agent.until("it scrolls back", "scrollY === 0")
}

func useDrag(x person) {
	x.dragTo("#item", "#cart")
	for _, event := range []string{"dragstart item", "drop an item", "dragend item"} {
		x.causes(event)
	}
	x.clickOn("#buy", "left", 1) // else the next press is a double one
	x.agent.eval("log = []")
	ix, iy := x.place("#item")
	cx, cy := x.place("#cart")
	x.hold(ix, iy, cx, cy)
	x.causes("dragenter cart")
	x.key("Escape", "Escape", 27, 0)
	x.causes("dragend item")
	if got := x.agent.eval(`log.join()`); strings.Contains(got.(string), "drop") {
		x.t.Errorf("what the person has cancelled is dropped: %v", got)
	}
	x.mouse("mouseReleased", cx, cy, map[string]any{"button": "left", "clickCount": 1})
	x.clickOn("#buy", "left", 1)
	x.causes("click buy")
}

func useSelect(x person) {
	x.clickOn("#country", "left", 1)
	x.until("the options are shown", `document.querySelectorAll("[role=option]").length === 4 &&
		document.activeElement.role === "option"`)
	x.key("ArrowDown", "ArrowDown", 40, 0)
	x.key("Enter", "Enter", 13, 0)
	x.agent.until("an option is chosen", `document.querySelector("#country").value === "Croatia"`)
	x.causes("change country")
	x.clickOn("#country", "left", 1)
	x.until("the options are shown again", `document.querySelector("[role=option]:focus")`)
	x.clickOn("#name", "left", 1)
	x.until("a click elsewhere closes them", `!document.querySelector("[role=option]")`)
}

func useFiles(x person) {
	dir := x.t.TempDir()
	files := []string{dir + "/one.txt", dir + "/two.txt"}
	for i, name := range files {
		if err := os.WriteFile(name, []byte(strings.Repeat(filepath.Base(name)+"é", 1+i<<19)), 0o600); err != nil {
			x.t.Fatal(err)
		}
	}
	large := dir + "/large.txt"
	os.WriteFile(large, nil, 0o600)
	os.Truncate(large, 50<<20+1)
	x.call("Page.setInterceptFileChooserDialog", map[string]any{"enabled": true}, nil) // of the person's browser

	x.clickOn("#files", "left", 1)
	x.chooses(large)
	x.until("it is too large", `document.querySelector(".dialog .error")?.textContent.includes("50 MB")`)
	if got := x.eval(chooser + `.accept + " " + ` + chooser + ".multiple"); got != ".txt true" {
		x.t.Errorf("what the page wants is taken for %v", got)
	}
	checkAccessible(x.t, x.tab)
	x.chooses(files...)
	x.causes("change files untrusted") // as those of Playwright
	got := x.agent.eval(`Promise.all([...document.querySelector("#files").files].map(async (f) =>
		[f.name, f.type, f.size, (await f.text()).replaceAll(f.name + "é", "")].join())).then((all) => all.join())`)
	if want := "one.txt,text/plain,9,,two.txt,text/plain,4718601,"; got != want {
		x.t.Errorf("the page gets %v, not %s", got, want)
	}
	x.until("it is asked no more", "!"+chooser)

	x.clickOn("#files", "left", 1)
	x.until("the page asks again", chooser)
	x.press("Cancel")
	x.causes("cancel files")
	x.until("it is asked no more", "!"+chooser)

	for _, place := range []string{"#cart", "#files"} { // from the desktop of the person
		cx, cy := x.place(place)
		x.eval(fmt.Sprintf(`(() => { const dataTransfer = new DataTransfer();
			dataTransfer.items.add(new File(["dropped"], "file.txt"));
			document.elementFromPoint(%[1]v, %[2]v).dispatchEvent(new DragEvent("drop", {dataTransfer, clientX: %[1]v,
				clientY: %[2]v, bubbles: true, cancelable: true})) })()`, cx, cy))
	}
	x.causes("drop file.txt dropped")
	x.agent.until("the field has a file", `(([f]) => f?.name === "file.txt")(document.querySelector("#files").files)`)
}

func useDialog(x person) {
	x.agent.eval("setTimeout(() => { window.answer = prompt('Your\\u202e\\u061c\\nname?', 'nobody') }, 50)")
	x.until("the dialog is shown",
		`document.querySelector(".dialog")?.textContent.includes("Your\\u202e\\u061c\nname?")`)
	x.eval(`document.querySelector(".dialog input").value = "Anna"`)
	x.press("OK")
	x.agent.until("the dialog is answered", `window.answer === "Anna"`)
}

func useCursor(x person) {
	x.sees("#link", "pointer")
	x.sees("#name", "text")
}

// sees moves the mouse over an element until the person sees a cursor, which is asked for ten times a second at most.
func (p person) sees(element, cursor string) {
	p.t.Helper()
	cmdtest.Until(p.t, "the cursor is "+cursor, func() bool {
		x, y := p.place(element)
		p.mouse("mouseMoved", x, y, nil)
		return p.eval(`document.querySelector(".hand").style.cursor`) == cursor
	})
}

func useClipboard(x person) {
	x.emptyName()
	x.call("Input.insertText", map[string]any{"text": "to copy"}, nil)
	x.enters("to copy")
	x.call("Browser.grantPermissions", map[string]any{"permissions": []string{"clipboardReadWrite",
		"clipboardSanitizedWrite"}}, nil)
	x.key("a", "KeyA", 65, 2)
	x.key("c", "KeyC", 67, 2)
	x.until("the selection is copied", `document.querySelector(".live").textContent === "Copied."`)
	if got := x.eval("navigator.clipboard.readText()"); got != "to copy" {
		x.t.Errorf("copied is %v", got)
	}
	x.clickOn("#secret", "left", 3)
	x.key("c", "KeyC", 67, 2)
	if got := x.eval("navigator.clipboard.readText()"); got == "hidden" {
		x.t.Error("a password is copied")
	}
}

func usePopups(x person) {
	x.clickOn("#link", "left", 1)
	x.until("the view follows to a new tab", `document.querySelectorAll(".tab").length === 2 &&
		document.querySelector(".tab:last-of-type button[aria-pressed=true]")?.textContent.trim() === "Other"`)
	x.press("Close Other")
	x.until("a tab is closed", `document.querySelectorAll(".tab").length === 1`)
	useCursor(x) // the view is back
}

// usePDF sees a document, or saves it where the browser cannot show it.
func usePDF(x person) {
	dir := x.t.TempDir()
	x.call("Browser.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": dir}, nil)
	x.clickOn("#manual", "left", 1)
	const offered = `[...document.querySelectorAll("button")].find((b) => b.textContent === "Save")`
	x.until("the document is shown or offered", offered+` || (() => {
		const c = document.querySelector(".surface canvas"), {data} = c.getContext("2d").getImageData(0, 0, c.width,
			c.height);
		return data.some((red, i) => i % 4 === 0 && red > 200 && data[i + 1] < 60 && data[i + 2] < 60) })()`)
	if x.eval("!!"+offered) != true {
		x.press("Back")
		x.agent.until("the person is back", `document.title === "Shop" && document.readyState === "complete"`)
		return
	}
	x.press("Save")
	cmdtest.Until(x.t, "the person has the document", func() bool {
		got, _ := os.ReadFile(dir + "/manual.pdf")
		return string(got) == redPDF
	})
	x.until("it is offered no more", "!"+offered)
}

// A client that answers choosers, and intercepts drags, gets none of a person's, who is not disturbed by it, even if it
// drags something at the take-over; afterwards it goes on as before.
func TestViewIntercepts(t *testing.T) {
	t.Parallel()
	site := viewedSite(t)
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	viewer, _ := chrometest.StartShellOnPort(t)
	p := w.Proxy("share", "--browser", "chromium")
	for _, which := range []string{"playwright", "puppeteer"} {
		t.Run(which, func(t *testing.T) {
			agent := openSession(t, p, which, site)
			agent.until("the page is there", "window.log && document.readyState === 'complete'")
			c := w.Cmd("node", filepath.Join(cmdtest.Clients(t), "intercepts.mjs"), which, p.URL+"/session/"+which)
			c.Env = slices.Concat(c.Env, []string{"HOME=" + w.Dir})
			var errs cmdtest.SyncBuffer
			c.Stderr = &errs
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(cmdtest.StartRead(t, c))
			says := func(want string) {
				t.Helper()
				if !lines.Scan() || lines.Text() != want {
					c.Wait()
					t.Fatalf("it says %q, not %q\n%s", lines.Text(), want, errs.String())
				}
			}
			says("ready")
			x := openPerson(t, w, viewer, which, agent)
			x.take()
			agent.eval("log = []")
			x.clickOn("#buy", "left", 1)
			x.causes("click buy")
			x.dragTo("#item", "#cart")
			x.causes("drop an item")
			bx, by := x.place("#buy")
			x.fingers("touchStart", [2]float64{bx, by})
			x.fingers("touchEnd")
			x.causes("touchend buy")
			x.call("Page.setInterceptFileChooserDialog", map[string]any{"enabled": true}, nil)
			x.clickOn("#files", "left", 1)
			mine := t.TempDir() + "/mine.txt"
			if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			x.chooses(mine)
			x.causes("change files untrusted")
			x.press("Give back")
			x.until("the agent goes on", `document.querySelector(".live").textContent === "The agent goes on."`)
			if got := agent.eval(`[...document.querySelector("#files").files].map((f) => f.name).join() + " " +
				log.filter((l) => l.startsWith("drop") || l.startsWith("change")).join()`); got !=
				"mine.txt drop an item,change files untrusted" {
				t.Errorf("what the person has done is %v", got)
			}
			fmt.Fprintln(in)
			says("done")
			x.call("Page.close", nil, nil)
		})
	}
	p.Stop()
}
