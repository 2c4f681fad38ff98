//go:build linux

package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"btools/lib/cdp"
	"btools/lib/cmdtest"
	"btools/lib/virtual/chrometest"
)

// tab is a tab of a browser that a test drives.
type tab struct {
	t       *testing.T
	conn    *cdp.Conn
	session string
}

// dial connects to a browser, or to a session.
func dial(t *testing.T, url string) *tab {
	t.Helper()
	conn, err := cdp.Dial(t.Context(), url, func(cdp.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return &tab{t: t, conn: conn}
}

// openTab opens an address in a new tab of a browser, whose window is width wide.
func openTab(t *testing.T, browser, url string, width int) *tab {
	t.Helper()
	p := dial(t, browser)
	var made struct{ TargetID string }
	p.call("Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	p.attach(made.TargetID)
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1,
		"mobile": false}, nil)
	p.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `window.violations = [];
		document.addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective + " " +
			e.blockedURI));
		window.sockets = []; // with the CDP session of the last command
		const send = WebSocket.prototype.send;
		WebSocket.prototype.send = function (m) {
			if (!sockets.includes(this)) sockets.push(this);
			this.at = JSON.parse(m).sessionId ?? this.at;
			return send.call(this, m);
		}`}, nil)
	p.call("Page.navigate", map[string]any{"url": url}, nil)
	return p
}

// openSession opens an address in the first tab of a new session, as an agent.
func openSession(t *testing.T, proxy *cmdtest.Proxy, session, url string) *tab {
	t.Helper()
	p := dial(t, "ws"+strings.TrimPrefix(proxy.URL, "http")+"/session/"+session+"/devtools/browser/x")
	var all struct{ TargetInfos []struct{ TargetID string } }
	p.call("Target.getTargets", nil, &all)
	p.attach(all.TargetInfos[0].TargetID)
	p.call("Page.navigate", map[string]any{"url": url}, nil)
	return p
}

func (p *tab) attach(target string) {
	p.t.Helper()
	var at struct{ SessionID string }
	p.call("Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}, &at)
	p.session = at.SessionID
	p.call("Page.enable", nil, nil)
}

func (p *tab) call(method string, params, result any) {
	p.t.Helper()
	if err := p.try(method, params, result); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
}

func (p *tab) try(method string, params, result any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), cmdtest.Patience)
	defer cancel()
	return p.conn.Call(ctx, p.session, method, params, result)
}

// eval returns the value of an expression.
func (p *tab) eval(expression string) any {
	p.t.Helper()
	value, err := p.tryEval(expression)
	if err != nil {
		p.t.Fatalf("%.200s: %v", expression, err)
	}
	return value
}

func (p *tab) tryEval(expression string) (any, error) {
	var got struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	err := p.try("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true,
		"returnByValue": true, "userGesture": true}, &got)
	if err == nil && got.ExceptionDetails != nil {
		err = errors.New(string(got.ExceptionDetails))
	}
	return got.Result.Value, err
}

// until waits until an expression is true. The page may go elsewhere meanwhile.
func (p *tab) until(what, expression string) {
	p.t.Helper()
	cmdtest.Until(p.t, what, func() bool {
		value, err := p.tryEval("!!(" + expression + ")")
		if err != nil && !strings.Contains(err.Error(), "Inspected target navigated or closed") {
			p.t.Fatalf("%s: %v", what, err)
		}
		return value == true
	})
}

// mouse has an event of the mouse happen.
func (p *tab) mouse(kind string, x, y float64, more map[string]any) {
	p.t.Helper()
	params := map[string]any{"type": kind, "x": x, "y": y}
	for name, v := range more {
		params[name] = v
	}
	p.call("Input.dispatchMouseEvent", params, nil)
}

// click presses and releases a button at a place.
func (p *tab) click(x, y float64, button string, count int) {
	p.t.Helper()
	p.mouse("mouseMoved", x, y, nil)
	for n := 1; n <= count; n++ {
		p.mouse("mousePressed", x, y, map[string]any{"button": button, "clickCount": n})
		p.mouse("mouseReleased", x, y, map[string]any{"button": button, "clickCount": n})
	}
}

// key presses and releases a key.
func (p *tab) key(key, code string, virtual, modifiers int) {
	p.t.Helper()
	down := map[string]any{"type": "rawKeyDown", "key": key, "code": code, "windowsVirtualKeyCode": virtual,
		"modifiers": modifiers}
	switch {
	case key == "Enter":
		down["type"], down["text"] = "keyDown", "\r"
	case len(key) == 1 && modifiers == 0:
		down["type"], down["text"] = "keyDown", key
	}
	p.call("Input.dispatchKeyEvent", down, nil)
	p.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": code,
		"windowsVirtualKeyCode": virtual, "modifiers": modifiers}, nil)
}

// press clicks the button with a name.
func (p *tab) press(name string) {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll("button, a")].find((b) =>
		(b.ariaLabel ?? b.textContent).trim() === %q)`, name)
	p.until("there is the button "+name, find+"?.disabled === false || "+find+"?.href")
	p.eval(find + ".click()")
}

// person is somebody who looks at a session on the page of bproxy view.
type person struct {
	*tab
	agent *tab // of the session
}

// openPerson opens a session on the page of bproxy view in a browser.
func openPerson(t *testing.T, w *cmdtest.World, browser, session string, agent *tab) person {
	t.Helper()
	address := strings.TrimSpace(w.Run("bproxy", "view", "--no-open", "--control", session).Out)
	x := person{openTab(t, browser, address, 1280), agent}
	x.until("there is a picture", `document.querySelector(".surface canvas")?.width > 100`)
	return x
}

// hasControl is whether a person has control, and sees the page.
const hasControl = `document.querySelector(".state")?.textContent.startsWith("you") &&
	document.querySelector(".surface canvas")?.width > 100`

// take takes control. The agent's scripts go on, by which the test looks.
func (p person) take() {
	p.t.Helper()
	p.eval(`document.querySelector(".box input").click()`)
	p.press("Take over")
	p.until("the person has control", hasControl)
}

// at returns where a point of the agent's page is on the person's screen.
func (p person) at(x, y float64) (float64, float64) {
	p.t.Helper()
	var box struct{ X, Y, W, H float64 }
	raw, _ := json.Marshal(p.eval(`(() => { const b = document.querySelector(".surface canvas").getBoundingClientRect();
		return {X: b.x, Y: b.y, W: b.width, H: b.height} })()`))
	json.Unmarshal(raw, &box)
	var size []float64
	raw, _ = json.Marshal(p.agent.eval("[innerWidth, innerHeight]"))
	json.Unmarshal(raw, &size)
	return box.X + x*box.W/size[0], box.Y + y*box.H/size[1]
}

// place returns where an element of the agent's page is on the person's screen.
func (p person) place(selector string) (x, y float64) {
	p.t.Helper()
	var c []float64
	raw, _ := json.Marshal(p.agent.eval(fmt.Sprintf(`(() => {
		const b = document.querySelector(%q).getBoundingClientRect();
		return [b.x + b.width / 2, b.y + b.height / 2] })()`, selector)))
	json.Unmarshal(raw, &c)
	return p.at(c[0], c[1])
}

// clickOn clicks on an element of the agent's page.
func (p person) clickOn(selector, button string, count int) {
	p.t.Helper()
	x, y := p.place(selector)
	p.click(x, y, button, count)
}

// A person uses the page of a session with the mouse and the keyboard as they would use the browser itself.
func TestViewPage(t *testing.T) {
	t.Parallel()
	site := viewedSite(t)
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	viewer, _ := chrometest.StartShellOnPort(t)
	t.Run("grid", func(t *testing.T) { useGrid(t, w, viewer) })
	var violations sync.Map
	for _, browser := range []string{"chrome-headless-shell", "chromium"} {
		p := w.Proxy("share", "--browser", browser)
		t.Run(browser, func(t *testing.T) {
			session := "in-" + browser
			agent := openSession(t, p, session, site)
			agent.until("the page is there", "window.log && document.readyState === 'complete'")
			x := openPerson(t, w, viewer, session, agent)
			if got := x.eval("location.hash"); got != "#/"+session {
				t.Errorf("the address keeps %v", got)
			}
			checkAccessible(t, x.tab)
			x.take()
			for _, kind := range kindsOfInput {
				if browser == "chromium" && kind.name != "PDF" && !cmdtest.IsLong {
					continue // they are alike, but for this one
				}
				t.Run(kind.name, func(t *testing.T) { kind.use(x.in(t)) })
			}
			x.press("Give back")
			x.until("the agent goes on", `document.querySelector(".live").textContent === "The agent goes on."`)
			if got := agent.eval("1 + 1"); got != 2.0 {
				t.Errorf("afterwards the agent gets %v", got)
			}
			for range 30 {
				agent.mouse("mouseMoved", 50, 60, nil)
				agent.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": "a"}, nil)
			}
			x.until("the agent's deeds are told",
				`document.querySelector("aside").textContent.split("moves the mouse").length > 30`)
			checkAccessible(t, x.tab)
			if got := x.eval("JSON.stringify(violations)"); got != "[]" {
				violations.Store(browser, got)
			}
			x.call("Page.close", nil, nil)
		})
		p.Stop()
	}
	violations.Range(func(browser, got any) bool {
		t.Errorf("%v: the page breaks its own policy: %v", browser, got)
		return true
	})
}

// checkAccessible asserts that axe finds nothing in a page, in light and dark.
func checkAccessible(t *testing.T, p *tab) {
	t.Helper()
	axe, err := os.ReadFile(filepath.Join(cmdtest.Clients(t), "node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	p.eval(string(axe) + ";0")
	for _, scheme := range []string{"light", "dark"} {
		p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{
			{"name": "prefers-color-scheme", "value": scheme}}}, nil)
		got := p.eval(`axe.run().then((r) => r.violations.flatMap((v) =>
			v.nodes.map((n) => v.id + ": " + n.html + " " + n.failureSummary)).join("\n"))`)
		if got != "" {
			t.Errorf("axe in %s: %s", scheme, got)
		}
	}
}

// useGrid finds and opens a session with the keyboard alone, sees new ones appear and ended ones vanish, and all of it
// fits on a telephone.
func useGrid(t *testing.T, w *cmdtest.World, viewer string) {
	p := w.Proxy("share")
	x := openTab(t, viewer, strings.TrimSpace(w.Run("bproxy", "view", "--no-open").Out), 360)
	x.until("it says that there is nothing", `document.querySelector(".empty")?.textContent.includes("bmcp call")`)
	checkAccessible(t, x)
	for _, name := range []string{"alpha", "beta"} {
		openSession(t, p, name, "data:text/html,<title>page of "+name+"</title>")
	}
	x.until("both appear with their pictures and titles", `document.querySelectorAll(".tile").length === 2 &&
		[...document.querySelectorAll(".tile canvas")].every((c) => c.width > 100) &&
		[...document.querySelectorAll(".tile .title")].map((e) => e.textContent).join() ===
			"page of alpha,page of beta"`)
	checkAccessible(t, x)
	if got := x.eval("document.documentElement.scrollWidth"); got != 360.0 {
		t.Errorf("the page is %v wide on 360", got)
	}
	x.key("/", "Slash", 191, 0)
	for _, c := range "bet" {
		x.key(string(c), "Key"+strings.ToUpper(string(c)), 0, 0)
	}
	x.until("one is left", `document.querySelectorAll(".tile").length === 1`)
	x.key("Escape", "Escape", 27, 0)
	x.until("all are back", `document.querySelectorAll(".tile").length === 2`)
	x.key("ArrowDown", "ArrowDown", 40, 0)
	x.key("ArrowDown", "ArrowDown", 40, 0)
	x.until("the second has the focus", `document.activeElement.textContent.includes("beta")`)
	x.key("Enter", "Enter", 13, 0)
	x.until("it is open", `location.hash === "#/beta" && document.querySelector(".surface canvas")?.width > 100`)
	checkAccessible(t, x)
	if got := x.eval("document.documentElement.scrollWidth"); got != 360.0 {
		t.Errorf("the session is %v wide on 360", got)
	}
	x.eval("history.back()")
	x.until("the grid is back", `document.querySelectorAll(".tile").length === 2`)
	w.Run("bproxy", "session", "end", "alpha").Exits(t, 0, "")
	x.until("an ended session vanishes", `document.querySelectorAll(".tile").length === 1`)
	p.Stop()
	x.until("those of a program that has ended vanish", `document.querySelectorAll(".tile").length === 0`)
	if got := x.eval("JSON.stringify(violations)"); got != "[]" {
		t.Errorf("the page breaks its own policy: %v", got)
	}
}
